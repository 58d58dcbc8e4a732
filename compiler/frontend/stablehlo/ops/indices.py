"""Gathers and scatters at index vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.node import fixed
from compiler.frontend.stablehlo.node import Node
from compiler.frontend.stablehlo.ops import hlo_op
from compiler.frontend.stablehlo.ops.reductions import combiner_of
from compiler.frontend.values import Value
from dialects.graph.scatter import ScatterElementsOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.size_products import product


def _places(
    n: Node, x: Value, indices: Value, vector: int, dims: list[int], window: Sequence[Size],
    clamp: bool,
) -> tuple[Value, list[Expr], Value]:
    """Row-major places in x [starts, window], the shape of the starts, and whether each window is
    inside x. Windows beyond are moved inside if they are clamped."""
    columns = indices if vector < indices.rank else indices.reshape([*indices.shape, 1])
    others = [k for k in range(columns.rank) if k != vector]
    starts = [columns.shape[k] for k in others]
    rows = columns.transpose([*others, vector]).reshape([product(starts), len(dims)])
    total = n.constant(np.zeros((1, 1), np.int64))
    within: Value | None = None
    for k, dim in enumerate(dims):
        room = x.shape[dim] - window[dim]
        start = rows.part(1, k, 1).cast(t.i64)
        if clamp:
            start = f.minimum(f.maximum(start, 0), n.of_size(room))
        else:
            fits = (start >= 0) & (start <= n.of_size(room))
            within = fits if within is None else within & fits
            start = f.where(fits, start, 0)
        total = total + start * n.of_size(product(x.shape[dim + 1:]))
    for dim, size in enumerate(window):
        steps = n.range(size) * n.of_size(product(x.shape[dim + 1:]))
        total = (total.reshape([total.shape[0], total.shape[1], 1]) + steps).reshape(
            [total.shape[0], total.shape[1] * size])
    total = total.broadcast([product(starts), total.shape[1]])
    return total, starts, total if within is None else within


def _with_batches(n: Node, indices: Value, vector: int, dims: list[int]) -> Value:
    """Index vectors with the position along each dim of a batch as further elements."""
    if not dims:
        return indices
    columns = indices if vector < indices.rank else indices.reshape([*indices.shape, 1])
    shape = [Expr.of(1) if k == vector else size for k, size in enumerate(columns.shape)]
    parts = [columns]
    for dim in dims:
        steps = n.range(shape[dim], columns.element)
        parts.append(steps.reshape([shape[dim], *[1] * (len(shape) - dim - 1)]).broadcast(shape))
    return f.concat(parts, axis=vector)


@hlo_op("stablehlo.gather")
def gather(n: Node, x: Value, indices: Value) -> Value:
    """Windows of x at starts, which are moved inside x."""
    return _gathered(n, x, indices, [Expr.of(size) for size in n.ints("slice_sizes")])


@hlo_op("stablehlo.dynamic_gather")
def dynamic_gather(n: Node, x: Value, indices: Value, sizes: Value) -> Value:
    return _gathered(n, x, indices, n.sizes(sizes, "slice sizes"))


def _gathered(n: Node, x: Value, indices: Value, window: list[Expr]) -> Value:
    numbers: dict[str, Any] = n.op.attributes.get("dimension_numbers", {})
    own = list(numbers.get("operand_batching_dims", []))
    collapsed = [*numbers.get("collapsed_slice_dims", []), *own]
    vector = numbers.get("index_vector_dim", 0)
    indices = _with_batches(n, indices, vector, numbers.get("start_indices_batching_dims", []))
    places, starts, _ = _places(n, x, indices, vector, [
        *numbers.get("start_index_map", []), *own], window, True)
    found = f.gather(x.reshape([product(x.shape)]), places, axis=0)
    kept = [size for dim, size in enumerate(window) if dim not in collapsed]
    found = found.reshape([*starts, *kept])
    offsets = list(numbers.get("offset_dims", []))
    rank = found.rank
    batch = [k for k in range(rank) if k not in offsets]
    order = [*batch, *offsets]
    return found.transpose([order.index(k) for k in range(rank)])


@hlo_op("stablehlo.scatter")
def scatter(n: Node, x: Value, indices: Value, updates: Value) -> Value:
    """Windows of updates combined into x; those that are not inside x are left out."""
    numbers: dict[str, Any] = n.op.attributes.get("scatter_dimension_numbers", {})
    batches = list(numbers.get("input_batching_dims", []))
    inserted = [*numbers.get("inserted_window_dims", []), *batches]
    vector = numbers.get("index_vector_dim", 0)
    indices = _with_batches(n, indices, vector, numbers.get("scatter_indices_batching_dims", []))
    own: list[int] = list(numbers.get("update_window_dims", []))
    sizes = iter([fixed(updates.shape[k], "windows") for k in own])
    window = [1 if dim in inserted else next(sizes) for dim in range(x.rank)]
    places, starts, inside = _places(
        n, x, indices, vector,
        [*numbers.get("scatter_dims_to_operand_dims", []), *batches], window, False)
    outer = [k for k in range(updates.rank) if k not in own]
    rows = updates.transpose([*outer, *own]).reshape([product(starts), places.shape[1]])
    return _added(n, x, places, rows, inside, _combiner(n))


def _combiner(n: Node) -> str:
    """What the region computes; "none" if it returns the update."""
    region = n.op.regions[0]
    [last] = region.operations[-1:]
    if len(region.operations) == 1 and last.operands == [region.arguments[1][0]]:
        return "none"
    return combiner_of(region)


def _added(
    n: Node, x: Value, places: Value, rows: Value, inside: Value, combiner: str
) -> Value:
    """Updates that are not inside x go to one more element, which is dropped."""
    count = product(x.shape)
    flat = f.concat([x.reshape([count]), n.scalar(0, x).reshape([1])], axis=0)
    if inside.element == t.i1:
        places = f.where(inside, places, n.of_size(count))
    made = n(ScatterElementsOp, flat, places.reshape([product(places.shape)]),
             rows.reshape([product(rows.shape)]), axis=0, combiner=combiner)
    return made.part(0, 0, count).reshape(x.shape)
