"""XLA through JAX: torchax turns a PyTorch module into a function of JAX, which `jax.jit` compiles.

Its CPU client reads the number of threads when it is created, so the first request decides.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from compiler.frontend.torch.library import torch_module
from compiler.peers import Request, Run, refusal
from compiler.peers.torch import module_of

PACKAGE = "torchax"
_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def load(request: Request) -> Run:
    """Compiled by the first call. Raises StrataError for a model that it does not take."""
    captured = request.program("xla")
    if request.threads == 1:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_ONE_THREAD}".strip()
    jax, torchax = (importlib.import_module(name) for name in ("jax", "torchax"))
    given, named = captured.arguments(request.named(captured.input_names))
    try:
        weights, function = torchax.extract_jax(module_of(request, "xla"))
        compiled = jax.jit(function)
    except Exception as error:  # it has many kinds, of no common class
        raise refusal("xla", request.model, error) from None
    move, tensor = torch_module("torch.utils._pytree").tree_map_only, torch_module().Tensor
    given, named = (move(tensor, partial(_sent, jax.numpy), values) for values in (given, named))

    def run() -> Sequence[Any]:
        found = jax.block_until_ready(compiled(weights, given, named))
        return jax.tree_util.tree_leaves(found)

    return run


def _sent(numpy: Any, tensor: Any) -> Any:
    return numpy.asarray(tensor.numpy())
