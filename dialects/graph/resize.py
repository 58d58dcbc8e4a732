"""Resampling a tensor to other sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import StringAttr
from xdsl.irdl import operand_def, opt_prop_def, prop_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, GraphOp, ShapeError, literal_of, sizes_of, text_of
from dialects.graph.inference import ANY, FLOATS, check_kind
from dialects.semantics.carriers import as_in
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import rounded, widen
from dialects.strata.types import Array, LiteralAttr, SizesAttr, TensorType, tensor

_CHOICES = {
    "mode": ("nearest", "linear", "cubic"),
    "coordinates": ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel",
                    "half_pixel_symmetric"),
    "nearest": ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"),
}
_CUBIC = -0.75
"""The cubic coefficient of ONNX and PyTorch."""


@irdl_op_definition
class ResizeOp(GraphOp):
    """Resamples each dim to the sizes in `shape`, one dim after the other.

    The coordinate c in x of result element p, for a dim of size s made t long, with the factor f
    from `scales`, or t / s where `scales` is empty:
      half_pixel (p + 0.5)/f - 0.5; asymmetric p/f; align_corners p*(s - 1)/(t - 1), or 0 if t is 1;
      pytorch_half_pixel as half_pixel, or 0 if t is 1;
      half_pixel_symmetric (s - 1)/2 + (p - (t - 1)/2)/f, which is exact in the middle.
    nearest takes the element at c, rounded according to `nearest`; linear interpolates the two
    elements around c, or takes the last element twice with the weight 0.5; cubic interpolates four,
    with the coefficient -0.75. Positions outside x read x's border element. A dim with the factor 1
    whose size does not change is left as it is. Coordinates are computed in f64. f16 and bf16 are
    computed in f32 and rounded once.
    Constraints: (C1) mode and coordinates have one of the values above, and nearest is one of
    floor, ceil, round_prefer_floor, round_prefer_ceil; (C2) shape, and scales unless empty, have
    one entry per dim, scales positive; (C3) elements are floats, or any for nearest.
    Source: ONNX Resize, Upsample.
    Example: %y = graph.resize %x {shape = [n, 3, 2*h], scales = literal[1.0, 1.0, 2.0],
        mode = "linear", coordinates = "half_pixel", nearest = "floor"} : f32[n, 3, 2*h]
        given %x: f32[n, 3, h]
    """

    name = "graph.resize"
    x = operand_def(TensorType)
    shape = prop_def(SizesAttr)
    scales = prop_def(LiteralAttr)
    mode = prop_def(StringAttr)
    coordinates = prop_def(StringAttr)
    nearest = opt_prop_def(StringAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        for name, allowed in _CHOICES.items():
            if text_of(attributes, name, "floor") not in allowed:
                raise ShapeError(f"C1: {name} must be one of {', '.join(allowed)}")
        shape, scales = sizes_of(attributes, "shape"), literal_of(attributes, "scales")
        if len(shape) != types[0].rank or len(scales) not in (0, types[0].rank):
            raise ShapeError(f"C2: shape and scales need {types[0].rank} entries each")
        if any(scale <= 0 for scale in scales):
            raise ShapeError(f"C2: the scales {list(scales)} are not all positive")
        check_kind(ANY if text_of(attributes, "mode") == "nearest" else FLOATS,
                   types[0].element, "C3")
        return [tensor(types[0].element, shape)]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x, shape = widen(operands[0]), context.ints(self.shape)
        if 0 in shape:
            return np.zeros(shape, operands[0].dtype)
        scales: Sequence[float | None] = self.scales.data or [None] * x.ndim
        for axis, (size, scale) in enumerate(zip(shape, scales, strict=True)):
            if x.shape[axis] != size or scale not in (None, 1.0):
                x = self._resample(x, axis, size, scale)
        return rounded(x, self.result_tensors[0])

    def _resample(self, x: Array, axis: int, size: int, scale: float | None) -> Array:
        where = source_coordinates(self.coordinates.data, x.shape[axis], size, scale)
        if self.mode.data == "nearest":
            rule = text_of(self.properties, "nearest", "floor")
            return np.take(x, _clamped(rounded_coordinates(where, rule), x.shape[axis]), axis)
        taps = _linear_taps if self.mode.data == "linear" else _cubic_taps
        spread = (-1, *(1,) * (x.ndim - 1 - axis))
        shape = (*x.shape[:axis], size, *x.shape[axis + 1:])
        total = as_in(np.zeros(shape, x.dtype), x)
        for position, weight in taps(where, x.shape[axis]):
            total += np.take(x, position, axis) * weight.astype(x.dtype).reshape(spread)
        return total


def source_coordinates(mode: str, source: int, size: int, scale: float | None) -> Array:
    """The f64 coordinates of `size` result elements in a dim of `source` elements."""
    p = np.arange(size, dtype=np.float64)
    over, under = (source, size) if scale is None else (1.0, scale)
    if mode == "asymmetric":
        return p * over / under
    if mode == "align_corners":
        return p * (source - 1) / max(size - 1, 1)
    if mode == "pytorch_half_pixel" and size == 1:
        return p
    if mode == "half_pixel_symmetric" and scale is not None:
        return (source - 1) / 2 + (p - (size - 1) / 2) / scale  # whole in the middle
    return (p + 0.5) * over / under - 0.5


def rounded_coordinates(where: Array, rule: str) -> Array:
    """Coordinates as whole numbers, by one of ONNX's rules."""
    if rule == "round_prefer_floor":
        return np.ceil(where - 0.5)
    if rule == "round_prefer_ceil":
        return np.floor(where + 0.5)
    return np.floor(where) if rule == "floor" else np.ceil(where)


def _clamped(position: Array, source: int) -> Array:
    return np.clip(position.astype(np.int64), 0, source - 1)


def _linear_taps(where: Array, source: int) -> list[tuple[Array, Array]]:
    """(positions, weights) of the elements that linear interpolation combines."""
    inside = np.clip(where, 0, source - 1)
    low = np.floor(inside)
    fraction = np.where(low == source - 1, 0.5, inside - low)  # the last element, twice
    return [(_clamped(low, source), 1 - fraction), (_clamped(low + 1, source), fraction)]


def _cubic_taps(where: Array, source: int) -> list[tuple[Array, Array]]:
    """(positions, weights) of the elements that cubic interpolation combines."""
    low = np.floor(where)
    return [(_clamped(low + k, source), _cubic_weight(np.abs(where - low - k)))
            for k in (-1, 0, 1, 2)]


def _cubic_weight(distance: Array) -> Array:
    d, a = distance, _CUBIC
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, far)
