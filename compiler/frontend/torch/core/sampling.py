"""Decompositions of resampling: antialiased resizing, and volumes sampled at a grid.

Antialiasing weighs all elements under a filter that is as wide as the scale: a matrix for each
axis, which depends on sizes alone.
Source: aten/src/ATen/native/cpu/UpSampleKernel.cpp and GridSampler.h, for what they compute.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

from compiler.frontend.torch.library import torch_module

ZEROS, BORDER, REFLECTION = 0, 1, 2


def sampling_decompositions() -> dict[Any, Any]:
    """Operator -> function."""
    aten = torch_module().ops.aten
    return {aten._upsample_bilinear2d_aa.default: partial(antialiased, _linear, 2),
            aten._upsample_bicubic2d_aa.default: partial(antialiased, _cubic, 4),
            aten.grid_sampler_3d.default: grid_sampler_3d}


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
    place = (c + 1) / 2 * (size - 1) if align_corners else ((c + 1) * size - 1) / 2
    if padding == REFLECTION:
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        if isinstance(span, int) and span == 0:
            return place * 0
        away = (place - low).abs()
        turns, rest = (away / span).floor(), away % span
        place = torch_module().where(turns % 2 == 0, rest + low, span - rest + low)
    return place if padding == ZEROS else place.clamp(0, size - 1)


def _taken(flat: Any, places: list[Any], sizes: Any) -> Any:
    """Elements [n, c, ...] at whole positions [n, ...] of each axis; 0 outside."""
    torch = torch_module()
    inside = torch.ones((), dtype=torch.bool, device=flat.device)
    index = torch.zeros((), dtype=torch.int64, device=flat.device)
    for p, size in zip(places, sizes, strict=True):
        inside = inside & (p >= 0) & (p <= size - 1)
        index = index * size + p.clamp(0, size - 1).nan_to_num().to(torch.int64)
    wanted = index.shape[1:]
    rows = index.flatten(1).unsqueeze(1).expand(flat.shape[0], flat.shape[1], -1)
    found = flat.gather(2, rows).unflatten(2, wanted)
    return torch.where(inside.unsqueeze(1), found, 0.0)
