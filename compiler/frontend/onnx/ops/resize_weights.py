"""Rare variants of Resize, as weighted sums along each dim.

These are antialiasing, excluded borders, other cubic coefficients, crops, and aligned corners with
scales that do not give whole sizes. The weights are those of ONNX's definition, for constant sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.onnx.node import Node
from compiler.frontend.values import Value
from dialects.strata import types as t
from dialects.strata.types import Array

LEAST = 1e-10
"""Smaller weights are rounding errors of coordinates, below the precision of f32; they become 0."""


@dataclass(frozen=True)
class Weights:
    """The parameters of the weights with which elements along one dim contribute to results."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    antialias: bool
    exclude_outside: bool

    def matrix(
        self, size: int, wanted: int, scale: float, region: tuple[float, float]
    ) -> tuple[Array, Array]:
        """The weights [wanted, size], and which results lie outside of a crop."""
        where = self._places(size, wanted, scale, region)
        result = np.zeros((wanted, size))
        for row, place in enumerate(where):
            base = int(np.ceil(place)) - 1  # so that the fraction is in (0, 1]
            steps, weights = self._taps(place - base, scale)
            indices = base + steps
            if self.exclude_outside:
                weights = np.where((indices >= 0) & (indices < size), weights, 0.0)
                weights = weights / weights.sum()
            np.add.at(result[row], np.clip(indices, 0, size - 1), weights)
        result[np.abs(result) < LEAST] = 0.0
        crop = self.coordinates == "tf_crop_and_resize"
        return result, crop & ((where < 0) | (where > size - 1))

    def _places(
        self, size: int, wanted: int, scale: float, region: tuple[float, float]
    ) -> Array:
        """The coordinates of the results among the elements."""
        p, width = np.arange(wanted, dtype=np.float64), scale * size
        match self.coordinates:
            case "align_corners":
                return p * (size - 1) / (width - 1) if width != 1 else 0 * p
            case "asymmetric":
                return p / scale
            case "tf_crop_and_resize":
                start, end = region
                middle = (end - start) * (size - 1) / 2
                inner = p * (end - start) * (size - 1) / (width - 1) if width != 1 else middle
                return inner + start * (size - 1) + 0 * p
            case "pytorch_half_pixel" if width == 1:
                return 0 * p - 0.5
            case "half_pixel_symmetric":
                return size / 2 * (1 - wanted / width) + (p + 0.5) / scale - 0.5
            case _:
                return (p + 0.5) / scale - 0.5

    def _taps(self, fraction: float, scale: float) -> tuple[Array, Array]:
        """The offsets from the element before a coordinate, and their weights."""
        if self.mode == "nearest":
            upper = {"floor": fraction == 1, "ceil": True, "round_prefer_ceil": fraction >= 0.5}
            return np.arange(2), np.eye(2)[int(upper.get(self.nearest, fraction > 0.5))]
        reach, narrow = (1 if self.mode == "linear" else 2), min(scale, 1.0)
        if not self.antialias:
            narrow = 1.0
        first = int(np.floor(-reach / narrow)) + 1
        steps = np.arange(first, 2 - first)
        weights = self._kernel(np.abs(steps - fraction) * narrow)
        return steps, weights / weights.sum() if self.antialias else weights

    def _kernel(self, d: Array) -> Array:
        """The weight at a distance."""
        if self.mode == "linear":
            return np.clip(1 - d, 0, 1)
        a = self.cubic
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def resize_by_weights(
    n: Node, x: Value, wanted: Sequence[int], scales: Sequence[float],
    regions: Sequence[tuple[float, float]], weights: Weights, extrapolation: float,
) -> Value:
    """x resized along each dim in turn, computed in floats."""
    sizes = n.known_ints(n.of_sizes(x.shape), "sizes")
    wide = x.element if t.byte_width(x.element) > 2 and t.is_float(x.element) else t.f32
    value, outside = x.cast(wide), np.zeros([1] * x.rank, bool)
    for axis, (size, count, scale, region) in enumerate(
            zip(sizes, wanted, scales, regions, strict=True)):
        crop = weights.coordinates == "tf_crop_and_resize" and region != (0.0, 1.0)
        if size == count and scale == 1.0 and not crop:
            continue
        matrix, beyond = weights.matrix(size, count, scale, region)
        outside = outside | beyond.reshape([-1 if k == axis else 1 for k in range(x.rank)])
        value = _mixed(n, value, axis, matrix)
    if outside.any():
        value = f.where(n.constant(outside), extrapolation, value)
    return value.cast(x.element)


def _mixed(n: Node, x: Value, axis: int, matrix: Array) -> Value:
    """x times a matrix [wanted, size] along an axis. Only elements with a weight are read.

    A product with the whole matrix would turn each infinity of weight 0 into NaN.
    """
    most = max(1, int(np.count_nonzero(matrix, axis=1).max(initial=0)))
    places = np.argsort(matrix == 0, axis=1, kind="stable")[:, :most]  # those with a weight first
    weights = np.take_along_axis(matrix, places, axis=1)
    shape = [*weights.shape, *[1] * (x.rank - 1 - axis)]
    parts = f.gather(x, n.constant(places.astype(np.int64)), axis)
    products = parts * n.constant(weights.reshape(shape).astype(x.type.dtype))
    if (weights == 0).any():
        there = n.constant((weights != 0).reshape(shape))
        products = f.where(there, products, 0)
    return f.reduce_sum(products, [axis + 1])
