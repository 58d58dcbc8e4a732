"""Decompositions of gradients that PyTorch computes by kernels of its own, of embedding bags, and
of linear layers with a cross entropy, which have their gradients at once.

Each is written with operators that have importers. Sums have a fixed order.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from compiler.frontend.torch.library import torch_module

SUM, MEAN, MAX = 0, 1, 2
"""Modes of embedding bags."""
LINEAR_LOSSES = "torch.nn.modules.linear_cross_entropy"
"""The module that defines the operators of linear layers with a cross entropy."""


def backward_decompositions() -> dict[Any, Any]:
    """Operator -> function."""
    aten = torch_module().ops.aten
    pads = {getattr(aten, f"replication_pad{rank}d_backward").default: partial(
        replication_pad_backward, rank) for rank in (1, 2, 3)}
    return {**pads, aten._weight_norm_interface_backward.default: weight_norm_backward,
            aten._embedding_bag.default: embedding_bag,
            aten._embedding_bag_forward_only.default: bags_alone,
            aten._embedding_bag_backward.default: embedding_bag_backward,
            aten._embedding_bag_per_sample_weights_backward.default: bag_factors_backward,
            **_linear_losses()}


def _linear_losses() -> dict[Any, Any]:
    if LINEAR_LOSSES not in sys.modules:
        return {}
    own, name = torch_module().ops.torch_nn, "_linear_cross_entropy_batch_chunked"
    return {getattr(own, name).default: linear_loss,
            getattr(own, f"{name}_no_reduction").default: linear_losses}


def replication_pad_backward(rank: int, given: Any, x: Any, padding: Any) -> Any:
    """Gradients of what was repeated beyond the first and last elements are added to theirs."""
    torch = torch_module()
    if any(isinstance(n, int) and n < 0 for n in padding):
        return NotImplemented
    for axis in range(rank):
        dim, before, after = given.dim() - 1 - axis, padding[2 * axis], padding[2 * axis + 1]
        size = x.shape[dim]
        inner = given.narrow(dim, before, size)
        first = given.narrow(dim, 0, before).sum(dim, keepdim=True)
        last = given.narrow(dim, before + size, after).sum(dim, keepdim=True)
        place = torch.arange(size, device=given.device).view(-1, *[1] * (given.dim() - 1 - dim))
        given = (inner + torch.where(place == 0, first, 0)
                 + torch.where(place == size - 1, last, 0))
    return given


def weight_norm_backward(given: Any, v: Any, g: Any, norms: Any, dim: int) -> Any:
    """Gradients of v and g for w = v * g / |v|, with a norm for each place along a dim."""
    others = [k for k in range(v.dim()) if k != dim % v.dim()]
    norms = norms.to(g.dtype)
    along = (given * v).sum(others, keepdim=True)
    return (g / norms) * (given - v * (along / (norms * norms))), along / norms


# ---------------------------------------------------------------------- embedding bags
def embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale: bool = False, mode: int = SUM,
    sparse: bool = False, factors: Any = None, last: bool = False, padding: int = -1,
) -> Any:
    """Sums, means or maxima of rows, and the bag of each index, the size of each bag, and of maxima
    the index of each."""
    torch = torch_module()
    if mode not in (SUM, MEAN, MAX) or scale or sparse or indices.dim() != 1:
        return NotImplemented
    starts = offsets[:-1] if last else offsets
    count = starts.shape[0]
    begins = torch.zeros(indices.shape[0] + 1, dtype=torch.int64, device=indices.device)
    bags = begins.index_add(0, starts, torch.ones_like(starts, dtype=torch.int64))
    bags = bags.cumsum(0)[:-1] - 1  # so many bags begin before
    used = indices != padding if padding >= 0 else torch.ones_like(indices, dtype=torch.bool)
    rows = weight[indices]
    rows = rows if factors is None else rows * factors.unsqueeze(1)
    rows = torch.where(used.unsqueeze(1), rows, 0)
    sizes = torch.zeros(count, dtype=torch.int64, device=indices.device).index_add(
        0, bags, used.to(torch.int64))
    made = rows.new_zeros(count, weight.shape[1])
    if mode == MAX:
        return _largest(made, bags, rows, used, indices, sizes)
    made = made.index_add(0, bags, rows)
    if mode == MEAN:
        made = made / sizes.clamp(min=1).unsqueeze(1).to(made.dtype)
    return (made, bags.to(indices.dtype), sizes.to(indices.dtype),
            torch.zeros(count, dtype=indices.dtype, device=indices.device))


def bags_alone(
    weight: Any, indices: Any, offsets: Any, scale: bool = False, mode: int = SUM,
    sparse: bool = False, *others: Any, **named: Any,
) -> Any:
    """The same where no gradient follows, whose form `scale` and `sparse` say."""
    return embedding_bag(weight, indices, offsets, False, mode, False, *others, **named)


def _largest(
    zeros: Any, bags: Any, rows: Any, used: Any, indices: Any, sizes: Any
) -> tuple[Any, Any, Any, Any]:
    """The maxima of bags, 0 for an empty one, and of equal rows the first."""
    torch = torch_module()
    places = torch.arange(rows.shape[0], device=rows.device).unsqueeze(1)
    of_rows = bags.unsqueeze(1).expand(rows.shape)
    own = torch.where(used.unsqueeze(1), rows, -torch.inf)
    made = zeros.scatter_reduce(0, of_rows, own, "amax", include_self=False)
    made = torch.where((sizes > 0).unsqueeze(1), made, 0)
    is_it = used.unsqueeze(1) & (rows == made[bags])
    last = rows.shape[0]
    first = torch.full_like(zeros, last, dtype=torch.int64).scatter_reduce(
        0, of_rows, torch.where(is_it, places, last), "amin")
    there = torch.cat([indices, indices.new_zeros(1)])[first]
    return made, bags.to(indices.dtype), sizes.to(indices.dtype), there


def embedding_bag_backward(
    given: Any, indices: Any, offsets: Any, bags: Any, sizes: Any, most: Any, count: Any,
    scale: bool, mode: int, sparse: bool, factors: Any, padding: int = -1,
) -> Any:
    """The gradient of the table of an embedding bag."""
    torch = torch_module()
    if mode not in (SUM, MEAN) or scale or sparse:
        return NotImplemented
    if mode == MEAN:
        given = given / sizes.clamp(min=1).unsqueeze(1).to(given.dtype)
    rows = given[bags]
    rows = rows if factors is None else rows * factors.unsqueeze(1)
    if padding >= 0:
        rows = torch.where((indices != padding).unsqueeze(1), rows, 0)
    return given.new_zeros(count, given.shape[1]).index_add(0, indices, rows)


def bag_factors_backward(
    given: Any, weight: Any, indices: Any, offsets: Any, bags: Any, mode: int, padding: int = -1
) -> Any:
    """The gradient of the factors of an embedding bag's rows, which only sums have."""
    found = (given[bags] * weight[indices]).sum(1)
    return found if padding < 0 else torch_module().where(indices != padding, found, 0)


# ---------------------------------------------------------------------- linear layers with a loss
def linear_losses(
    x: Any, w: Any, target: Any, bias: Any, weight: Any, ignored: int, chunk: int, policy: str,
    kind: Any,
) -> Any:
    """The cross entropy of each row of x [n, d] w^T [d, classes], summed in elements of `kind`."""
    return _cross_entropy(_logits(x, w, bias, kind), target, weight, "none", ignored).to(x.dtype)


def linear_loss(
    x: Any, w: Any, target: Any, bias: Any, weight: Any, reduction: str, ignored: int,
    smoothing: float, chunk: int, policy: str, kind: Any, retain: bool, of_x: bool, of_w: bool,
    of_bias: bool,
) -> Any:
    """The sum or mean of these, and its gradients by x, w and the bias, where they are wanted."""
    if smoothing:
        return NotImplemented  # PyTorch calls it without
    torch, logits = torch_module(), _logits(x, w, bias, kind)
    loss = _cross_entropy(logits, target, weight, reduction, ignored)
    none = x.new_empty((0, 0)), x.new_empty((0, 0)), x.new_empty((0,))
    if not (of_x or of_w or of_bias):
        return loss.to(x.dtype), *none
    classes = logits.new_ones(w.shape[0]) if weight is None else weight.to(kind)
    place = torch.where(target == ignored, 0, target)
    own = classes[place] * (target != ignored).to(kind)
    is_it = torch.arange(w.shape[0], device=x.device) == place.unsqueeze(1)
    given = own.unsqueeze(1) * (torch.softmax(logits, 1) - is_it.to(kind))
    given = given / own.sum() if reduction == "mean" else given
    found = given @ w.to(kind), given.T @ x.to(kind), given.sum(0)
    return loss.to(x.dtype), *(
        mine.to(x.dtype) if wanted else empty
        for mine, empty, wanted in zip(found, none, (of_x, of_w, of_bias), strict=True))


def _logits(x: Any, w: Any, bias: Any, kind: Any) -> Any:
    made = x.to(kind) @ w.to(kind).T
    return made if bias is None else made + bias.to(kind)


def _cross_entropy(logits: Any, target: Any, weight: Any, reduction: str, ignored: int) -> Any:
    return torch_module().nn.functional.cross_entropy(
        logits, target, None if weight is None else weight.to(logits.dtype), reduction=reduction,
        ignore_index=ignored)
