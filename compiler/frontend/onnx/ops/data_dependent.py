"""Operators with data-dependent result sizes: NonZero, Compress, Unique.

    NonZero:  flags -> their number, bound as a size
                    -> running count -> search of 0, 1, 2 ... in it: positions -> coordinates
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.peeling import repeat
from compiler.frontend.values import Value
from dialects.graph.cumulative import CumulativeSumOp
from dialects.graph.ordering import TopKOp
from dialects.graph.scatter import ScatterElementsOp
from dialects.graph.search import SearchSortedOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, minimum
from dialects.symbolic.size_products import product


# ---------------------------------------------------------------------- where flags are set
def is_set(x: Value) -> Value:
    """Which elements are not 0."""
    return x if x.element == t.i1 else ~f.equal(x, 0)


def chosen_places(n: Node, flags: Value) -> Value:
    """The positions, i64, at which a list of truth values is true, in order."""
    marks = flags.cast(t.i64)
    [count] = n.known_sizes(f.reduce_sum(marks, axes=[0]), "count")
    running = n(CumulativeSumOp, marks, axis=0, exclusive=False, reverse=False)
    ranks = n.range(count)
    return n(SearchSortedOp, running, ranks)


@onnx_op("NonZero", since=9)
def non_zero(n: Node, x: Value) -> Value:
    """The coordinates of all elements that are not 0: [rank, count], of a scalar [1, count]."""
    shape = x.shape or (Expr.of(1),)
    places = chosen_places(n, is_set(x).reshape([x.type.count]))
    rows = [c.reshape([1, c.shape[0]]) for c in coordinates(n, places, shape)]
    return f.concat(rows, axis=0)


def coordinates(n: Node, places: Value, shape: Sequence[Expr]) -> list[Value]:
    """Per dim, the coordinates of row-major positions."""
    found: list[Value] = []
    for axis, size in enumerate(shape):
        inner = product(shape[axis + 1:])
        at = places if inner.constant == 1 else (places / n.of_size(inner))
        found.append(at if axis == 0 else at % n.of_size(size))
    return found


@onnx_op("Compress", since=9)
def compress(n: Node, x: Value, condition: Value) -> Value:
    """The entries of an axis, or of the flattened x, for which the condition is true.

    Elements of the condition beyond the end of the axis are ignored.
    """
    axis = n.axis(n.integer("axis"), x.rank) if n.has("axis") else 0
    x = x if n.has("axis") else x.reshape([x.type.count])
    size, length = x.shape[axis], condition.type.count
    if condition.array is not None and size.constant is not None:
        chosen = n.constant(np.flatnonzero(condition.array.reshape(-1)[:size.constant]))
    else:
        used = length if size == length else minimum(length, size)
        flags = is_set(condition).reshape([length])
        chosen = chosen_places(n, flags.part(0, 0, used))
    return f.gather(x, chosen, axis=axis)


# ---------------------------------------------------------------------- unique
@dataclass(frozen=True)
class Groups:
    """Equal entries of a list, the groups in ascending order.

    `order`: the indices of the entries in sorted order. `of_sorted`: the group of each sorted
    entry. `first`: for each group, the index in `order` of its first entry.
    """

    order: Value
    of_sorted: Value
    first: Value

    @property
    def count(self) -> Expr:
        return self.first.shape[0]


@onnx_op("Unique", since=11)
def unique(n: Node, x: Value) -> list[Value]:
    """Results: the distinct entries, their first indices, the group of each entry, the counts."""
    axis = n.axis(n.integer("axis"), x.rank) if n.has("axis") else None
    moved = x.reshape([x.type.count]) if axis is None else x.transpose(
        [axis, *(k for k in range(x.rank) if k != axis)])
    size = moved.shape[0]
    groups = _groups(n, moved.reshape([size, product(moved.shape[1:])]))
    zeros = n.constant(np.array(0)).broadcast([size])
    first = f.gather(groups.order, groups.first, axis=0)
    inverse = n(ScatterElementsOp, zeros, groups.order, groups.of_sorted, axis=0, combiner="none")
    ones = n.constant(np.array(1)).broadcast([size])
    counts = n(ScatterElementsOp, n.constant(np.array(0)).broadcast([groups.count]),
               groups.of_sorted, ones, axis=0, combiner="add")
    if not n.flag("sorted", True):
        first, inverse, counts = _as_they_came(n, first, inverse, counts)
    entries = f.gather(moved, first, axis=0)
    if axis is not None:
        entries = entries.transpose([*range(1, axis + 1), 0, *range(axis + 1, x.rank)])
    return [entries, first, inverse, counts]


def _groups(n: Node, rows: Value) -> Groups:
    """The groups of equal rows. Rows are compared lexicographically."""
    order = _sorted_rows(n, rows)
    size = rows.shape[0]
    places = n.range(size)
    zero = n.scalar(0, places)
    before = f.maximum(places - 1, zero)
    ranked = f.gather(rows, order, axis=0)
    differs = ~f.equal(ranked, f.gather(ranked, before, axis=0))
    other = f.reduce_max(differs.cast(t.i64), axes=[1])
    starts = f.equal(places, zero) | is_set(other)
    running = n(CumulativeSumOp, starts.cast(t.i64), axis=0, exclusive=False, reverse=False)
    return Groups(order, running - 1, chosen_places(n, starts))


def _sorted_rows(n: Node, rows: Value) -> Value:
    """The lexicographic order of rows, by stable sorts by each column, the last column first."""
    rows = rows.cast(t.ui8) if rows.element == t.i1 else rows
    size, width = rows.shape
    order = n.range(size)
    if width.constant == 1:
        return _sorted_by(n, rows, order, Expr.of(0))

    def body(step: Expr, carried: list[Value]) -> Turn:
        return Turn(None, [_sorted_by(n, rows, carried[0], width - 1 - step)], [])

    return repeat(n.build, Loop(f"{n.name}_column", width, None, [order]), body)[0][0]


def _sorted_by(n: Node, rows: Value, order: Value, column: Expr) -> Value:
    size = rows.shape[0]
    keys = rows.part(1, column, 1).reshape([size])
    ranked = f.gather(keys, order, axis=0)
    places = n.build.results(TopKOp, ranked, axis=0, k=size, largest=False)[1]
    return f.gather(order, places, axis=0)


def _as_they_came(
    n: Node, first: Value, inverse: Value, counts: Value
) -> tuple[Value, Value, Value]:
    """The results of `unique`, with the groups in the order of their first entries."""
    size = first.shape[0]
    order = n.build.results(TopKOp, first, axis=0, k=size, largest=False)[1]
    places = n.range(size)
    new = n(ScatterElementsOp, places, order, places, axis=0, combiner="none")
    return (f.gather(first, order, axis=0), f.gather(new, inverse, axis=0),
            f.gather(counts, order, axis=0))
