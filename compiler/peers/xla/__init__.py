"""XLA through JAX: the imported graph, as operators of ATen (`compiler/fx`), is a function of JAX.

    model -> graph, as it was imported -> torch.fx.GraphModule -> jax.jit

So models of ONNX and of PyTorch run alike, and XLA gets what Strata's passes get: one function of
JAX for each operator (`operators.py`, `indices.py`, `windows.py`), with whole convolutions,
products and softmaxes. Weights are arguments; small constants are part of the code.

The CPU client reads the number of threads when it is created, so the first request decides.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from compiler.diagnostics import Problem, StrataError
from compiler.peers import Request, Run, refusal

PACKAGE = "jax"
_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
_WEIGHT = 1024
"""The number of elements from which a constant is an argument."""


def load(request: Request) -> Run:
    """Compiled for the shapes of the inputs. Raises StrataError for a model that it does not take.
    """
    if request.threads == 1:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_ONE_THREAD}".strip()
    jax: Any = importlib.import_module("jax")
    module, names = _operators(request)
    jax.config.update("jax_enable_x64", True)  # otherwise, 64 bits become 32
    given = request.named(names)
    constants = {name: _array(jax, tensor) for name, tensor in module.named_buffers()}
    weights = {name: x for name, x in constants.items() if x.size >= _WEIGHT}
    walk = importlib.import_module(f"{__name__}.walk").walk

    def function(weights: Mapping[str, Any], inputs: Sequence[Any]) -> Any:
        return walk(module.graph, {**constants, **weights}, inputs)

    try:
        inputs = [_array(jax, given[name]) for name in names]
        compiled = jax.jit(function).lower(weights, inputs).compile()
    except jax.errors.ConcretizationTypeError:
        raise StrataError(f"xla cannot run {request.model}", [Problem(
            "the sizes of its results depend on data, and XLA needs the size of every array",
            hint="compare with onnxruntime, which takes such models")]) from None
    except Exception as error:  # of JAX and of XLA, of no common class
        raise refusal("xla", request.model, error) from None

    def run() -> Sequence[Any]:
        return jax.block_until_ready(compiled(weights, inputs))

    return run


def _operators(request: Request) -> tuple[Any, list[str]]:
    """The model as a GraphModule, and the names of its inputs. Raises StrataError."""
    from compiler.frontend import model_of
    from compiler.fx.writer import graph_module
    from compiler.io.signature import signature_of
    from compiler.options import CompileOptions
    from compiler.pipeline.driver import Compiler

    captured = request.captured
    source = request.model if captured is None else model_of(captured.program)
    state = Compiler(source, CompileOptions()).read()
    if state.level != "graph":
        raise StrataError(f"xla runs models, and {request.model} is at {state.level} level")
    names = list(signature_of(state.module).input_names)
    return graph_module(state.module, state.context.weights, request.model), names


def _array(jax: Any, value: Any) -> Any:
    from compiler.io.arrays import to_numpy

    return jax.device_put(to_numpy(value))
