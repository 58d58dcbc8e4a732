"""TorchInductor: `torch.compile` with the weights frozen, as PyTorch offers it for inference."""

from __future__ import annotations

from compiler.frontend.torch.library import torch_module
from compiler.peers import Request, Run
from compiler.peers.torch import caller, module_of

PACKAGE = "torch"


def load(request: Request) -> Run:
    """Compiled by the first call; needs a C++ compiler."""
    torch = torch_module()
    torch.set_num_threads(request.threads)  # which the generated code has built in
    module = module_of(request, "inductor")
    compiled = torch.compile(module, dynamic=request.is_dynamic, options={"freezing": True})
    return caller(request, compiled)
