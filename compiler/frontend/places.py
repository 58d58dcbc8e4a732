"""Data-dependent places: where flags are set, and groups of equal entries.

    flags -> their number, bound as a size
          -> running count -> search of 0, 1, 2 ... in it: positions -> coordinates
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.node import NodeBase
from compiler.frontend.peeling import repeat
from compiler.frontend.values import Value
from dialects.graph.cumulative import CumulativeSumOp
from dialects.graph.ordering import TopKOp
from dialects.graph.scatter import ScatterElementsOp
from dialects.graph.search import SearchSortedOp
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product


# ---------------------------------------------------------------------- where flags are set
def is_set(x: Value) -> Value:
    """Which elements are not 0."""
    return x if x.element == t.i1 else ~f.equal(x, 0)


def size_in(n: NodeBase, count: Value, hint: str) -> Expr:
    """The size that an integer of no dims holds; it is bound to a new one if only a run knows it.
    """
    found = n.build.bind(count, hint)
    if found is None:
        raise Fault(f"its {hint} is known only at run time, and cannot be a size")
    return Expr.of(found.reshape(-1)[0])


def chosen_places(n: NodeBase, flags: Value) -> Value:
    """The positions, i64, at which a list of truth values is true, in order."""
    marks = flags.cast(t.i64)
    count = size_in(n, f.reduce_sum(marks, axes=[0]), "count")
    running = n(CumulativeSumOp, marks, axis=0, exclusive=False, reverse=False)
    return n(SearchSortedOp, running, n.range(count))


def coordinates(n: NodeBase, places: Value, shape: Sequence[Expr]) -> list[Value]:
    """Per dim, the coordinates of row-major positions."""
    found: list[Value] = []
    for axis, size in enumerate(shape):
        inner = product(shape[axis + 1:])
        at = places if inner.constant == 1 else (places / n.of_size(inner))
        found.append(at if axis == 0 else at % n.of_size(size))
    return found


# ---------------------------------------------------------------------- equal entries
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


def groups_of(n: NodeBase, rows: Value) -> Groups:
    """The groups of equal rows. Rows are compared lexicographically."""
    order = _sorted_rows(n, rows)
    size = rows.shape[0]
    places = n.range(size)
    before = f.maximum(places - 1, 0)
    ranked = f.gather(rows, order, axis=0)
    differs = ~f.equal(ranked, f.gather(ranked, before, axis=0))
    other = f.reduce_max(differs.cast(t.i64), axes=[1])
    starts = f.equal(places, 0) | is_set(other)
    running = n(CumulativeSumOp, starts.cast(t.i64), axis=0, exclusive=False, reverse=False)
    return Groups(order, running - 1, chosen_places(n, starts))


def _sorted_rows(n: NodeBase, rows: Value) -> Value:
    """The lexicographic order of rows, by stable sorts by each column, the last column first."""
    rows = rows.cast(t.ui8) if rows.element == t.i1 else rows
    size, width = rows.shape
    order = n.range(size)
    if width.constant == 1:
        return _sorted_by(n, rows, order, Expr.of(0))

    def body(step: Expr, carried: list[Value]) -> Turn:
        return Turn(None, [_sorted_by(n, rows, carried[0], width - 1 - step)], [])

    return repeat(n.build, Loop(f"{n.name}_column", width, None, [order]), body)[0][0]


def _sorted_by(n: NodeBase, rows: Value, order: Value, column: Expr) -> Value:
    size = rows.shape[0]
    keys = rows.part(1, column, 1).reshape([size])
    ranked = f.gather(keys, order, axis=0)
    places = n.build.results(TopKOp, ranked, axis=0, k=size, largest=False)[1]
    return f.gather(order, places, axis=0)


def numbered(n: NodeBase, groups: Groups, size: Expr) -> tuple[Value, Value]:
    """The group of each entry of a list of this size, and the number of entries of each group."""
    zero, one = n.constant(np.array(0)), n.constant(np.array(1))
    inverse = n(ScatterElementsOp, zero.broadcast([size]), groups.order, groups.of_sorted, axis=0,
                combiner="none")
    counts = n(ScatterElementsOp, zero.broadcast([groups.count]), groups.of_sorted,
               one.broadcast([size]), axis=0, combiner="add")
    return inverse, counts
