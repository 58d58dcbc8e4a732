"""Decompositions for graphs with gradients, before and after AOTAutograd derives these."""

from __future__ import annotations

from functools import partial
from typing import Any

from compiler.frontend.torch.core.distances import cdist_gradient
from compiler.frontend.torch.core.pools import (
    fractional_max_pool,
    max_pool_gradient,
    placed_gradient,
)
from compiler.frontend.torch.core.strided import as_strided
from compiler.frontend.torch.library import torch_module

MEAN = 1
"""The reduction of losses that divides by the sum of weights."""


def gradient_decompositions() -> dict[Any, Any]:
    """Operator -> function."""
    aten = torch_module().ops.aten
    return {aten.native_dropout.default: dropout,
            aten.native_dropout_backward.default: dropout_backward,
            aten._cdist_backward.default: cdist_gradient,
            aten.adaptive_max_pool2d_backward.default: partial(placed_gradient, 2),
            aten.adaptive_max_pool3d_backward.default: partial(placed_gradient, 3),
            aten.fractional_max_pool2d.default: partial(fractional_max_pool, 2),
            aten.fractional_max_pool3d.default: partial(fractional_max_pool, 3),
            aten.fractional_max_pool2d_backward.default: partial(placed_gradient, 2),
            aten.fractional_max_pool3d_backward.default: partial(placed_gradient, 3)}


def step_decompositions() -> dict[Any, Any]:
    """Operator -> function, for graphs whose gradients are recorded, also where an operator has an
    importer: so that little is saved for the backward pass."""
    aten = torch_module().ops.aten
    return {aten._log_softmax.default: log_softmax,
            aten.nll_loss_backward.default: nll_loss_backward,
            aten.max_pool2d_with_indices_backward.default: max_pool_gradient,
            aten.max_pool3d_with_indices_backward.default: max_pool_gradient,
            aten.as_strided.default: as_strided}


def log_softmax(x: Any, dim: int, to_single: bool) -> Any:
    """x minus the logarithm of the sum of exponentials along a dim, in f32 for halves.

    From its parts, the backward pass computes it again, from x and one number of each row.
    """
    if not x.numel() or not x.is_floating_point():
        return NotImplemented
    torch = torch_module()
    wide = x.to(torch.float32) if x.dtype.itemsize == 2 else x
    moved = wide - wide.amax(dim, keepdim=True)
    made = moved - moved.exp().sum(dim, keepdim=True).log()
    return made if to_single else made.to(x.dtype)


def nll_loss_backward(
    given: Any, x: Any, target: Any, weight: Any, reduction: int, ignored: int, total: Any
) -> Any:
    """The gradient of logarithms of probabilities, of [classes] or [rows, classes]: in each row all
    zeros but one, which a comparison finds. PyTorch scatters it into zeros in memory."""
    torch = torch_module()
    classes = torch.arange(x.shape[-1], device=x.device)
    places = target.unsqueeze(-1)
    share = given / total if reduction == MEAN else given
    share = share.unsqueeze(-1) if share.dim() else share
    if weight is not None:
        share = share * weight
    chosen = (classes == places) & (places != ignored)
    return torch.where(chosen, -share, 0).to(x.dtype)


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
