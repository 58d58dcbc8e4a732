"""PyTorch itself, eagerly, in inference mode."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from compiler.frontend.torch.library import torch_module
from compiler.peers import Request, Run

PACKAGE = "torch"


def load(request: Request) -> Run:
    """The module as the user's code made it; a .pt2 file's program runs node by node."""
    return caller(request, request.program("torch").module())


def caller(request: Request, module: Callable[..., Any]) -> Run:
    """Calls of a module on the request's inputs; its products in bf16 where that is permitted."""
    torch, captured = torch_module(), request.program("torch")
    torch.set_num_threads(request.threads)
    given, named = captured.arguments(request.named(captured.input_names))

    def precision() -> AbstractContextManager[Any]:
        low = request.is_low_precision
        return torch.autocast("cpu", torch.bfloat16) if low else nullcontext()

    def run() -> list[Any]:
        with torch.inference_mode(), precision():
            return captured.tensors(module(*given, **named))

    return run
