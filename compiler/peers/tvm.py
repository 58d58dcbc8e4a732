"""Apache TVM on the CPU, with its default pipeline: kernels by rules, not tuned by measuring."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler.frontend.torch.library import quiet
from compiler.peers import Request, Run, refusal

if TYPE_CHECKING:
    from compiler.frontend.torch.capture import Captured

PACKAGE, INSTALL = "tvm", "apache-tvm"


def load(request: Request) -> Run:
    """A compiled model. Raises StrataError for one that it does not take."""
    captured = None if request.is_onnx else request.program(PACKAGE)
    tvm, relax = (importlib.import_module(name) for name in ("tvm", "tvm.relax"))
    tvm.get_global_func("runtime.config_threadpool")(1, request.threads)
    try:
        with quiet():
            module, names = _module(request, captured)
            code = tvm.compile(module, tvm.target.Target({"kind": "llvm", "mcpu": _processor()}))
        main = relax.VirtualMachine(code, tvm.cpu())["main"]
    except Exception as error:  # it has many kinds, of no common class
        raise refusal(PACKAGE, request.model, error) from None
    make = tvm.runtime.tensor if hasattr(tvm.runtime, "tensor") else tvm.nd.array
    named = request.named(names)
    inputs = [make(named[name]) for name in names]

    def run() -> Sequence[Any]:
        found = main(*inputs)
        return [x.numpy() for x in ([found] if hasattr(found, "numpy") else found)]

    return run


def _module(request: Request, captured: Captured | None) -> tuple[Any, list[str]]:
    """The model in Relax, by TVM's own importer of ONNX or of PyTorch, and its inputs' names."""
    if captured is not None:
        frontend = importlib.import_module("tvm.relax.frontend.torch")
        return frontend.from_exported_program(captured.program), captured.input_names
    model = importlib.import_module("onnx").load(request.model)
    weights = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in weights]
    shapes = {name: list(array.shape) for name, array in request.named(names).items()}
    frontend = importlib.import_module("tvm.relax.frontend.onnx")
    return frontend.from_onnx(model, shape_dict=shapes), names


def _processor() -> str:
    from targets.cpu.machine import machine_of

    return machine_of().cpu
