"""Scatters: merge updates into a copy of x, one after another.

    %y = nest (reduce i0: count, i1: m) ins(%places[i0], %updates[i0, i1])
        outs(add f32[n, m][in0, i1]) into(%x)

If the indices are constant and no element receives two updates that must be merged, the scatter is
inverted: a table that is computed at compile time gives the update for each element.

    y[p] = updates[last[p]] where last[p] >= 0, else x[p]

A machine that runs many programs at once inverts other scatters, too, if that is faster than many
updates one after another: every element looks for its updates among all of them.

    last[p] = max over j of (j where places[j] == p, else -1)
    y[p]    = x[p] + sum over j of (updates[j] where places[j] == p, else 0)

Very many updates are sorted by place (`sorted_scatters.py`). Where updates may be added in any
order, and the target adds them indivisibly (`Facts.atomics`), all of them are added at once.

Indices are clamped, so a wrong index changes some element but never writes out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import NamedTuple

import numpy as np
from xdsl.dialects.arith import IndexCastOp
from xdsl.ir import Attribute, SSAValue

from dialects.graph.base import int_of, text_of
from dialects.graph.constant import ConstantOp
from dialects.graph.scatter import ScatterElementsOp, ScatterNdOp
from dialects.loop import IndexOp, NestOp, ViewOp, YieldOp
from dialects.records import dataclass
from dialects.semantics.numerics import highest, lowest
from dialects.strata import types as t
from dialects.strata.types import Array, tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import is_nonnegative
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.graph_to_loop.gathers import clamped
from passes.graph_to_loop.nests import (
    Domain,
    Read,
    assume_at_most,
    assume_equal,
    copy,
    make_nest,
    pointwise,
    type_of,
)
from passes.graph_to_loop.reduction import held_element, recoded
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Body, Number, Scalar
from passes.graph_to_loop.sorted_scatters import in_rows, linear_places, scatter_sorted
from passes.rewriting import Rewriter

NOWHERE = -1
"""The table entry of an element without an update."""

MAX_PLACES = 1 << 24
"""The most elements of a table for constant indices."""

STEP = 1e-7
"""About the seconds of one update, if updates come one after another."""

SORTED, PASSES = 2e-4, 16
"""About the seconds that it takes to sort them, and how often their bytes are moved to sum runs."""

LEAST = 64
"""Fewer updates than this take less time than the launch of another kernel."""

COMPARED, MOVED = 1e13, 1e12
"""About the places that are compared per second, and the bytes that are moved, by a machine that
runs many programs at once."""

Index = Callable[[Sequence[Expr], Expr], Sequence[Expr]]
"""The index of the update for a point of x, given the update's number."""


@lowers(ScatterElementsOp)
def scatter_elements(op: ScatterElementsOp, at: Rewriter) -> SSAValue:
    x, axis = type_of(op.x), int_of(op.properties, "axis")
    sizes = _agreed(at, type_of(op.updates).shape, type_of(op.indices).shape)
    scatter = _Scatter.of(op, op.updates)
    table = _known_elements(op, at, scatter.combiner)
    if table is not None:
        return scatter.from_table(at, table, lambda point, j: [
            j if k == axis else i for k, i in enumerate(point)])
    places = clamped(at, op.indices, x.shape[axis])
    if scatter.is_faster_at_once(at, sizes[axis], x.shape):
        found = _Updates(sizes[axis], lambda point, j: [
            (Read(places, [j if k == axis else i for k, i in enumerate(point)], -1), point[axis])])
        return scatter.at_once(at, found, x.shape, lambda point, j: [
            j if k == axis else i for k, i in enumerate(point)])
    domain = Domain()
    point = [(domain.reduce if k == axis else domain.parallel)(size)[0]
             for k, size in enumerate(sizes)]
    place = Read(places, point)
    where = [Expr.gathered(0) if k == axis else i for k, i in enumerate(point)]
    return scatter.in_order(at, domain, [place], point, where)


def _agreed(at: Rewriter, updates: Sequence[Expr], indices: Sequence[Expr]) -> list[Expr]:
    """The sizes that updates and indices share, which are assumed equal; numbers instead of names.
    """
    for own, size in zip(updates, indices, strict=True):
        assume_equal(at, own, size)
    return [own if own.constant is not None else size
            for own, size in zip(updates, indices, strict=True)]


def _known_elements(op: ScatterElementsOp, at: Rewriter, combiner: str) -> Array | None:
    shape, axis = type_of(op.x).static_shape, int_of(op.properties, "axis")
    if shape is None or not isinstance(op.indices.owner, ConstantOp):
        return None
    indices = op.indices.owner.array(at.context.weights)
    places = np.indices(indices.shape)
    numbers = places[axis].copy()
    places[axis] = indices
    return _table(shape, [np.asarray(p) for p in places], numbers, combiner)


@lowers(ScatterNdOp)
def scatter_nd(op: ScatterNdOp, at: Rewriter) -> SSAValue:
    """Works on updates as [count, inner] and indices as [count, depth]."""
    x, sizes = type_of(op.x), type_of(op.indices).shape
    depth, count = sizes[-1].constant or 0, product(sizes[:-1])
    for own, size in zip(type_of(op.updates).shape, (*sizes[:-1], *x.shape[depth:]), strict=True):
        assume_equal(at, own, size)
    updates = at.insert(ViewOp.of(op.updates, [count, *x.shape[depth:]])).results[0]
    scatter = _Scatter.of(op, updates)
    table = _known_slices(op, at, scatter.combiner)
    if table is not None:
        return scatter.from_table(at, table, lambda point, j: [j, *point[depth:]])
    if depth == 0:
        return _scatter_whole(op, at, scatter, count)
    place = _place(op.indices) if depth == count.constant == 1 else None
    if place is not None and scatter.combiner == "none":
        return _scatter_one(op, at, scatter, place)
    vectors = at.insert(ViewOp.of(op.indices, [count, depth])).results[0]
    entries = [clamped(at, vectors, x.shape[k], k) for k in range(depth)]
    if scatter.is_faster_at_once(at, count, x.shape[:depth]):
        found = _Updates(count, lambda point, j: [
            (Read(entry, [j]), i) for entry, i in zip(entries, point, strict=False)])
        return scatter.at_once(at, found, x.shape[:depth], lambda point, j: [j, *point[depth:]])
    if scatter.is_faster_sorted(at, count):
        return scatter.sorted(at, entries, count.constant or 0)
    domain = Domain()
    [j], rest = domain.reduce(count), domain.parallel(*x.shape[depth:])
    places = [Read(entry, [j]) for entry in entries]
    where = [*(Expr.gathered(k) for k in range(depth)), *rest]
    return scatter.in_order(at, domain, places, [j, *rest], where)


def _place(indices: SSAValue) -> Expr | None:
    """The only index, if it is computed from sizes and certainly not negative."""
    while isinstance(indices.owner, ViewOp):
        indices = indices.owner.source
    nest = indices.owner
    if not isinstance(nest, NestOp) or nest.inputs:
        return None
    found = [op.expr.data for op in nest.body.block.ops if isinstance(op, IndexOp)]
    plain = all(isinstance(op, IndexOp | IndexCastOp | YieldOp) for op in nest.body.block.ops)
    if len(found) != 1 or not plain or found[0].symbols & {a.name for a in nest.axes}:
        return None
    return found[0] if is_nonnegative(found[0], frozenset[Symbol]()) else None


def _scatter_one(op: ScatterNdOp, at: Rewriter, scatter: _Scatter, place: Expr) -> SSAValue:
    """One slice is written, at a place that a loop counts: nothing else is read or moved."""
    x = type_of(op.x)
    assume_at_most(at, place + 1, x.shape[0])
    domain = Domain()
    rest = domain.parallel(*x.shape[1:])
    return make_nest(at, domain, [Read(scatter.updates, [Expr.of(0), *rest])], x,
                     copy, index=[place, *rest], into=op.x)


def _scatter_whole(op: ScatterNdOp, at: Rewriter, scatter: _Scatter, count: Expr) -> SSAValue:
    """Empty index vectors: every update applies to the whole of x, which is the only slice."""
    shape = type_of(op.x).shape
    slices = at.insert(ViewOp.of(op.x, [1, *shape])).results[0]
    numbers = Domain()
    numbers.parallel(count)
    first = make_nest(at, numbers, [], tensor(t.i64, [count]), lambda body, read: body.index(0))
    domain = Domain()
    [j], rest = domain.reduce(count), domain.parallel(*shape)
    result = _Scatter(slices, scatter.updates, scatter.combiner).in_order(
        at, domain, [Read(first, [j])], [j, *rest], [Expr.gathered(0), *rest])
    return at.insert(ViewOp.of(result, shape)).results[0]


def _known_slices(op: ScatterNdOp, at: Rewriter, combiner: str) -> Array | None:
    depth = type_of(op.indices).shape[-1].constant or 0
    sizes = [s.constant for s in type_of(op.x).shape[:depth]]
    shape = tuple(s for s in sizes if s is not None)
    if len(shape) < len(sizes) or not isinstance(op.indices.owner, ConstantOp):
        return None
    vectors = op.indices.owner.array(at.context.weights).reshape(-1, depth)
    return _table(shape, list(vectors.T), np.arange(len(vectors)), combiner)


def _table(
    shape: tuple[int, ...], places: Sequence[Array], numbers: Array, combiner: str
) -> Array | None:
    """The number of the last update of every element, if only the last one counts.

    None for out-of-range indices, and for tables with more than `MAX_PLACES` elements.
    """
    if prod(shape) > MAX_PLACES or any(p.size and not -n <= p.min() <= p.max() < n
           for p, n in zip(places, shape, strict=True)):
        return None
    last = np.full(shape, NOWHERE, np.int64)
    last[tuple(places)] = numbers
    is_last = combiner == "none" or int((last != NOWHERE).sum()) == numbers.size
    return last if is_last else None


@dataclass(frozen=True)
class _Updates:
    """`count` updates for each point of x that names of it begin with."""

    count: Expr
    places: Callable[[Sequence[Expr], Expr], Sequence[tuple[Read, Expr]]]
    """For a point of x and the number of an update: the entries of the update's place to read, and
    the index that each has if the update is for that point."""

    def at_point(
        self, domain: Domain, point: Sequence[Expr]
    ) -> tuple[Expr, list[Read], Callable[[Body, Sequence[Scalar]], Scalar]]:
        """The number of an update, what to read, and whether the update is for the point."""
        [j] = domain.reduce(self.count)
        entries = self.places(point, j)

        def hit(body: Body, read: Sequence[Scalar]) -> Scalar:
            found = [place.compare("eq", body.index(wanted))
                     for place, (_, wanted) in zip(read, entries, strict=False)]
            return reduce(lambda a, b: a & b, found)

        return j, [place for place, _ in entries], hit


class _Scatter(NamedTuple):
    """A scatter into x."""

    x: SSAValue
    updates: SSAValue
    combiner: str
    any_order: bool = False

    @staticmethod
    def of(op: ScatterElementsOp | ScatterNdOp, updates: SSAValue) -> _Scatter:
        return _Scatter(op.x, updates, text_of(op.properties, "combiner", "none"),
                        text_of(op.properties, "order", "fixed") == "any")

    def is_unordered(self, at: Rewriter) -> bool:
        """Whether many programs add the updates, each whenever it comes to it."""
        if not self.any_order or self.combiner != "add":
            return False
        return held_element(type_of(self.x).element, self.combiner) in at.context.facts.atomics

    def is_faster_at_once(self, at: Rewriter, count: Expr, places: Sequence[Expr]) -> bool:
        """Whether all elements can look for their updates in less time than these take in order.

        `places` are the sizes of the dims of x that updates may be for.
        """
        x = type_of(self.x)
        elements, updates = product(x.shape).constant, count.constant or 0
        looking = elements if self.combiner != "none" else product(places).constant
        if at.context.facts.programs == 1 or not elements or not looking or updates < LEAST or (
                self.is_unordered(at)):
            return False
        return looking * updates / COMPARED + 2 * elements * x.dtype.itemsize / MOVED < (
            updates * STEP)

    def at_once(
        self, at: Rewriter, found: _Updates, places: Sequence[Expr], update_index: Index
    ) -> SSAValue:
        """Every point looks for its updates. `places` are sizes of the leading dims of x."""
        if self.combiner == "none":
            return self.from_numbers(at, self._last(at, found, places), update_index)
        type_ = type_of(self.x)
        held, start = held_element(type_.element, self.combiner), self._neutral()
        domain = Domain()
        point = domain.parallel(*type_.shape)
        j, reads, hit = found.at_point(domain, point)
        reads.append(Read(self.updates, update_index(point, j), 0))

        def update(body: Body, read: Sequence[Scalar]) -> Scalar:
            value = recoded(read[-1], held)
            other = value.like(start) if value.is_float else recoded(read[-1].like(start), held)
            return hit(body, read).where(value, other)

        total = make_nest(at, domain, reads, tensor(held, type_.shape), update,
                          combiner=self.combiner)

        def merged(x: Scalar, total: Scalar) -> Scalar:
            return recoded(_combined(self.combiner, recoded(x, held), total), type_.element)

        return pointwise(at, [self.x, total], type_, merged)

    def is_faster_sorted(self, at: Rewriter, count: Expr) -> bool:
        """Whether updates are sorted and summed in less time than they take in order."""
        shape, elements = type_of(self.updates).shape, product(type_of(self.updates).shape).constant
        known = elements and all(s.constant for s in type_of(self.x).shape) and len(shape)
        if at.context.facts.programs == 1 or not known or self.combiner == "none" or (
                self.is_unordered(at)):
            return False
        width = t.byte_width(t.wide_element(type_of(self.x).element))
        return SORTED + PASSES * (elements or 0) * width / MOVED < (count.constant or 0) * STEP

    def sorted(self, at: Rewriter, entries: Sequence[SSAValue], count: int) -> SSAValue:
        """Sort the updates by place, and merge runs of a place."""
        type_, depth = type_of(self.x), len(entries)
        held = held_element(type_.element, self.combiner)
        places = linear_places(at, entries, type_.shape[:depth])
        x, updates = (_recoded(at, v, held) for v in (in_rows(at, self.x, depth), self.updates))
        found = scatter_sorted(at, x, places, updates, count,
                               lambda a, b: _combined(self.combiner, a, b))
        whole = at.insert(ViewOp.of(found, type_.shape)).results[0]
        return _recoded(at, whole, type_.element)

    def _neutral(self) -> Number:
        """The number that changes nothing when it is combined."""
        kind = np.dtype(type_of(self.x).dtype)
        ends = {"max": lowest(kind), "min": highest(kind)}
        return {"add": 0, "mul": 1}.get(self.combiner) or ends.get(self.combiner, 0)

    def _last(self, at: Rewriter, found: _Updates, places: Sequence[Expr]) -> SSAValue:
        """The number of the last update for each point of the leading dims; -1 if there is none."""
        domain = Domain()
        point = domain.parallel(*places)
        j, reads, hit = found.at_point(domain, point)
        return make_nest(
            at, domain, reads, tensor(t.i64, places),
            lambda body, read: hit(body, read).where(body.index(j), NOWHERE), combiner="max")

    def from_table(self, at: Rewriter, table: Array, update_index: Index) -> SSAValue:
        """The same as `from_numbers`, for numbers known at compile time."""
        numbers = at.insert(ConstantOp.of_array(table, at.context.weights, "places")).results[0]
        return self.from_numbers(at, numbers, update_index)

    def from_numbers(self, at: Rewriter, numbers: SSAValue, update_index: Index) -> SSAValue:
        """Every point takes or merges the update of its number. Numbers have leading dims of x."""
        result = type_of(self.x)
        held = held_element(result.element, self.combiner)
        domain = Domain()
        point = domain.parallel(*result.shape)
        reads = [Read(numbers, point[:type_of(numbers).rank]),
                 Read(self.updates, update_index(point, Expr.gathered(0)), 0),
                 Read(self.x, point)]

        def changed(body: Body, read: Sequence[Scalar]) -> Scalar:
            number, update, x = read
            if self.combiner != "none":
                sides = (recoded(v, held) for v in (x, update))
                update = recoded(_combined(self.combiner, *sides), result.element)
            return number.compare("ge", 0).where(update, x)

        return make_nest(at, domain, reads, result, changed)

    def in_order(
        self, at: Rewriter, domain: Domain, places: Sequence[Read], update: Sequence[Expr],
        where: Sequence[Expr],
    ) -> SSAValue:
        """Merge the updates at `update` into the elements at `where`, which `places` determine."""
        type_ = type_of(self.x)
        held = type_.element if self.combiner == "none" else held_element(
            type_.element, self.combiner)

        merged = make_nest(
            at, domain, [*places, Read(self.updates, update)], tensor(held, type_.shape),
            lambda body, read: recoded(read[-1], held), index=where, combiner=self.combiner,
            into=_recoded(at, self.x, held), unordered=self.is_unordered(at))
        return _recoded(at, merged, type_.element)


def _recoded(at: Rewriter, value: SSAValue, element: Attribute) -> SSAValue:
    """A tensor in another type, such as the one in which elements are merged."""
    def recode(x: Scalar) -> Scalar:
        return recoded(x, element)

    type_ = type_of(value)
    if type_.element == element:
        return value
    return pointwise(at, [value], tensor(element, type_.shape), recode)


def _combined(combiner: str, x: Scalar, y: Scalar) -> Scalar:
    if combiner in ("max", "min"):
        return x.maximum(y) if combiner == "max" else x.minimum(y)
    return x + y if combiner == "add" else x * y
