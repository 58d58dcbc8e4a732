"""Windows of convolutions along one axis, and the matrices of their Winograd algorithms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from dialects.loop import NestOp, extents_of
from dialects.records import dataclass
from dialects.strata.types import Array
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import lower_bound, upper_bound
from dialects.symbolic.symbol import Symbol

_FINITE_POINTS = {4: (0.0, 1.0, -1.0), 6: (0.0, 0.625, -0.625, 1.5625, -1.5625)}
"""The points besides infinity at which polynomials are evaluated, by the number of points including
infinity. They have the least rounding errors in a search over sixteenths; with six points, half the
errors of the points 1 and 2. Tables need not be simple, because transforms are dense sums."""
FEW_POINTS, POINTS = _FINITE_POINTS
MAX_TAPS = POINTS - 1
"""With more taps than this, a tile would hold fewer than two results."""


@dataclass(frozen=True)
class Window:
    """A parallel axis along which a nest reads windows of its data.

    Dim `dim` of the data is read at `axis + dilation * taps` plus an offset. A tile is the set of
    positions at which `points` inputs, `dilation` apart, contribute to `outputs` results. The tiles
    of each run of `dilation` tiles are interleaved.
    """

    axis: Symbol
    taps: Symbol
    """The reduce axis."""
    count: int
    """The extent of `taps`."""
    dilation: int
    dim: int
    points: int = POINTS

    @property
    def outputs(self) -> int:
        """The number of results per tile."""
        return self.points + 1 - self.count

    @property
    def loss(self) -> float:
        """How much a rounding error of each product, of the data's or the filter's values, counts.

        It is the root mean square relative to that of the results, for random taps. A result is the
        sum over the points q of A[q] * (G[q] @ filter) * (B[q] @ data). If each of these is off by
        one relative rounding error, independently of the others, the squares add up to

            sum over q of |A[:, q]|^2 |G[q, :]|^2 |B[:, q]|^2  /  (outputs * taps)

        rounding errors of a result. That is 1.3 for 4 points, 2.2 for 6, and the product for two
        windows. B. Barabasz et al., Error Analysis and Improving the Accuracy of Winograd
        Convolution for Deep Neural Networks (ACM TOMS 46, 2020), bound the worst case by the
        products of the same matrices' norms.
        """
        squares = [(t * t).sum(axis) for t, axis in (
            (output_table(self.points, self.count), 0), (weight_table(self.points, self.count), 1),
            (input_table(self.points), 1))]
        gains: Array = squares[0] * squares[1] * squares[2]
        return math.sqrt(float(gains.sum()) / (self.outputs * self.count))

    def tiles(self, extent: Expr) -> Expr:
        """The number of tiles that hold all positions of the axis."""
        return extent.ceildiv(self.outputs * self.dilation) * self.dilation

    def positions(self, extent: Expr) -> Expr:
        """The number of positions of the data that these tiles read."""
        groups = extent.ceildiv(self.outputs * self.dilation)
        return (groups * self.outputs + self.count - 1) * self.dilation

    def position(self, tile: Expr, number: Expr) -> Expr:
        """The position in the data, counted from the first one read, of an input of a tile."""
        d = self.dilation
        return (tile // d) * (self.outputs * d) + tile % d + number * d

    def tile_of(self, position: Expr) -> Expr:
        """The tile that contains a result."""
        d = self.dilation
        return (position // (self.outputs * d)) * d + position % d

    def place_of(self, position: Expr) -> Expr:
        """The number of a result within its tile."""
        return (position // self.dilation) % self.outputs


def windows_of(nest: NestOp, data: int) -> list[Window]:
    """The windows that could be shortened, at most one per dim of the data.

    The nest must also sum over something else, or there would be nothing to save. Batches of
    convolutions (groups, or products at points) have none.
    """
    if set[Symbol].intersection(*map(_symbols, (*nest.input_maps, nest.output_maps[0]))):
        return []
    found = [w for dim in range(len(nest.input_maps[data])) for w in _windows(nest, data, dim)]
    taps = {w.taps for w in found}
    extents = extents_of(nest.axes)
    affine = all(lower_bound(e, extents) is not None and upper_bound(e, extents) is not None
                 for e in nest.input_maps[data])
    return found if affine and any(a.name not in taps for a in nest.reduce_axes) else []


def _symbols(map_: Sequence[Expr]) -> set[Symbol]:
    return {s for e in map_ for s in e.symbols}


def _windows(nest: NestOp, data: int, dim: int) -> Iterator[Window]:
    expr = nest.input_maps[data][dim]
    own = [a for a in nest.axes if a.name in expr.symbols]
    taps = [a for a in own if a.reduce and 2 <= (a.extent.constant or 0) <= MAX_TAPS]
    places = [a for a in own if not a.reduce]
    if len(own) != 2 or len(taps) != 1 or len(places) != 1:
        return
    [tap], [place] = taps, places
    split = expr.linear([place.name, tap.name])
    if split is None or split[0][place.name].constant != 1:
        return
    dilation = split[0][tap.name].constant or 0
    if dilation > 0 and _is_only_there(nest, data, dim, place.name, tap.name):
        yield Window(place.name, tap.name, tap.extent.constant or 0, dilation, dim)


def _is_only_there(nest: NestOp, data: int, dim: int, place: Symbol, tap: Symbol) -> bool:
    """Whether the two axes index no other dim of the data, and one dim of result and filter."""
    others = [e for d, e in enumerate(nest.input_maps[data]) if d != dim]
    stored = [e for e in nest.output_maps[0] if place in e.symbols]
    filter_ = [e for e in nest.input_maps[1 - data] if e.symbols & {place, tap}]
    return not any(e.symbols & {place, tap} for e in others) and [
        e.as_symbol for e in stored] == [place] and [e.as_symbol for e in filter_] == [tap]


# ---------------------------------------------------------------------- tables
def _powers(points: int, count: int) -> Array:
    """The values of the monomials below a degree at all points; infinity sees only the last."""
    finite = np.vander(_FINITE_POINTS[points], count, increasing=True)
    return np.vstack([finite, np.eye(count)[-1:]])


@cache
def _interpolation(points: int) -> tuple[Array, Array, Array]:
    """The scaled transform from the inputs of a tile to values, the scales for the filter, and what
    the filter is divided by.

    The rows are the polynomials that are zero at all other points, divided only by powers of two,
    so that f32 holds the table exactly. The remaining divisors are folded into the filter's values,
    which are rounded once. A rounded table would have the same error at every position of an image,
    and such errors neither cancel in means nor vanish in maxima.
    """
    finite = _FINITE_POINTS[points]
    rows = [np.poly([q for q in finite if q != p])[::-1] for p in finite]
    table: Array = np.array([*(np.append(row, 0.0) for row in rows), np.poly(finite)[::-1]])
    ends = [np.polyval(row[::-1], p) for row, p in zip(rows, finite, strict=True)]
    lengths: Array = np.exp2([round(math.log2(math.hypot(*row))) for row in table.tolist()])
    return table / lengths[:, None], lengths, np.array([*ends, 1.0])


def input_table(points: int) -> Array:
    """B of y = A @ ((G @ filter) * (B @ x)): [points, points]."""
    return _interpolation(points)[0]


def weight_table(points: int, count: int) -> Array:
    """G: [points, taps]."""
    table, divisors = weight_parts(points, count)
    return table / divisors[:, None]


def weight_parts(points: int, count: int) -> tuple[Array, Array]:
    """G as a table that f32 holds exactly, [points, taps], and what its rows are divided by."""
    _, lengths, divisors = _interpolation(points)
    return _powers(points, count) * lengths[:, None], divisors


def output_table(points: int, count: int) -> Array:
    """A: [outputs, points]."""
    return _powers(points, points + 1 - count).T
