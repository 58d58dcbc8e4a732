"""Resize and its predecessor Upsample.

A node has either scales, from which the sizes follow, or sizes, from which the scales follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from typing import TypeVar

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node, as_written
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.ops.resize_lines import COORDINATES, Line
from compiler.frontend.onnx.ops.resize_sums import SMALLER_UP, Kernel, resize_by_sums
from compiler.frontend.values import Value
from dialects.graph.resize import ResizeOp
from dialects.strata import types as t
from dialects.strata.types import LiteralAttr
from dialects.symbolic.expr import Expr, maximum, minimum

T = TypeVar("T")

Scale = float | Value | None
"""A factor: known, known only at run time, or that of the sizes."""

MAX_SCALE = 2.0**20


# ---------------------------------------------------------------------- the versions
@onnx_op("Upsample")
def upsample_of_image(n: Node, x: Value) -> Value:
    return _upsample(n, x, [1, 1, n.real("height_scale"), n.real("width_scale")])


@onnx_op("Upsample", since=7)
def upsample_by_attribute(n: Node, x: Value) -> Value:
    return _upsample(n, x, n.floats("scales"))


@onnx_op("Upsample", since=9)
@onnx_op("Resize", since=10)
def upsample(n: Node, x: Value, scales: Value) -> Value:
    return _upsample(n, x, _factors(n, n.counted(scales, x.rank)))


def _upsample(n: Node, x: Value, scales: Sequence[float | Value]) -> Value:
    """Resampling before opset 11, with asymmetric coordinates.

    Mode nearest rounds them up along dims that become smaller, and down along others.
    """
    mode = n.text("mode", "nearest")
    lines = _by_scales(n, x, range(x.rank), scales)
    smaller = [line for line in lines if isinstance(line.scale, float) and line.scale < 1]
    unknown = [line for line in lines if isinstance(line.scale, Value)]
    kernel = Kernel("linear" if mode == "bilinear" else mode, "asymmetric", "floor", -0.75,
                    antialias=False, exclude_outside=False)
    if mode != "nearest":
        return _resample(n, x, lines, kernel)
    larger = [line for line in lines if line not in smaller and line not in unknown]
    for part, rule in ((larger, "floor"), (smaller, "ceil"), (unknown, SMALLER_UP)):
        x = _resample(n, x, part, replace(kernel, nearest=rule))
    return x


@onnx_op("Resize", since=11)
def resize(
    n: Node, x: Value, roi: Value | None = None, scales: Value | None = None,
    sizes: Value | None = None,
) -> Value:
    axes = [n.axis(a, x.rank) for a in n.ints("axes", range(x.rank))]
    if scales is not None and scales.type.count.constant != 0:
        lines = _by_scales(n, x, axes, _factors(n, n.counted(scales, len(axes))))
    elif sizes is not None:
        lines = _by_sizes(n, x, axes, n.known_sizes(sizes, "sizes", len(axes)))
    else:
        raise Fault("neither scales nor sizes are given")
    kernel = _kernel(n)
    if kernel.coordinates == "tf_crop_and_resize" and roi is not None:
        lines = _with_regions(n, axes, lines, roi)
    return _resample(n, x, lines, kernel, n.real("extrapolation_value"))


def _kernel(n: Node) -> Kernel:
    coordinates = n.text("coordinate_transformation_mode", "half_pixel")
    if coordinates not in COORDINATES:
        raise Fault(f"coordinate_transformation_mode '{coordinates}' is not supported",
                    f"supported are {', '.join(COORDINATES)}")
    mode = n.text("mode", "nearest")
    return Kernel(mode, coordinates, n.text("nearest_mode", "round_prefer_floor"),
                  n.real("cubic_coeff_a", -0.75), n.flag("antialias") and mode != "nearest",
                  n.flag("exclude_outside") and mode != "nearest")


# ---------------------------------------------------------------------- lines
def _factors(n: Node, scales: Value) -> list[float | Value]:
    """The scales, as numbers if they are known."""
    if scales.array is not None:
        return [as_written(s) for s in scales.array.reshape(-1)]
    count = scales.type.count.constant
    if count is None:
        return [as_written(s) for s in n.known_numbers(scales, "scales")]
    flat = scales.reshape([count])
    return [flat.part(0, k, 1).reshape([]) for k in range(count)]


def _by_scales(
    n: Node, x: Value, axes: Sequence[int], scales: Sequence[float | Value]
) -> list[Line]:
    _require_as_many(scales, axes, "scales")
    lines: list[Line] = []
    for axis, scale in zip(axes, scales, strict=True):
        size = x.shape[axis]
        if isinstance(scale, Value):
            wide = n.of_size(size).cast(t.f32) * scale.cast(t.f32)
            wanted = n.known_sizes(f.floor(wide).cast(t.i64), "size")[0]
            lines.append(Line(axis, size, wanted, scale))
            continue
        if not 1 / MAX_SCALE <= scale <= MAX_SCALE:
            raise Fault(f"the scale {scale} is not between {1 / MAX_SCALE} and {MAX_SCALE}")
        lines.append(Line(axis, size, _scaled(size, scale), float(scale)))
    return lines


def _by_sizes(n: Node, x: Value, axes: Sequence[int], sizes: Sequence[Expr]) -> list[Line]:
    _require_as_many(sizes, axes, "sizes")
    policy = n.text("keep_aspect_ratio_policy", "stretch")
    given = [x.shape[a] for a in axes]
    scale: Scale = None
    if policy != "stretch":
        sizes, scale = _kept_aspect(n, given, sizes, policy)
    return [Line(*row, scale) for row in zip(axes, given, sizes, strict=True)]


def _with_regions(n: Node, axes: Sequence[int], lines: Sequence[Line], roi: Value) -> list[Line]:
    """The lines with their parts of the region of interest: all starts, then all ends."""
    count = len(axes)
    roi = n.counted(roi, 2 * count)
    if roi.type.count.constant not in (2 * count, None):
        raise Fault(f"{roi.type.count} regions are given for {count} axes; there must be two each")
    bounds = roi.reshape([2 * count]).cast(t.wide_element(roi.element))
    ends = [bounds.part(0, k, 1).reshape([]) for k in range(2 * count)]
    return [replace(line, region=_part_of(ends[k], ends[k + count]))
            for k, line in enumerate(lines)]


def _part_of(start: Value, end: Value) -> tuple[Value, Value] | None:
    """A region; None if it is known to be all of the dim."""
    known = [v.array is not None and float(v.array) == whole
             for v, whole in ((start, 0), (end, 1))]
    return None if all(known) else (start, end)


def _require_as_many(values: Sequence[object], axes: Sequence[int], what: str) -> None:
    if len(values) != len(axes):
        raise Fault(f"{len(values)} {what} are given for {len(axes)} axes")


# ---------------------------------------------------------------------- sizes and scales
def _kept_aspect(
    n: Node, given: Sequence[Expr], wanted: Sequence[Expr], policy: str
) -> tuple[list[Expr], Scale]:
    """One scale for all axes, the smallest or the largest, and the sizes that it gives."""
    least = policy == "not_larger"
    if not given or any(e.constant is not None and e.constant < 1 for e in (*given, *wanted)):
        raise Fault(f"keep_aspect_ratio_policy needs sizes of at least 1, but resizes "
                    f"{_text(given)} to {_text(wanted)}")
    if all(e.constant is not None for e in (*given, *wanted)):
        ratios = [(w.constant or 0) / (g.constant or 1) for w, g in zip(wanted, given, strict=True)]
        scale = min(ratios) if least else max(ratios)
        return [Expr.of(int(scale * (g.constant or 0) + 0.5)) for g in given], scale
    for size in given:
        n.build.assume(1, "<=", size)
    choose, pick = (minimum, f.minimum) if least else (maximum, f.maximum)
    kept = [reduce(choose, [(w * size * 2 + g) // (g * 2)  # w * size / g, rounded to the nearest
                            for w, g in zip(wanted, given, strict=True)]) for size in given]
    ratios_at_run = [n.of_size(w).cast(t.f64) / n.of_size(g).cast(t.f64)
                     for w, g in zip(wanted, given, strict=True)]
    return kept, reduce(pick, ratios_at_run)


def _text(sizes: Sequence[Expr]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


# ---------------------------------------------------------------------- resampling
def _resample(
    n: Node, x: Value, lines: Sequence[Line], kernel: Kernel, outside: float = 0.0
) -> Value:
    lines = [line for line in lines if line.changes]
    if not lines:
        return x
    if any(_is_rare(line, x, kernel) for line in lines):
        return resize_by_sums(n, x, lines, kernel, outside)
    shape, scales = list(x.shape), [1.0] * x.rank
    for line in lines:
        shape[line.axis] = line.wanted
        scales[line.axis] = line.scale if isinstance(line.scale, float) else 1.0
    known = all(isinstance(line.scale, float) for line in lines)
    return n(ResizeOp, x, shape=shape, scales=LiteralAttr(tuple(scales) if known else ()),
             mode=kernel.mode, coordinates=kernel.coordinates, nearest=kernel.nearest)


def _is_rare(line: Line, x: Value, kernel: Kernel) -> bool:
    """Whether `graph.resize` lacks what a line needs."""
    mode = kernel.mode
    return (isinstance(line.scale, Value) or kernel.coordinates == "tf_crop_and_resize"
            or (mode != "nearest" and not t.is_float(x.element))
            or (mode == "cubic" and (kernel.cubic != -0.75 or kernel.exclude_outside))
            or (kernel.antialias and _may_shrink(line))
            or (mode != "nearest" and kernel.coordinates == "align_corners" and _is_partial(line)))


def _may_shrink(line: Line) -> bool:
    if isinstance(line.scale, float):
        return line.scale < 1
    before, after = line.size.constant, line.wanted.constant
    return line.size != line.wanted and (before is None or after is None or after < before)


def _is_partial(line: Line) -> bool:
    """Whether a factor may give a line a width that is no whole number."""
    if not isinstance(line.scale, float) or line.scale.is_integer():
        return False
    return line.size.constant is None or line.size.constant * line.scale != line.wanted.constant


def _scaled(size: Expr, scale: float) -> Expr:
    """floor(size * scale), computed in f32 if the size is constant, as runtimes do."""
    if size.constant is not None:
        return Expr.of(int(np.floor(np.float32(size.constant) * np.float32(scale))))
    simple = Fraction(scale).limit_denominator(4096)
    stored = np.float32(scale)
    exact = simple if np.float32(float(simple)) == stored else Fraction(float(stored))
    return (size * exact.numerator) // exact.denominator
