"""Resize: the position in x of each result element, and the elements of x that it copies or mixes.

For each dim that changes, small nests compute positions (and weights) once per result index, in f64
as the operation defines. The result gathers with them. The nearest element at an integer factor has
a closed form and needs no such nest. Where many programs wait for memory, none should wait for
positions before it loads elements: dims of known sizes then have closed forms too, if quotients of
integers are the same positions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
from xdsl.ir import BlockArgument, SSAValue

from dialects.graph.base import Build, text_of
from dialects.graph.inference import certainly_differ
from dialects.graph.resize import ResizeOp, rounded_coordinates, source_coordinates
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.strata.func import ReturnOp
from dialects.strata.types import tensor
from dialects.symbolic.expr import Expr, maximum, minimum
from passes.graph_to_loop.gathers import pick
from passes.graph_to_loop.nests import (
    Domain,
    Read,
    converted,
    make_nest,
    type_of,
)
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Body, Scalar
from passes.rewriting import Rewriter

_CUBIC = -0.75
"""The cubic coefficient of ONNX and PyTorch."""


@lowers(ResizeOp)
def resize(op: ResizeOp, at: Rewriter) -> SSAValue:
    dims = [d for d in _dims(op) if d.changes]
    if op.mode.data == "nearest":
        return _nearest(op, at, dims)
    taps = _LINEAR if op.mode.data == "linear" else _CUBIC_TAPS
    groups = [[d] for d in dims]
    if op.mode.data == "linear":
        groups = groups[::-1] if _gathers(op, at) else [dims]
    value = op.x
    for group in groups:
        value = _mixed(at, value, group, taps)
    return converted(at, value, type_of(op.result).element)


def _gathers(op: ResizeOp, at: Rewriter) -> bool:
    """Whether neighbours of the result come from distant places, so that fewer are read dim by dim,
    the last one first: in images in the model's order, as what it is given and returns. Others may
    have their channels last, and a machine of many programs is faster without a second walk."""
    return at.context.facts.programs == 1 and (isinstance(op.x, BlockArgument) or all(
        isinstance(use.operation, ReturnOp) for use in op.result.uses))


def _computes(at: Rewriter) -> bool:
    """Whether positions are computed rather than read."""
    return at.context.facts.programs > 1


class ResizedDim(NamedTuple):
    """One dim: its sizes in x and in the result, its factor if one is given, and the formula."""

    number: int
    source: Expr
    size: Expr
    scale: float | None
    coordinates: str

    @property
    def changes(self) -> bool:
        return self.source != self.size or self.scale not in (None, 1.0)

    def factor(self) -> int | None:
        """The factor by which the dim grows, if it is a whole number."""
        given = (self.size // self.source).constant if self.scale is None else self.scale
        factor = int(given or 0)
        exact = factor == given and self.source * factor == self.size
        return factor if exact and factor else None

    def coordinate(self, body: Body, place: Expr) -> Scalar:
        """The position of a result index in x, by the formulas of `graph.resize`."""
        p, source, size = (body.index(e, t.f64) for e in (place, self.source, self.size))
        over, under = (source, size) if self.scale is None else (p.like(1.0), p.like(self.scale))
        if self.coordinates == "asymmetric":
            return p * over / under
        if self.coordinates == "align_corners":
            return p * (source - 1) / (size - 1).maximum(1)
        if self.coordinates == "half_pixel_symmetric" and self.scale is not None:
            return (source - 1) / 2 + (p - (size - 1) / 2) / self.scale
        where = (p + 0.5) * over / under
        if self.coordinates == "pytorch_half_pixel":
            return size.compare("eq", 1).where(p, where - 0.5)
        return where - 0.5

    def closed(self, place: Expr, rule: str, step: int = 0) -> Expr | None:
        """(a*p + c) floordiv b + step, kept within x, where the quotient is the rounded coordinate
        of every result index p; None if there is none, or a size is open."""
        source, size = self.source.constant, self.size.constant
        if source is None or not size:
            return None
        coordinates = source_coordinates(self.coordinates, source, size, self.scale)
        wanted, points = rounded_coordinates(coordinates, rule).astype(np.int64), np.arange(size)
        slope = Fraction(float(coordinates[-1] - coordinates[0]) / max(size - 1, 1))
        a, b = slope.limit_denominator(max(source, size)).as_integer_ratio()
        c = int((b * wanted - a * points).max())
        if c > (b * wanted - a * points).min() + b - 1:
            return None
        found, last = (place * a + c) // b + step, source - 1
        found = found if wanted[0] + step >= 0 else maximum(found, 0)
        return found if wanted[-1] + step <= last else minimum(found, last)

    @property
    def may_stay(self) -> bool:
        """Whether a run may leave the dim as it is, because both its sizes are equal."""
        return self.scale in (None, 1.0) and not certainly_differ(self.source, self.size)

    def vector(self, at: Build, formula: Callable[[Scalar, Scalar], Scalar],
               element: t.Attribute, unchanged: float | None = None) -> SSAValue:
        """formula(coordinate, last index of x) for every result index.

        `unchanged`: what it is in a dim that stays as it is; None for the index itself.
        """
        domain = Domain()
        [place] = domain.parallel(self.size)

        def compute(body: Body, read: Sequence[Scalar]) -> Scalar:
            last = body.index(self.source - 1, t.f64)
            value = formula(self.coordinate(body, place), last)
            if not self.may_stay:
                return value
            own, size, index = (body.index(e, t.f64) for e in (self.source, self.size, place))
            kept = _clamped(index, last) if unchanged is None else value.like(unchanged)
            return own.compare("eq", size).where(kept, value)

        return make_nest(at, domain, [], tensor(element, [self.size]), compute)


def _dims(op: ResizeOp) -> list[ResizedDim]:
    source, size = type_of(op.x).shape, type_of(op.result).shape
    scales = op.scales.data or (None,) * len(source)
    return [ResizedDim(k, *row, op.coordinates.data)
            for k, row in enumerate(zip(source, size, scales, strict=True))]


def _clamped(position: Scalar, last: Scalar) -> Scalar:
    return position.maximum(0.0).minimum(last)


# ---------------------------------------------------------------------- nearest
_ROUNDINGS: dict[str, Callable[[Scalar], Scalar]] = {
    "floor": lambda c: c.floor(),
    "ceil": lambda c: c.ceil(),
    "round_prefer_floor": lambda c: (c - 0.5).ceil(),
    "round_prefer_ceil": lambda c: (c + 0.5).floor(),
}


def _nearest(op: ResizeOp, at: Rewriter, dims: Sequence[ResizedDim]) -> SSAValue:
    rule = text_of(op.properties, "nearest", "floor")
    domain = Domain()
    index: list[Expr | Read] = list(domain.parallel(*type_of(op.result).shape))
    for dim in dims:
        index[dim.number] = _nearest_place(at, dim, domain.point[dim.number], rule)
    return pick(at, domain, op.x, index)


def _nearest_place(at: Rewriter, dim: ResizedDim, place: Expr, rule: str) -> Expr | Read:
    """p/f rounded down and (p + 0.5)/f - 0.5 rounded are both p floordiv f: 2p + 1 is odd."""
    factor = dim.factor()
    down = (dim.coordinates == "asymmetric" and rule == "floor") or (
        dim.coordinates == "half_pixel" and rule.startswith("round"))
    if factor is not None and down:
        return place // factor
    closed = dim.closed(place, rule) if _computes(at) else None
    if closed is not None:
        return closed
    rounding = _ROUNDINGS[rule]
    where = dim.vector(at, lambda c, last: _clamped(rounding(c), last), t.i64)
    return Read(where, [place])


# ---------------------------------------------------------------------- linear and cubic
@dataclass(frozen=True)
class _Tap:
    """One of the elements mixed along a dim, as formulas of (coordinate, last index). `closed`: its
    position by a closed form, if there is one."""

    position: Callable[[Scalar, Scalar], Scalar]
    weight: Callable[[Scalar, Scalar], Scalar]
    closed: Callable[[ResizedDim, Expr], Expr | None]


def _next(dim: ResizedDim, place: Expr) -> Expr | None:
    low = dim.closed(place, "floor")
    return None if low is None else minimum(low + 1, dim.source - 1)


def _fraction(c: Scalar, last: Scalar) -> Scalar:
    inside = _clamped(c, last)
    low = inside.floor()
    return low.compare("eq", last).where(low.like(0.5), inside - low)


_LINEAR = [
    _Tap(lambda c, last: _clamped(c, last).floor(), lambda c, last: 1 - _fraction(c, last),
         lambda dim, place: dim.closed(place, "floor")),
    _Tap(lambda c, last: _clamped(_clamped(c, last).floor() + 1, last), _fraction, _next),
]


def _cubic_tap(step: int) -> _Tap:
    def weight(c: Scalar, last: Scalar) -> Scalar:
        d, a = (c - c.floor() - step).absolute(), _CUBIC
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((d - 5) * d + 8) * d * a - 4 * a
        return d.compare("le", 1).where(near, far)

    return _Tap(lambda c, last: _clamped(c.floor() + step, last), weight,
                lambda dim, place: dim.closed(place, "floor", step))


_CUBIC_TAPS = [_cubic_tap(step) for step in (-1, 0, 1, 2)]


def _mixed(at: Rewriter, x: SSAValue, dims: Sequence[ResizedDim], taps: Sequence[_Tap]) -> SSAValue:
    """The weighted sum over all choices of one tap per dim; narrow floats are mixed in f32.

    In a dim that stays as it is, all taps are of the same element, and their weights are equal.
    """
    type_, count = type_of(x), len(taps)
    element = t.wide_element(type_.element)
    sizes = {d.number: d.size for d in dims}
    result = tensor(element, [sizes.get(k, size) for k, size in enumerate(type_.shape)])
    domain = Domain()
    point = domain.parallel(*result.shape)
    rows = [(d, tap) for d in dims for tap in taps]
    closed = [tap.closed(d, point[d.number]) if _computes(at) else None for d, tap in rows]
    places = [Read(d.vector(at, tap.position, t.i64), [point[d.number]])
              for (d, tap), form in zip(rows, closed, strict=True) if form is None]
    weights = [Read(d.vector(at, tap.weight, element, 1 / count), [point[d.number]])
               for d, tap in rows]
    gathered = iter(range(len(places)))
    forms = [Expr.gathered(next(gathered)) if form is None else form for form in closed]
    names = [forms[k * count:(k + 1) * count] for k in range(len(dims))]
    sources = [Read(x, _replaced(point, dims, choice)) for choice in itertools.product(*names)]

    def mix(body: Body, read: Sequence[Scalar]) -> Scalar:
        values = [v.wide() for v in read[len(places):len(places) + len(sources)]]
        factors = read[len(places) + len(sources):]
        for start in reversed(range(0, len(factors), count)):  # the last dim's taps first
            values = _weighted_sums(values, factors[start:start + count])
        return values[0]

    return make_nest(at, domain, [*places, *sources, *weights], result, mix)


def _replaced(
    point: Sequence[Expr], dims: Sequence[ResizedDim], places: Sequence[Expr]
) -> list[Expr]:
    """The point with the given dims replaced by other places."""
    others = {d.number: place for d, place in zip(dims, places, strict=True)}
    return [others.get(k, i) for k, i in enumerate(point)]


def _weighted_sums(values: Sequence[Scalar], weights: Sequence[Scalar]) -> list[Scalar]:
    """Weighted sums of runs of values, each as long as the list of weights."""
    count = len(weights)
    groups = [values[k:k + count] for k in range(0, len(values), count)]
    products = [[v * w for v, w in zip(g, weights, strict=True)] for g in groups]
    return [reduce(add, row) for row in products]
