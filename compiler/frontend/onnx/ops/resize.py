"""Resize and its predecessor Upsample.

A node has either scales, from which the sizes follow, or sizes, from which the scales follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

import numpy as np

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node, as_written
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.ops.resize_weights import Weights, resize_by_weights
from compiler.frontend.values import Value
from dialects.graph.resize import ResizeOp
from dialects.strata.types import LiteralAttr
from dialects.symbolic.expr import Expr, Size

T = TypeVar("T")

_COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel",
                "half_pixel_symmetric", "tf_crop_and_resize")

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
    return _upsample(n, x, _floats(n, scales))


def _upsample(n: Node, x: Value, scales: Sequence[float]) -> Value:
    """Resampling before opset 11, with asymmetric coordinates.

    Mode nearest rounds them up if the result is smaller, and down otherwise.
    """
    _check_scales(scales)
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
    axes = [n.axis(a, x.rank) for a in n.ints("axes", range(x.rank))]
    factors: list[float] | None = None
    shape: list[Expr] | None = None
    if scales is not None and scales.type.count.constant != 0:
        factors = [1.0] * x.rank
        _place(factors, axes, _floats(n, scales), "scales")
        _check_scales(factors)
    elif sizes is not None:
        shape = list(x.shape)
        _place(shape, axes, n.known_sizes(sizes, "sizes"), "sizes")
        shape, factors = _keep_aspect(n, x, shape, axes)
    else:
        raise Fault("neither scales nor sizes are given")
    rare = _by_weights(n, x, shape, factors, roi, axes)
    if rare is not None:
        return rare
    return _resize(n, x, shape, factors, n.text("mode", "nearest"),
                   n.text("coordinate_transformation_mode", "half_pixel"),
                   n.text("nearest_mode", "round_prefer_floor"))


def _weights(n: Node, x: Value, shape: Sequence[Expr], scales: Sequence[float]) -> Weights | None:
    """The weights of a variant that `graph.resize` does not support; None if it does."""
    coordinates = n.text("coordinate_transformation_mode", "half_pixel")
    mode, cubic = n.text("mode", "nearest"), n.real("cubic_coeff_a", -0.75)
    if coordinates not in _COORDINATES:
        raise Fault(f"coordinate_transformation_mode '{coordinates}' is not supported",
                    f"supported are {', '.join(_COORDINATES)}")
    antialias = n.flag("antialias") and mode != "nearest" and min(scales, default=1.0) < 1
    partial = coordinates == "align_corners" and mode != "nearest" and any(
        s.constant is not None and w.constant is not None and s.constant * f != w.constant
        for s, w, f in zip(x.shape, shape, scales, strict=False))
    rare = (antialias, partial, n.flag("exclude_outside") and mode == "cubic",
            mode == "cubic" and cubic != -0.75, coordinates == "tf_crop_and_resize")
    if not any(rare):
        return None
    return Weights(mode, coordinates, n.text("nearest_mode", "round_prefer_floor"), cubic,
                   antialias, n.flag("exclude_outside"))


def _by_weights(
    n: Node, x: Value, shape: Sequence[Expr] | None, scales: Sequence[float] | None,
    roi: Value | None, axes: Sequence[int],
) -> Value | None:
    """The result of a variant that `graph.resize` does not support; None if it does."""
    wanted = shape or [_scaled(s, scale) for s, scale in zip(x.shape, scales or (), strict=True)]
    weights = _weights(n, x, wanted, scales or [
        _ratio(s, w) for s, w in zip(x.shape, wanted, strict=True)])
    if weights is None:
        return None
    sizes, counts = (n.known_ints(n.of_sizes(v), "sizes") for v in (x.shape, wanted))
    factors = scales or [c / s for c, s in zip(counts, sizes, strict=True)]
    regions = [(0.0, 1.0)] * x.rank
    if weights.coordinates == "tf_crop_and_resize" and roi is not None:
        bounds = n.known_numbers(roi, "region").astype(np.float64).reshape(2, -1)
        _place(regions, axes, [(float(a), float(b)) for a, b in bounds.T], "regions")
    return resize_by_weights(n, x, counts, factors, regions, weights,
                             n.real("extrapolation_value"))


def _ratio(size: Expr, wanted: Expr) -> float:
    """wanted / size. An unknown ratio is 0.5, since it may be below 1, which antialiasing depends
    on.
    """
    if size == wanted:
        return 1.0
    before, after = size.constant, wanted.constant
    return after / before if before and after is not None else 0.5


def _place(into: list[T], axes: Sequence[int], values: Sequence[T], what: str) -> None:
    """Store values at their axes. Raises Fault if their numbers differ."""
    if len(values) != len(axes):
        raise Fault(f"{len(values)} {what} are given for {len(axes)} axes")
    for axis, value in zip(axes, values, strict=True):
        into[axis] = value


def _floats(n: Node, scales: Value) -> list[float]:
    return [as_written(s) for s in n.known_numbers(scales, "scales").reshape(-1)]


def _check_scales(scales: Sequence[float]) -> None:
    """Raise Fault for a scale that is NaN, or not between 1 / MAX_SCALE and MAX_SCALE."""
    for scale in scales:
        if not 1 / MAX_SCALE <= scale <= MAX_SCALE:
            raise Fault(f"the scale {scale} is not between {1 / MAX_SCALE} and {MAX_SCALE}")


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
    if not axes or min(given) < 1 or min(wanted) < 1:
        raise Fault(f"keep_aspect_ratio_policy needs sizes of at least 1, but resizes {given} to "
                    f"{wanted}")
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
        shape = [_scaled(s, scale) for s, scale in zip(x.shape, scales or (), strict=True)]
    if x.shape == tuple(shape) and all(scale == 1.0 for scale in scales or ()):
        return x
    return n(ResizeOp, x, shape=list(shape), scales=LiteralAttr(tuple(scales or ())),
             mode=mode, coordinates=coordinates, nearest=nearest)


def _scaled(size: Expr, scale: float) -> Expr:
    """floor(size * scale), computed in f32 if the size is constant, as runtimes do."""
    if size.constant is not None:
        return Expr.of(int(np.floor(np.float32(size.constant) * np.float32(scale))))
    simple = Fraction(scale).limit_denominator(4096)
    stored = np.float32(scale)
    exact = simple if np.float32(float(simple)) == stored else Fraction(float(stored))
    return (size * exact.numerator) // exact.denominator
