"""Resize and its forerunner Upsample.

Scales are given with the sizes to follow from them, or sizes with the scales to follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

import numpy as np

from compiler.frontend.onnx.faults import Fault
from compiler.frontend.onnx.node import Node, as_written
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.values import Value
from dialects.expr import Expr, Size
from dialects.graph.resize import ResizeOp
from dialects.types import LiteralAttr

T = TypeVar("T")

_DEFAULTS = {"antialias": 0, "exclude_outside": 0}
_COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel",
                "half_pixel_symmetric")


# ---------------------------------------------------------------------- the versions
@onnx_op("Upsample")
def upsample_by_attribute(n: Node, x: Value) -> Value:
    return _upsample(n, x, n.floats("scales"))


@onnx_op("Upsample", since=9)
@onnx_op("Resize", since=10)
def upsample(n: Node, x: Value, scales: Value) -> Value:
    return _upsample(n, x, _floats(n, scales))


def _upsample(n: Node, x: Value, scales: Sequence[float]) -> Value:
    """Before opset 11: asymmetric coordinates, rounded down where the result is the larger."""
    larger, smaller = max(scales, default=1) > 1, min(scales, default=1) < 1
    mode = n.text("mode", "nearest")
    if larger and smaller and mode == "nearest":
        raise Fault(f"scales {list(scales)} below and above 1 at once are not supported",
                    "convert the model to opset 11 or later")
    nearest = "ceil" if smaller else "floor"
    return _resize(n, x, None, scales, mode, "asymmetric", nearest)


@onnx_op("Resize", since=11)
def resize(
    n: Node, x: Value, roi: Value | None = None, scales: Value | None = None,
    sizes: Value | None = None,
) -> Value:
    _check_plain(n)
    axes = [n.axis(a, x.rank) for a in n.ints("axes", range(x.rank))]
    factors: list[float] | None = None
    shape: list[Expr] | None = None
    if scales is not None and scales.type.count.constant != 0:
        factors = [1.0] * x.rank
        _place(factors, axes, _floats(n, scales), "scales")
    elif sizes is not None:
        shape = list(x.shape)
        _place(shape, axes, n.known_sizes(sizes, "sizes"), "sizes")
        shape, factors = _keep_aspect(n, x, shape, axes)
    else:
        raise Fault("neither scales nor sizes are given")
    return _resize(n, x, shape, factors, n.text("mode", "nearest"),
                   n.text("coordinate_transformation_mode", "half_pixel"),
                   n.text("nearest_mode", "round_prefer_floor"))


def _check_plain(n: Node) -> None:
    """Raise Fault for the variants that `graph.resize` does not have."""
    for name, default in _DEFAULTS.items():
        if n.integer(name, default) != default:
            raise Fault(f"{name} = {n.integer(name)} is not supported")
    if n.text("mode") == "cubic" and n.real("cubic_coeff_a", -0.75) != -0.75:
        raise Fault("a cubic_coeff_a other than -0.75 is not supported")
    coordinates = n.text("coordinate_transformation_mode", "half_pixel")
    if coordinates not in _COORDINATES:
        raise Fault(f"coordinate_transformation_mode '{coordinates}' is not supported",
                    f"supported are {', '.join(_COORDINATES)}")


def _place(into: list[T], axes: Sequence[int], values: Sequence[T], what: str) -> None:
    """Put values at their axes."""
    if len(values) != len(axes):
        raise Fault(f"{len(values)} {what} are given for {len(axes)} axes")
    for axis, value in zip(axes, values, strict=True):
        into[axis] = value


def _floats(n: Node, scales: Value) -> list[float]:
    return [as_written(s) for s in n.known_numbers(scales, "scales").reshape(-1)]


# ---------------------------------------------------------------------- sizes and scales
def _keep_aspect(
    n: Node, x: Value, shape: list[Expr], axes: Sequence[int]
) -> tuple[list[Expr], list[float] | None]:
    """With keep_aspect_ratio_policy, one scale for all axes, and the sizes that it gives."""
    policy = n.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return shape, None
    wanted = n.known_ints(n.of_sizes([shape[a] for a in axes]), "sizes")
    given = n.known_ints(n.of_sizes([x.shape[a] for a in axes]), "input sizes")
    choose = min if policy == "not_larger" else max
    scale = choose(w / g for w, g in zip(wanted, given, strict=True))
    factors = [scale if k in axes else 1.0 for k in range(x.rank)]
    kept = [Expr.of(int(scale * given[axes.index(k)] + 0.5)) if k in axes else s
            for k, s in enumerate(x.shape)]
    return kept, factors


def _resize(
    n: Node, x: Value, shape: Sequence[Size] | None, scales: Sequence[float] | None, mode: str,
    coordinates: str, nearest: str,
) -> Value:
    if scales is not None and len(scales) != x.rank:
        raise Fault(f"{len(scales)} scales are given for {x.rank} dims")
    if shape is None:
        shape = [_scaled(s, f) for s, f in zip(x.shape, scales or (), strict=True)]
    if x.shape == tuple(shape) and all(f == 1.0 for f in scales or ()):
        return x
    return n(ResizeOp, x, shape=list(shape), scales=LiteralAttr(tuple(scales or ())),
             mode=mode, coordinates=coordinates, nearest=nearest)


def _scaled(size: Expr, scale: float) -> Expr:
    """floor(size * scale), in f32 where the size is known, as runtimes compute it."""
    if scale <= 0:
        raise Fault(f"the scale {scale} is not positive")
    if size.constant is not None:
        return Expr.of(int(np.floor(np.float32(size.constant) * np.float32(scale))))
    simple = Fraction(scale).limit_denominator(4096)
    exact = simple if np.float32(float(simple)) == np.float32(scale) else Fraction(scale)
    return (size * exact.numerator) // exact.denominator
