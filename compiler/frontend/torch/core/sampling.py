"""Decompositions of resampling: antialiased resizing, volumes sampled at a grid, and gradients of
images and volumes that are.

Antialiasing weighs all elements under a filter that is as wide as the scale: a matrix for each
axis, which depends on sizes alone.
Source: aten/src/ATen/native/cpu/UpSampleKernel.cpp and GridSampler.h, for what they compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any

from compiler.frontend.torch.core.strided import in_order_of
from compiler.frontend.torch.library import torch_module

ZEROS, BORDER, REFLECTION = 0, 1, 2
NEAREST, CUBIC = 1, 2


def sampling_decompositions() -> dict[Any, Any]:
    """Operator -> function."""
    aten = torch_module().ops.aten
    found = {aten._upsample_bilinear2d_aa.default: partial(antialiased, _linear, 2),
             aten._upsample_bicubic2d_aa.default: partial(antialiased, _cubic, 4),
             aten.grid_sampler_3d.default: grid_sampler_3d,
             aten.grid_sampler_2d_backward.default: grid_sampler_gradient,
             aten.grid_sampler_3d_backward.default: grid_sampler_gradient}
    return {op: in_order_of(op, function) for op, function in found.items()}


def _linear(x: Any) -> Any:
    return (1 - x.abs()).clamp(min=0)


def _cubic(x: Any) -> Any:
    """The cubic filter with the coefficient -0.5."""
    where, a, size = torch_module().where, -0.5, x.abs()
    near = ((a + 2) * size - (a + 3)) * size * size + 1
    far = (((size - 5) * size + 8) * size - 4) * a
    return where(size < 1, near, where(size < 2, far, 0.0))


def antialiased(
    kernel: Callable[[Any], Any], taps: int, x: Any, sizes: Any, align_corners: bool,
    scale_h: float | None = None, scale_w: float | None = None,
) -> Any:
    """x [n, c, h, w] in other sizes, by a filter of so many taps where it is not shrunk."""
    if any(not isinstance(s, int) for s in (*x.shape[-2:], *sizes)) or not x.is_floating_point():
        return NotImplemented
    torch = torch_module()
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    for axis, scale in ((-1, scale_w), (-2, scale_h)):
        matrix = _weights(kernel, taps, x.shape[axis], sizes[axis], align_corners, scale,
                          x.device).to(wide.dtype)
        wide = wide @ matrix.T if axis == -1 else matrix @ wide
    return wide.to(x.dtype)


def _weights(
    kernel: Callable[[Any], Any], taps: int, size: int, wanted: int, align_corners: bool,
    scale: float | None, device: Any,
) -> Any:
    """How much of each element each result takes. f64[wanted, size]"""
    torch = torch_module()
    if align_corners:
        step = (size - 1) / (wanted - 1) if wanted > 1 else 0.0
    else:
        step = 1 / scale if scale else size / wanted
    support, shrink = taps / 2 * max(step, 1.0), 1 / max(step, 1.0)
    centre = step * (torch.arange(wanted, dtype=torch.float64, device=device) + 0.5)
    centre, places = centre.unsqueeze(1), torch.arange(size, device=device)
    inside = (places >= (centre - support + 0.5).floor()) & (
        places < (centre + support + 0.5).floor())
    weights = torch.where(inside, kernel((places - centre + 0.5) * shrink), 0.0)
    return weights / weights.sum(1, keepdim=True)


def grid_sampler_3d(
    x: Any, grid: Any, interpolation: int, padding: int, align_corners: bool
) -> Any:
    """x [n, c, d, h, w] at points [n, ..., 3] from -1 to 1, whose last coordinate is that of d."""
    if interpolation not in (0, 1):
        return NotImplemented
    torch = torch_module()
    sizes = x.shape[2:]
    places = [_place(grid[..., 2 - k], sizes[k], padding, align_corners) for k in range(3)]
    flat = x.flatten(2)
    if interpolation == 1:
        return _taken(flat, [p.round() for p in places], sizes)
    low = [p.floor() for p in places]
    total = torch.zeros((), dtype=x.dtype, device=x.device)
    for corner in product((0, 1), repeat=3):
        weight = torch.ones((), dtype=x.dtype, device=x.device)
        for p, floor, upper in zip(places, low, corner, strict=True):
            weight = weight * (p - floor if upper else 1 - (p - floor))
        taken = _taken(flat, [floor + upper for floor, upper in zip(low, corner, strict=True)],
                       sizes)
        total = total + taken * weight.unsqueeze(1)
    return total


def _place(c: Any, size: Any, padding: int, align_corners: bool) -> Any:
    """Coordinates from -1 to 1 as positions among the elements of an axis."""
    return _padded(_unpadded(c, size, align_corners), size, padding, align_corners)[0]


def _unpadded(c: Any, size: Any, align_corners: bool) -> Any:
    return (c + 1) / 2 * (size - 1) if align_corners else ((c + 1) * size - 1) / 2


def _padded(place: Any, size: Any, padding: int, align_corners: bool) -> tuple[Any, Any]:
    """Positions moved into an axis as padding says, and the derivative of that."""
    where, slope = torch_module().where, 1.0
    if padding == REFLECTION:
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        if isinstance(span, int) and span == 0:
            return place * 0, 0.0
        away = (place - low).abs()
        turns, rest = (away / span).floor(), away % span
        slope = where((turns % 2 == 0) == (place >= low), 1.0, -1.0)
        place = where(turns % 2 == 0, rest + low, span - rest + low)
    if padding == ZEROS:
        return place, slope
    return place.clamp(0, size - 1), where((place > 0) & (place < size - 1), slope, 0.0)


def _taken(flat: Any, places: list[Any], sizes: Any) -> Any:
    """Elements [n, c, ...] at whole positions [n, ...] of each axis; 0 outside."""
    index, inside = _index(places, sizes)
    rows = index.flatten(1).unsqueeze(1).expand(flat.shape[0], flat.shape[1], -1)
    found = flat.gather(2, rows).unflatten(2, index.shape[1:])
    return torch_module().where(inside.unsqueeze(1), found, 0.0)


def _index(places: Sequence[Any], sizes: Any) -> tuple[Any, Any]:
    """The row-major index of whole positions of each axis, and whether they lie inside."""
    torch = torch_module()
    inside = torch.ones((), dtype=torch.bool, device=places[0].device)
    index = torch.zeros((), dtype=torch.int64, device=places[0].device)
    for p, size in zip(places, sizes, strict=True):
        inside = inside & (p >= 0) & (p <= size - 1)
        index = index * size + p.clamp(0, size - 1).nan_to_num().to(torch.int64)
    return index, inside


# ---------------------------------------------------------------------- gradients
def grid_sampler_gradient(
    given: Any, x: Any, grid: Any, interpolation: int, padding: int, align_corners: bool,
    mask: Sequence[bool],
) -> tuple[Any, Any]:
    """Gradients of x [n, c, ...] and of the grid [n, ..., rank], where they are wanted.

    A point is a sum over taps, each an element of x times a weight for each axis. All taps of all
    points pass their gradients to x by one sum into places.
    """
    torch = torch_module()
    rank, sizes, flat = grid.shape[-1], x.shape[2:], x.flatten(2)
    axes = [_taps(grid[..., rank - 1 - k], sizes[k], interpolation, padding, align_corners)
            for k in range(rank)]
    places: list[Any] = []
    passed: list[Any] = []
    slopes: list[Any] = [torch.zeros_like(grid[..., 0]) for _ in range(rank)]
    for taps in product(*axes):
        index, inside = _index([tap[0] for tap in taps], sizes)
        own = torch.where(inside.unsqueeze(1), given, 0.0)
        places.append(index.flatten(1))
        weight: Any = prod(tap[1] for tap in taps)
        passed.append((own * weight.unsqueeze(1)).flatten(2))
        found = (own * _taken(flat, [tap[0] for tap in taps], sizes)).sum(1)
        for k in range(rank):
            slopes[k] = slopes[k] + found * prod(
                tap[2 if other == k else 1] for other, tap in enumerate(taps))
    rows = torch.cat(places, 1).unsqueeze(1).expand(*flat.shape[:2], -1)
    of_x = torch.zeros_like(flat).scatter_add(2, rows, torch.cat(passed, 2)).reshape(x.shape)
    return of_x if mask[0] else None, torch.stack(slopes[::-1], -1) if mask[1] else None


def _taps(
    c: Any, size: Any, interpolation: int, padding: int, align_corners: bool
) -> list[tuple[Any, Any, Any]]:
    """Positions on an axis that a coordinate takes elements from, with the weight of each and its
    derivative by the coordinate."""
    place, scale = _unpadded(c, size, align_corners), ((size - 1) if align_corners else size) / 2
    if interpolation == CUBIC:
        low = place.floor()
        return [(_padded(low + k, size, padding, align_corners)[0], weight, slope * scale)
                for k, (weight, slope) in enumerate(_cubic_taps(place - low), start=-1)]
    place, slope = _padded(place, size, padding, align_corners)
    ones = torch_module().ones_like(place)
    if interpolation == NEAREST:
        return [(place.round(), ones, 0 * ones)]
    low, slope = place.floor(), ones * slope * scale
    return [(low, 1 - (place - low), -slope), (low + 1, place - low, slope)]


def _cubic_taps(t: Any) -> list[tuple[Any, Any]]:
    """The weights of four taps around a point at t of 0 to 1 after the second, and their slopes:
    the cubic filter with the coefficient -0.75."""
    a = -0.75

    def near(d: Any) -> tuple[Any, Any]:
        return ((a + 2) * d - (a + 3)) * d * d + 1, (3 * (a + 2) * d - 2 * (a + 3)) * d

    def far(d: Any) -> tuple[Any, Any]:
        return (((d - 5) * d + 8) * d - 4) * a, ((3 * d - 10) * d + 8) * a

    found = [far(t + 1), near(t), near(1 - t), far(2 - t)]
    return [(w, s if k < 2 else -s) for k, (w, s) in enumerate(found)]
