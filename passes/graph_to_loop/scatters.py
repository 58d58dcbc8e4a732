"""Scatters, turned round: every element of the result looks for the updates that it gets.

    last[p] = max over j of (j where indices[j] == p, else -1)         combiner none
    y[p]    = updates[last[p]] where last[p] >= 0, else x[p]

    y[p]    = x[p] + sum over j of (updates[j] where indices[j] == p)  the others

Nests write distinct elements, so that their points may run in any order; a nest that writes where
an index says cannot be one. The search costs the size of the scattered dims times the number of
updates, which is quadratic where both are large. For constant indices it is done here: `last` is a
constant then, and serves all combiners if no element gets two updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from xdsl.ir import SSAValue

from dialects import types as t
from dialects.expr import Expr, product
from dialects.graph.base import int_of, text_of
from dialects.graph.constant import ConstantOp
from dialects.graph.numerics import highest, lowest
from dialects.graph.scatter import ScatterElementsOp, ScatterNdOp
from dialects.loop import ViewOp
from dialects.types import Array, TensorType, tensor
from passes.graph_to_loop.gathers import clamped
from passes.graph_to_loop.nests import Domain, Read, assume_equal, make_nest, type_of
from passes.graph_to_loop.reduction import held_element, recoded
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Body, Number, Scalar
from passes.rewriting import Rewriter

NOWHERE = -1
"""The index of an update that is not there."""

MAX_PLACES = 1 << 24
"""For constant indices a table is made of so many places at most."""

Known = tuple[Array, bool]
"""The number of each place's last update, and whether none has two."""

Index = Callable[[Sequence[Expr], Expr], Sequence[Expr]]
"""Where something is read for a point of x and the number of an update."""


@lowers(ScatterElementsOp)
def scatter_elements(op: ScatterElementsOp, at: Rewriter) -> SSAValue:
    x, axis, sizes = type_of(op.x), int_of(op.properties, "axis"), type_of(op.indices).shape
    for own, size in zip(type_of(op.updates).shape, sizes, strict=True):
        assume_equal(at, own, size)
    smaller = any(k != axis and size != own
                  for k, (size, own) in enumerate(zip(x.shape, sizes, strict=True)))

    def place(point: Sequence[Expr], j: Expr) -> Sequence[Expr]:
        return [j if k == axis else i for k, i in enumerate(point)]

    rows = {axis: clamped(at, op.indices, x.shape[axis])}
    return _Scatter(op.x, op.updates, text_of(op.properties, "combiner", "none"), sizes[axis],
                    x.rank, rows, place, place, smaller, _known_elements(op, at)).run(at)


def _known_elements(op: ScatterElementsOp, at: Rewriter) -> Known | None:
    shape, axis = type_of(op.x).static_shape, int_of(op.properties, "axis")
    if shape is None or not isinstance(op.indices.owner, ConstantOp):
        return None
    indices = op.indices.owner.array(at.context.weights)
    places = np.indices(indices.shape)
    numbers = places[axis].copy()
    places[axis] = indices
    return _known(shape, [np.asarray(p) for p in places], numbers)


@lowers(ScatterNdOp)
def scatter_nd(op: ScatterNdOp, at: Rewriter) -> SSAValue:
    """Of the updates as [count, inner] and the indices as [count, depth]."""
    x, sizes = type_of(op.x), type_of(op.indices).shape
    depth, count = sizes[-1].constant or 0, product(sizes[:-1])
    for own, size in zip(type_of(op.updates).shape, (*sizes[:-1], *x.shape[depth:]), strict=True):
        assume_equal(at, own, size)
    vectors = at.insert(ViewOp.of(op.indices, [count, depth])).results[0]
    updates = at.insert(ViewOp.of(op.updates, [count, *x.shape[depth:]])).results[0]
    rows = {k: clamped(at, vectors, x.shape[k], k) for k in range(depth)}
    return _Scatter(op.x, updates, text_of(op.properties, "combiner", "none"), count, depth, rows,
                    lambda point, j: [j], lambda point, j: [j, *point[depth:]], False,
                    _known_slices(op, at)).run(at)


def _known_slices(op: ScatterNdOp, at: Rewriter) -> Known | None:
    depth = type_of(op.indices).shape[-1].constant or 0
    sizes = [s.constant for s in type_of(op.x).shape[:depth]]
    shape = tuple(s for s in sizes if s is not None)
    if len(shape) < len(sizes) or not isinstance(op.indices.owner, ConstantOp):
        return None
    vectors = op.indices.owner.array(at.context.weights).reshape(-1, depth)
    return _known(shape, list(vectors.T), np.arange(len(vectors)))


def _known(shape: tuple[int, ...], places: Sequence[Array], numbers: Array) -> Known | None:
    """The last update of every place, and whether all places differ.

    None for wrong indices, and for more places than a table should have.
    """
    if prod(shape) > MAX_PLACES or any(p.size and not -n <= p.min() <= p.max() < n
           for p, n in zip(places, shape, strict=True)):
        return None
    last = np.full(shape, NOWHERE, np.int64)
    last[tuple(places)] = numbers
    return last, int((last != NOWHERE).sum()) == numbers.size


@dataclass(frozen=True)
class _Scatter:
    """A scatter into x of updates that are numbered along one axis, `count` of them.

    `rows`: dim of x -> the index tensor that tells it. The first `searched` dims of x are all that
    `row_index` depends on. `leaves`: it may lead out of the index tensors; there is no update then.
    `known`: what constant indices tell.
    """

    x: SSAValue
    updates: SSAValue
    combiner: str
    count: Expr
    searched: int
    rows: dict[int, SSAValue]
    row_index: Index
    update_index: Index
    leaves: bool
    known: Known | None = None

    def run(self, at: Rewriter) -> SSAValue:
        single = self.combiner == "none" or (self.known is not None and self.known[1])
        return self._once(at) if single else self._merged(at)

    def _row_reads(self, point: Sequence[Expr], j: Expr) -> list[Read]:
        pad = NOWHERE if self.leaves else None
        return [Read(row, self.row_index(point, j), pad) for row in self.rows.values()]

    def _hit(self, body: Body, read: Sequence[Scalar], point: Sequence[Expr]) -> Scalar:
        """Whether an update is one of this point."""
        hit = body.constant(True, t.i1)
        for row, dim in zip(read, self.rows, strict=False):
            hit = hit & row.compare("eq", body.index(point[dim]))
        return hit

    # ------------------------------------------------------------------ one update
    def _once(self, at: Rewriter) -> SSAValue:
        """Every point takes its last update, or merges it."""
        result = type_of(self.x)
        held = held_element(result.element, self.combiner)
        domain = Domain()
        point = domain.parallel(*result.shape)
        last = Read(self._last(at, result), point[:self.searched])
        update = Read(self.updates, self.update_index(point, Expr.symbol("in0")), 0)

        def changed(body: Body, read: Sequence[Scalar]) -> Scalar:
            number, update, x = read
            if self.combiner != "none":
                sides = (recoded(v, held) for v in (x, update))
                update = recoded(_combined(self.combiner, *sides), result.element)
            return number.compare("ge", 0).where(update, x)

        return make_nest(at, domain, [last, update, Read(self.x, point)], result, changed)

    def _last(self, at: Rewriter, x: TensorType) -> SSAValue:
        """The number of the last update of each point."""
        if self.known is not None:
            table = ConstantOp.of_array(self.known[0], at.context.weights, "places")
            return at.insert(table).results[0]
        shape = x.shape[:self.searched]
        domain = Domain()
        point = domain.parallel(*shape)
        [j] = domain.reduce(self.count)

        def number(body: Body, read: Sequence[Scalar]) -> Scalar:
            return self._hit(body, read, point).where(body.index(j), NOWHERE)

        return make_nest(at, domain, self._row_reads(point, j), tensor(t.i64, shape), number,
                         combiner="max")

    # ------------------------------------------------------------------ several updates
    def _merged(self, at: Rewriter) -> SSAValue:
        result = type_of(self.x)
        held = tensor(held_element(result.element, self.combiner), result.shape)
        domain = Domain()
        point = domain.parallel(*result.shape)
        reads = [Read(self.x, point), Read(self._total(at, held), point)]

        def merge(body: Body, read: Sequence[Scalar]) -> Scalar:
            x, total = recoded(read[0], held.element), read[1]
            return recoded(_combined(self.combiner, x, total), result.element)

        return make_nest(at, domain, reads, result, merge)

    def _total(self, at: Rewriter, held: TensorType) -> SSAValue:
        """All updates of each point, combined."""
        domain = Domain()
        point = domain.parallel(*held.shape)
        [j] = domain.reduce(self.count)
        update = Read(self.updates, self.update_index(point, j), 0 if self.leaves else None)
        neutral = _neutral(self.combiner, held)

        def counted(body: Body, read: Sequence[Scalar]) -> Scalar:
            hit = self._hit(body, read[:-1], point)
            return hit.where(recoded(read[-1], held.element), neutral)

        return make_nest(at, domain, [*self._row_reads(point, j), update], held, counted,
                         combiner=self.combiner)


def _combined(combiner: str, x: Scalar, y: Scalar) -> Scalar:
    if combiner in ("max", "min"):
        return x.maximum(y) if combiner == "max" else x.minimum(y)
    return x + y if combiner == "add" else x * y


def _neutral(combiner: str, type_: TensorType) -> Number:
    if combiner in ("max", "min"):
        value = lowest(type_.dtype) if combiner == "max" else highest(type_.dtype)
        return float(value) if t.is_float(type_.element) else int(value)
    return 0 if combiner == "add" else 1
