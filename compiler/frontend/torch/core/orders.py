"""Decompositions of operators that order elements: medians, modes, running extrema, histograms.

Equal elements come in their order. Running extrema combine pairs of blocks, in as many steps as the
logarithm of the axis, which must be constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

from compiler.frontend.torch.core.strided import in_order_of
from compiler.frontend.torch.library import torch_module


def order_decompositions() -> dict[Any, Any]:
    """Operator -> function."""
    aten = torch_module().ops.aten
    return {aten.median.default: partial(_of_all, median), aten.median.dim: median,
            aten.nanmedian.default: partial(_of_all, nanmedian), aten.nanmedian.dim: nanmedian,
            aten.kthvalue.default: in_order_of(aten.kthvalue.default, kthvalue),
            aten.mode.default: mode,
            aten.cummax.default: partial(_running_extremum, False),
            aten.cummin.default: partial(_running_extremum, True),
            aten.logcumsumexp.default: logcumsumexp,
            aten.histogram.bin_ct: histogram, aten.histogram.bins_tensor: histogram_of_edges,
            aten._histogramdd_bin_edges.default: edges_of_parts,
            aten._histogramdd_from_bin_cts.default: histogram_of_parts,
            aten._histogramdd_from_bin_tensors.default: histogram_in_space}


def _of_all(function: Callable[..., Any], x: Any) -> Any:
    """Of all elements; NaN of none."""
    if x.numel() == 0:
        return x.new_full((), float("nan")) if x.is_floating_point() else NotImplemented
    return function(x.reshape(-1), 0)[0]


def _as_row(x: Any) -> Any:
    return x.reshape(1) if x.dim() == 0 else x


def _picked(x: Any, places: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    """The elements at places [..., 1, ...] along a dim, and the places, both in rows."""
    found = x.gather(dim, places), places
    values, places = (f if keepdim else f.squeeze(dim) for f in found)
    return values.contiguous(), places.contiguous()


def median(x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The lower of the two middle elements; the first NaN if there is one."""
    torch, row = torch_module(), _as_row(x)
    dim %= row.dim()
    order = torch.argsort(row, dim=dim, stable=True)
    places = order.narrow(dim, (row.shape[dim] - 1) // 2, 1)
    if row.is_floating_point():
        odd = row.isnan().to(torch.uint8)
        first = odd.argmax(dim, keepdim=True)
        places = torch.where(odd.amax(dim, keepdim=True) > 0, first, places)
    return _shaped(x, _picked(row, places, dim, keepdim))


def nanmedian(x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The same of the elements that are no NaN; NaN if there are none."""
    if not x.is_floating_point():
        return median(x, dim, keepdim)
    torch, row = torch_module(), _as_row(x)
    dim %= row.dim()
    order = torch.argsort(row, dim=dim, stable=True)
    count = (~row.isnan()).sum(dim, keepdim=True)
    places = order.gather(dim, ((count - 1) // 2).clamp(min=0))
    return _shaped(x, _picked(row, places, dim, keepdim))


def _shaped(x: Any, found: tuple[Any, Any]) -> tuple[Any, Any]:
    """Results for x; those of a scalar are scalars."""
    return (found[0].reshape(()), found[1].reshape(())) if x.dim() == 0 else found


def kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th smallest element, counted from 1."""
    row = _as_row(x)
    dim %= row.dim()
    order = torch_module().argsort(row, dim=dim, stable=True)
    return _shaped(x, _picked(row, order.narrow(dim, k - 1, 1), dim, keepdim))


def mode(x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The smallest of the most frequent elements, and its last place."""
    torch, row = torch_module(), _as_row(x)
    dim %= row.dim()
    values, order = torch.sort(row, dim=dim, stable=True)
    moved = values.movedim(dim, -1)
    counts = (moved.unsqueeze(-1) == moved.unsqueeze(-2)).sum(-1)  # a run's last has all of it
    first = counts.argmax(-1, keepdim=True)
    last = first + counts.gather(-1, first).clamp(min=1) - 1
    return _shaped(x, _picked(row, order.gather(dim, last.movedim(-1, dim)), dim, keepdim))


# ---------------------------------------------------------------------- running values
def _running_extremum(smallest: bool, x: Any, dim: int) -> Any:
    """Running extrema, and the last places where they are; NaN is one from its place on."""
    torch, row = torch_module(), _as_row(x)
    dim %= row.dim()
    size = row.shape[dim]
    if not isinstance(size, int):
        return NotImplemented
    wide = row.to(torch.uint8) if row.dtype == torch.bool else row
    shape = [size if k == dim else 1 for k in range(row.dim())]
    places = torch.arange(size, device=x.device).reshape(shape).expand(row.shape)
    step = 1
    while step < size:
        old, new = wide.narrow(dim, 0, size - step), wide.narrow(dim, step, size - step)
        better = new <= old if smallest else new >= old
        if wide.is_floating_point():
            better = new.isnan() | (better & ~old.isnan())
        found, at = (torch.where(better, v.narrow(dim, step, size - step),
                                 v.narrow(dim, 0, size - step)) for v in (wide, places))
        wide, places = (torch.cat([v.narrow(dim, 0, step), part], dim)
                        for v, part in ((wide, found), (places, at)))
        step *= 2
    return tuple(v.reshape(x.shape).contiguous() for v in (wide.to(x.dtype), places))


def logcumsumexp(x: Any, dim: int) -> Any:
    """ln of the running sums of e^x, as sums of two blocks that share their larger exponent."""
    torch, row = torch_module(), _as_row(x)
    dim %= row.dim()
    size = row.shape[dim]
    if not isinstance(size, int) or not x.is_floating_point():
        return NotImplemented
    wide = row.float() if x.dtype in (torch.float16, torch.bfloat16) else row
    step = 1
    while step < size:
        old, new = wide.narrow(dim, 0, size - step), wide.narrow(dim, step, size - step)
        most = torch.maximum(old, new)
        shift = torch.where(most.isinf(), 0.0, most)
        total = torch.log(torch.exp(old - shift) + torch.exp(new - shift)) + shift
        wide = torch.cat([wide.narrow(dim, 0, step), total], dim)
        step *= 2
    return wide.to(x.dtype).reshape(x.shape).contiguous()


# ---------------------------------------------------------------------- histograms
def histogram(
    x: Any, bins: int = 100, *, range: Any = None, weight: Any = None, density: bool = False
) -> tuple[Any, Any]:
    """The elements in each of equal parts of a range, by default that of all elements."""
    edges = edges_of_parts(x.reshape(-1, 1), [bins], range=range)
    return histogram_in_space(x.reshape(-1, 1), edges, weight=weight, density=density), edges[0]


def histogram_of_edges(
    x: Any, bins: Any, *, weight: Any = None, density: bool = False
) -> tuple[Any, Any]:
    """The same for parts between ascending edges."""
    found = histogram_in_space(x.reshape(-1, 1), [bins], weight=weight, density=density)
    return found, bins.clone()


def histogram_of_parts(
    x: Any, bins: Sequence[int], *, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    edges = edges_of_parts(x, bins, range=range)
    return histogram_in_space(x, edges, weight=weight, density=density)


def edges_of_parts(
    x: Any, bins: Sequence[int], *, range: Any = None, weight: Any = None, density: bool = False
) -> list[Any]:
    """The edges of equal parts along each of the d coordinates of points x [..., d].

    They are counted from the nearer end, as eager mode does.
    """
    torch, points = torch_module(), x.flatten(0, -2)
    found: list[Any] = []
    for axis, count in enumerate(bins):
        if range is not None:
            low, high = (x.new_full((), v) for v in range[2 * axis:2 * axis + 2])
        elif points.shape[0] == 0:
            low, high = x.new_zeros(()), x.new_ones(())
        else:
            low, high = points[:, axis].aminmax()
        same = low == high
        low, high = torch.where(same, low - 0.5, low), torch.where(same, high + 0.5, high)
        step, places = (high - low) / count, torch.arange(count + 1, device=x.device)
        is_first = places < (count + 1) // 2
        found.append(torch.where(is_first, low + step * places, high - step * (count - places)))
    return found


def histogram_in_space(
    x: Any, bins: Sequence[Any], *, weight: Any = None, density: bool = False
) -> Any:
    """The number of points x [..., d], or the sum of their weights, in each cell of a grid.

    A cell begins at its lower edges; the last of each axis ends with its upper one. `density`:
    divided by the sum of all and by each cell's volume.
    """
    torch, points = torch_module(), x.flatten(0, -2)
    shape = [edges.shape[0] - 1 for edges in bins]
    place = torch.zeros(points.shape[0], dtype=torch.int64, device=x.device)
    inside = torch.ones_like(place, dtype=torch.bool)
    for axis, (edges, count) in enumerate(zip(bins, shape, strict=True)):
        own = points[:, axis].contiguous()
        inside = inside & (own >= edges[0]) & (own <= edges[-1])
        at = torch.searchsorted(edges, own, right=True) - 1
        place = place * count + at.clamp(0, count - 1)
    counted = inside.to(x.dtype) if weight is None else torch.where(
        inside, weight.reshape(-1).to(x.dtype), 0)
    found = x.new_zeros(prod(shape)).index_add(0, place, counted).reshape(shape)
    if density:
        found = found / found.sum()
        for axis, edges in enumerate(bins):
            widths = edges[1:] - edges[:-1]
            found = found / widths.reshape([-1 if k == axis else 1 for k, _ in enumerate(shape)])
    return found
