"""Variants of Resize that `graph.resize` lacks, as weighted sums along each dim in turn.

    y[.., p, ..] = sum over k of weight[p, k] * x[.., place[p, k], ..]

These are antialiasing, excluded borders, other cubic coefficients, crops, aligned corners with
widths that are no whole numbers, factors known only at run time, and integers. The weights are
those of ONNX's definition, in f64. Integers are mixed in f64, rounded to the nearest, ties to even,
and cut to their range, as ONNX defines it. A sum that is a tie but for the rounding of f64 is one,
so that no order of terms decides. Bytes and i32 with plain linear interpolation are those of
onnxruntime instead: mixed in f32, and truncated.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import ceil

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.resize_lines import Line, coordinates
from compiler.frontend.values import Value
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, maximum

LEAST = 1e-10
"""Smaller weights are rounding errors of coordinates, below the precision of f32; they become 0."""

GRAIN = 2.0**-32
"""Sums are exact to this, for bytes: a finer difference from a tie is the rounding of f64."""

SMALLER_UP = "ceil_where_smaller"
"""A rule for the nearest element, of old versions: up along dims that become smaller, else down."""

TRUNCATED = (t.i8, t.ui8, t.i32)
"""The integers of which onnxruntime has linear interpolation."""


@dataclass(frozen=True)
class Kernel:
    """How elements along one dim contribute to results."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    antialias: bool
    exclude_outside: bool

    @property
    def reach(self) -> int:
        """The distance from which on an element has no weight."""
        return 1 if self.mode == "linear" else 2

    def weight(self, distance: Value) -> Value:
        """The weight of an element at a distance."""
        d, a = distance, self.cubic
        if self.mode == "linear":
            return f.maximum(1 - d, 0)
        near = (d * (a + 2) - (a + 3)) * d * d + 1
        far = ((d * a - 5 * a) * d + 8 * a) * d - 4 * a
        return f.where(d <= 1, near, f.where(d < 2, far, 0))


def resize_by_sums(
    n: Node, x: Value, lines: Sequence[Line], kernel: Kernel, outside: float
) -> Value:
    """x resampled along the lines; `outside`: the value of results outside of a crop's x."""
    is_nearest, outside = kernel.mode == "nearest", _within_range(x, outside)
    places = [(line, coordinates(n, line, kernel.coordinates, whole=is_nearest))
              for line in lines]
    if is_nearest:
        value = x
        for line, where in places:
            value = f.gather(value, _nearest(n, line, where, kernel.nearest), line.axis)
        whole = outside if t.is_float(x.element) else float(np.round(outside))
        return _filled(n, value, places, kernel, whole)
    if kernel.mode == "linear" and not kernel.antialias and x.element in TRUNCATED:
        return _truncated(n, x, lines, kernel, outside)
    value = x.cast(_wide(x))
    for line, where in places:
        value = _mixed(n, value, line, where, kernel)
    return _as_type_of(x, _filled(n, value, places, kernel, outside))


def _wide(x: Value) -> t.Attribute:
    """The type in which elements are mixed."""
    return t.wide_element(x.element) if t.is_float(x.element) else t.f64


def _within_range(x: Value, number: float) -> float:
    """A number, cut to the range of x's elements if these are integers."""
    if t.is_float(x.element):
        return number
    info = np.iinfo(x.type.dtype)
    return float(np.clip(number, info.min, info.max))


def _as_type_of(x: Value, value: Value) -> Value:
    """Integers are rounded to the nearest, ties to even, and cut to their range."""
    if t.is_float(x.element):
        return value.cast(x.element)
    info = np.iinfo(x.type.dtype)
    most = float(info.max) if info.bits < 64 else np.nextafter(2.0**info.bits, 0) / (
        2 if info.min else 1)
    value = f.nearest(f.nearest(value * (1 / GRAIN)) * GRAIN)
    return f.minimum(f.maximum(value, float(info.min)), most).cast(x.element)


def _filled(
    n: Node, value: Value, places: Sequence[tuple[Line, Value]], kernel: Kernel, outside: float
) -> Value:
    """The value, with another one where a crop reaches outside of x."""
    if kernel.coordinates != "tf_crop_and_resize" or not places:
        return value
    tests = [_along(value, line, (where < 0) | (where > line.last(n, where.element)))
             for line, where in places]
    return f.where(f.any_of(tests), outside, value)


def _along(value: Value, line: Line, vector: Value) -> Value:
    """A vector along one axis of a value, in a shape that broadcasts to the value's."""
    return vector.reshape([line.wanted, *[1] * (value.rank - 1 - line.axis)])


# ---------------------------------------------------------------------- the nearest element
def _nearest(n: Node, line: Line, where: Value, rule: str) -> Value:
    """The places [wanted] of the elements that are nearest to coordinates."""
    if rule == SMALLER_UP and isinstance(line.scale, Value):
        where = f.where(line.scale < 1, f.ceil(where), f.floor(where))
    elif rule.startswith("round"):
        where = f.ceil(where - 0.5) if rule == "round_prefer_floor" else f.floor(where + 0.5)
    else:
        where = f.ceil(where) if rule == "ceil" else f.floor(where)
    return _inside(n, line, where.cast(t.i64))


def _inside(n: Node, line: Line, places: Value) -> Value:
    """Places outside of x are moved to its border."""
    return f.minimum(f.maximum(places, 0), line.last(n, t.i64))


# ---------------------------------------------------------------------- weighted sums
def _mixed(n: Node, x: Value, line: Line, where: Value, kernel: Kernel) -> Value:
    """x with each entry along a line the weighted sum of its neighbours.

    Only elements with a weight are read: a product with 0 would make NaN of an infinity.
    """
    places, weights = _taps(n, line, where, kernel)
    spread = [*weights.shape, *[1] * (x.rank - 1 - line.axis)]
    weights = weights.cast(x.element).reshape(spread)
    parts = f.gather(x, places, line.axis)
    products = f.where(f.equal(weights, 0), 0, parts * weights)
    return f.reduce_sum(products, [line.axis + 1])


def _taps(n: Node, line: Line, where: Value, kernel: Kernel) -> tuple[Value, Value]:
    """The places and weights [wanted, taps] of the elements around coordinates."""
    base = f.ceil(where) - 1  # so that the fraction is in (0, 1]
    reach, narrow = _reach(n, line, kernel)
    steps = n.range(reach * 2, t.i64, start=1 - reach).reshape([1, reach * 2])
    column = [line.wanted, 1]
    indices = base.cast(t.i64).reshape(column) + steps
    distance = abs(steps.cast(t.f64) - (where - base).reshape(column))
    weights = kernel.weight(distance * narrow)
    if kernel.exclude_outside:
        there = (indices >= 0) & (indices <= line.last(n, t.i64))
        weights = f.where(there, weights, 0)
    if kernel.exclude_outside or kernel.antialias:
        total = f.reduce_sum(weights, [1], keepdims=True)
        weights = weights / f.where(f.equal(total, 0), 1, total)
    weights = f.where(abs(weights) < LEAST, 0, weights)
    return _inside(n, line, indices), weights


def _reach(n: Node, line: Line, kernel: Kernel) -> tuple[Expr, Value]:
    """The number of elements on each side that may have a weight, and how narrow the weights are.

    Antialiasing widens the kernel as much as the line shrinks.
    """
    reach, one = Expr.of(kernel.reach), n.scalar(1.0, n.range(0, t.f64))
    if not kernel.antialias:
        return reach, one
    narrow = f.minimum(one, line.factor(n, t.f64))
    if line.scale is None:
        taps = (line.size * reach).ceildiv(maximum(line.wanted, 1))
        return maximum(taps, reach), narrow
    if isinstance(line.scale, Value):
        taps = f.ceil(kernel.reach / narrow).cast(t.i64)
        return n.known_sizes(taps, "taps")[0], narrow
    return Expr.of(ceil(kernel.reach / min(line.scale, 1.0))), narrow


# ---------------------------------------------------------------------- as onnxruntime
def _truncated(
    n: Node, x: Value, lines: Sequence[Line], kernel: Kernel, outside: float
) -> Value:
    """Linear interpolation of integers: the terms of onnxruntime's sum, in its order."""
    mixed, others = _mixed_together(x, lines)
    places = [(line, coordinates(n, line, kernel.coordinates, t.f32)) for line in (*others, *mixed)]
    axes = [line.axis for line, _ in places]
    pairs = [_pair(n, line, where) for line, where in places]
    sums: list[Value] = []
    for outer in itertools.product(*pairs[:len(others)]):
        terms: list[Value] = []
        for inner in itertools.product(*pairs[len(others):]):
            value = x
            for axis, (place, _) in zip(axes, outer + inner, strict=True):
                value = f.gather(value, place, axis)
            shares = [_along(x, line, share) for line, (_, share) in zip(
                [*mixed[::-1], *others], [*inner[::-1], *outer], strict=True)]
            terms.append(value.cast(t.f32) * f.product(shares))
        sums.append(f.total(terms))
    return _filled(n, f.total(sums), places, kernel, outside).cast(x.element)


def _mixed_together(x: Value, lines: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    """The lines that onnxruntime mixes, in the order of their axes, and the others.

    It mixes two or three axes: the last ones, or those before channels that come last. Others are
    lines whose sizes are open. Sums are added along them last: where a run leaves the size as it
    is, equal halves are.
    """
    own = {line.axis: line for line in lines}
    count, first = (2 if x.rank in (2, 4) else 3), {2: [0], 3: [0], 4: [2, 1], 5: [2]}
    groups = [range(k, k + count) for k in first.get(x.rank, [])]
    fitting = [g for g in groups if own.keys() <= {*g}] or groups or [sorted(own)]
    mixed = [own.get(k, Line(k, x.shape[k], x.shape[k], 1.0)) for k in fitting[0]]
    return mixed, [line for line in lines if line.axis not in fitting[0]]


def _pair(n: Node, line: Line, where: Value) -> list[tuple[Value, Value]]:
    """The two neighbours of each coordinate, and their weights; the last element counts twice."""
    if not line.changes:
        where = n.range(line.wanted, where.element)
    last = line.last(n, t.f32)
    inside = f.minimum(f.maximum(where, 0), last)
    low = f.floor(inside)
    high = f.minimum(low + 1, last)
    same = f.equal(low, high)
    shares = f.where(same, 0.5, high - inside), f.where(same, 0.5, inside - low)
    return [(_inside(n, line, place.cast(t.i64)), share)
            for place, share in zip((low, high), shares, strict=True)]
