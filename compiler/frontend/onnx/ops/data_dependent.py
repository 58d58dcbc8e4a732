"""Operators with data-dependent result sizes: NonZero, Compress, Unique.

    NonZero:  flags -> their number, bound as a size
                    -> running count -> search of 0, 1, 2 ... in it: positions -> coordinates
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.frontend.loops import Loop, Turn, repeat
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value
from dialects.graph.constant import RangeOp
from dialects.graph.cumulative import CumulativeSumOp
from dialects.graph.elementwise import DivOp, MaxOp, ModOp, SubOp
from dialects.graph.gather import GatherOp
from dialects.graph.logic import EqualOp, OrOp
from dialects.graph.ordering import TopKOp
from dialects.graph.reduce import ReduceMaxOp, ReduceSumOp
from dialects.graph.scatter import ScatterElementsOp
from dialects.graph.search import SearchSortedOp
from dialects.graph.shape import ConcatOp
from dialects.graph.unary import NotOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, minimum
from dialects.symbolic.size_products import product


# ---------------------------------------------------------------------- where flags are set
def is_set(n: Node, x: Value) -> Value:
    """Which elements are not 0."""
    return x if x.element == t.i1 else n(NotOp, n(EqualOp, x, n.scalar(0, x)))


def chosen_places(n: Node, flags: Value) -> Value:
    """The positions, i64, at which a list of truth values is true, in order."""
    marks = n.cast(flags, t.i64)
    [count] = n.known_sizes(n(ReduceSumOp, marks, axes=[0], keepdims=False), "count")
    running = n(CumulativeSumOp, marks, axis=0, exclusive=False, reverse=False)
    ranks = n(RangeOp, start=0, step=1, count=count, to=t.i64)
    return n(SearchSortedOp, running, ranks)


@onnx_op("NonZero", since=9)
def non_zero(n: Node, x: Value) -> Value:
    """The coordinates of all elements that are not 0: [rank, count], of a scalar [1, count]."""
    shape = x.shape or (Expr.of(1),)
    places = chosen_places(n, n.reshape(is_set(n, x), [x.type.count]))
    rows = [n.reshape(c, [1, c.shape[0]]) for c in coordinates(n, places, shape)]
    return n(ConcatOp, *rows, axis=0)


def coordinates(n: Node, places: Value, shape: Sequence[Expr]) -> list[Value]:
    """Per dim, the coordinates of row-major positions."""
    found: list[Value] = []
    for axis, size in enumerate(shape):
        inner = product(shape[axis + 1:])
        at = places if inner.constant == 1 else (
            n(DivOp, places, n.of_size(inner)))
        found.append(at if axis == 0 else n(ModOp, at, n.of_size(size)))
    return found


@onnx_op("Compress", since=9)
def compress(n: Node, x: Value, condition: Value) -> Value:
    """The entries of an axis, or the elements, where the condition holds.

    A condition that is longer than the axis is not looked at beyond it.
    """
    axis = n.axis(n.integer("axis"), x.rank) if n.has("axis") else 0
    x = x if n.has("axis") else n.reshape(x, [x.type.count])
    size, length = x.shape[axis], condition.type.count
    if condition.array is not None and size.constant is not None:
        chosen = n.constant(np.flatnonzero(condition.array.reshape(-1)[:size.constant]))
    else:
        used = length if size == length else minimum(length, size)
        flags = n.reshape(is_set(n, condition), [length])
        chosen = chosen_places(n, n.part(flags, 0, 0, used))
    return n(GatherOp, x, chosen, axis=axis)


# ---------------------------------------------------------------------- unique
@dataclass(frozen=True)
class Groups:
    """Equal entries of a list, the groups in ascending order.

    `order`: the entries sorted; `of_sorted`: the group of each sorted entry; `first`: of each group
    the first place in `order`, which is that of its first entry.
    """

    order: Value
    of_sorted: Value
    first: Value

    @property
    def count(self) -> Expr:
        return self.first.shape[0]


@onnx_op("Unique", since=11)
def unique(n: Node, x: Value) -> list[Value]:
    """Different entries, where each came first, which one every entry is, and how often."""
    axis = n.axis(n.integer("axis"), x.rank) if n.has("axis") else None
    moved = n.reshape(x, [x.type.count]) if axis is None else n.transpose(
        x, [axis, *(k for k in range(x.rank) if k != axis)])
    size = moved.shape[0]
    groups = _groups(n, n.reshape(moved, [size, product(moved.shape[1:])]))
    zeros = n.broadcast(n.constant(np.array(0)), [size])
    first = n(GatherOp, groups.order, groups.first, axis=0)
    inverse = n(ScatterElementsOp, zeros, groups.order, groups.of_sorted, axis=0, combiner="none")
    ones = n.broadcast(n.constant(np.array(1)), [size])
    counts = n(ScatterElementsOp, n.broadcast(n.constant(np.array(0)), [groups.count]),
               groups.of_sorted, ones, axis=0, combiner="add")
    if not n.flag("sorted", True):
        first, inverse, counts = _as_they_came(n, first, inverse, counts)
    entries = n(GatherOp, moved, first, axis=0)
    if axis is not None:
        entries = n.transpose(entries, [*range(1, axis + 1), 0, *range(axis + 1, x.rank)])
    return [entries, first, inverse, counts]


def _groups(n: Node, rows: Value) -> Groups:
    """The groups of equal rows; rows compare from their first element on."""
    order = _sorted_rows(n, rows)
    size = rows.shape[0]
    places = n(RangeOp, start=0, step=1, count=size, to=t.i64)
    zero = n.scalar(0, places)
    before = n(MaxOp, n(SubOp, places, n.scalar(1, places)), zero)
    ranked = n(GatherOp, rows, order, axis=0)
    differs = n(NotOp, n(EqualOp, ranked, n(GatherOp, ranked, before, axis=0)))
    other = n(ReduceMaxOp, n.cast(differs, t.i64), axes=[1], keepdims=False)
    starts = n(OrOp, n(EqualOp, places, zero), is_set(n, other))
    running = n(CumulativeSumOp, n.cast(starts, t.i64), axis=0, exclusive=False, reverse=False)
    return Groups(order, n(SubOp, running, n.scalar(1, running)), chosen_places(n, starts))


def _sorted_rows(n: Node, rows: Value) -> Value:
    """The order of rows: sorted by each column, the last column first, equal ones as they are."""
    rows = n.cast(rows, t.ui8) if rows.element == t.i1 else rows
    size, width = rows.shape
    order = n(RangeOp, start=0, step=1, count=size, to=t.i64)
    if width.constant == 1:
        return _sorted_by(n, rows, order, Expr.of(0))

    def body(step: Expr, carried: list[Value]) -> Turn:
        return Turn(None, [_sorted_by(n, rows, carried[0], width - 1 - step)], [])

    return repeat(n.build, Loop(f"{n.name}_column", width, None, [order]), body)[0][0]


def _sorted_by(n: Node, rows: Value, order: Value, column: Expr) -> Value:
    size = rows.shape[0]
    keys = n.reshape(n.part(rows, 1, column, 1), [size])
    ranked = n(GatherOp, keys, order, axis=0)
    places = n.build.results(TopKOp, ranked, axis=0, k=size, largest=False)[1]
    return n(GatherOp, order, places, axis=0)


def _as_they_came(
    n: Node, first: Value, inverse: Value, counts: Value
) -> tuple[Value, Value, Value]:
    """The groups in the order of their first entries."""
    size = first.shape[0]
    order = n.build.results(TopKOp, first, axis=0, k=size, largest=False)[1]
    places = n(RangeOp, start=0, step=1, count=size, to=t.i64)
    new = n(ScatterElementsOp, places, order, places, axis=0, combiner="none")
    return (n(GatherOp, first, order, axis=0), n(GatherOp, new, inverse, axis=0),
            n(GatherOp, counts, order, axis=0))
