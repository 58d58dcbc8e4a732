"""PyTorch itself, eagerly, in inference mode."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from operator import methodcaller
from typing import Any

from compiler.frontend.torch.library import torch_module
from compiler.peers import Request, Run

PACKAGE = "torch"


def load(request: Request) -> Run:
    """The module as the user's code made it; a .pt2 file's program runs node by node."""
    return caller(request, module_of(request, "torch"))


def module_of(request: Request, peer: str) -> Any:
    """The PyTorch model, where it computes. Raises StrataError if there is none."""
    module = request.program(peer).module()
    return module if request.device == "cpu" else module.to(request.device)


def caller(request: Request, module: Callable[..., Any]) -> Run:
    """Calls of a module on the request's inputs; its products in bf16 where that is permitted.

    On a GPU, a call ends when the results are there.
    """
    torch, captured = torch_module(), request.program("torch")
    torch.set_num_threads(request.threads)
    given, named = captured.arguments(request.named(captured.input_names))
    wait = torch.cuda.synchronize if request.device == "cuda" else None
    if wait is not None:
        move = torch_module("torch.utils._pytree").tree_map_only
        given, named = (move(torch.Tensor, methodcaller("to", request.device), values)
                        for values in (given, named))

    def precision() -> AbstractContextManager[Any]:
        low = request.is_low_precision
        return torch.autocast(request.device, torch.bfloat16) if low else nullcontext()

    def run() -> list[Any]:
        with torch.inference_mode(), precision():
            found = captured.tensors(module(*given, **named))
            if wait is not None:
                wait()
            return found

    return run
