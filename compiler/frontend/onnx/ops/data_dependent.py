"""Operators with data-dependent result sizes: NonZero, Compress, Unique."""

from __future__ import annotations

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.places import chosen_places, coordinates, groups_of, is_set, numbered
from compiler.frontend.values import Value
from dialects.graph.ordering import TopKOp
from dialects.graph.scatter import ScatterElementsOp
from dialects.symbolic.expr import Expr, minimum
from dialects.symbolic.size_products import product


@onnx_op("NonZero", since=9)
def non_zero(n: Node, x: Value) -> Value:
    """The coordinates of all elements that are not 0: [rank, count], of a scalar [1, count]."""
    shape = x.shape or (Expr.of(1),)
    places = chosen_places(n, is_set(x).reshape([x.type.count]))
    rows = [c.reshape([1, c.shape[0]]) for c in coordinates(n, places, shape)]
    return f.concat(rows, axis=0)


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
@onnx_op("Unique", since=11)
def unique(n: Node, x: Value) -> list[Value]:
    """Results: the distinct entries, their first indices, the group of each entry, the counts."""
    axis = n.axis(n.integer("axis"), x.rank) if n.has("axis") else None
    moved = x.reshape([x.type.count]) if axis is None else x.transpose(
        [axis, *(k for k in range(x.rank) if k != axis)])
    size = moved.shape[0]
    groups = groups_of(n, moved.reshape([size, product(moved.shape[1:])]))
    first = f.gather(groups.order, groups.first, axis=0)
    inverse, counts = numbered(n, groups, size)
    if not n.flag("sorted", True):
        first, inverse, counts = _as_they_came(n, first, inverse, counts)
    entries = f.gather(moved, first, axis=0)
    if axis is not None:
        entries = entries.transpose([*range(1, axis + 1), 0, *range(axis + 1, x.rank)])
    return [entries, first, inverse, counts]


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
