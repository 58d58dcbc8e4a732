"""Decompositions for graphs with gradients, before and after AOTAutograd derives these."""

from __future__ import annotations

from typing import Any

from compiler.frontend.torch.library import torch_module


def gradient_decompositions() -> dict[Any, Any]:
    """Operator -> function."""
    aten = torch_module().ops.aten
    return {aten.native_dropout.default: dropout,
            aten.native_dropout_backward.default: dropout_backward}


def dropout(x: Any, p: float, train: bool | None) -> Any:
    """x with elements of probability p replaced by zero and others divided by 1 - p, and a mask
    of those that are kept.

    It draws as eager mode does on the CPU, so that the same seed keeps the same elements. On a GPU
    a kernel of PyTorch draws in another way, so that the operator stays in the graph.
    """
    torch = torch_module()
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    if x.is_cuda:
        return NotImplemented
    noise = torch.ops.aten.bernoulli.p(torch.empty_like(x), 1 - p)
    return x * (noise / (1 - p)), noise != 0


def dropout_backward(given: Any, kept: Any, scale: float) -> Any:
    """The gradient of dropout's operand, rounded as eager mode rounds it.

    On the CPU that multiplies by a mask in which the scale has been rounded.
    """
    if given.is_cuda:
        return given * kept * scale
    return given * (kept.type_as(given) * scale)
