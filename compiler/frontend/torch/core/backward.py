"""Decompositions of gradients that PyTorch computes by kernels of its own, and of embedding bags.

Each is written with operators that have importers. Sums have a fixed order.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from compiler.frontend.torch.library import torch_module

SUM, MEAN, MAX = 0, 1, 2
"""Modes of embedding bags; the third is the maximum."""


def backward_decompositions() -> dict[Any, Any]:
    """Operator -> function."""
    aten = torch_module().ops.aten
    pads = {getattr(aten, f"replication_pad{rank}d_backward").default: partial(
        replication_pad_backward, rank) for rank in (1, 2, 3)}
    return {**pads, aten._weight_norm_interface_backward.default: weight_norm_backward,
            aten._embedding_bag.default: embedding_bag,
            aten._embedding_bag_forward_only.default: embedding_bag,
            aten._embedding_bag_backward.default: embedding_bag_backward,
            aten._embedding_bag_per_sample_weights_backward.default: bag_factors_backward}


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
