"""Operators that write elements at indices.

As in eager mode, sums of `index_add` and of the operators along one axis come in any order on a
GPU, unless `torch.use_deterministic_algorithms` asks for one, and those of `index_put` in a fixed
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import Operand, aten_op
from compiler.frontend.torch.ops.data_dependent import by_places
from compiler.frontend.torch.ops.elementwise import floored, operand, scaled
from compiler.frontend.torch.ops.gather import index_vectors, require_places
from compiler.frontend.values import Value
from dialects.graph.scatter import ScatterElementsOp, ScatterNdOp
from dialects.graph.shape import SliceOp
from dialects.semantics.numerics import highest, lowest
from dialects.strata import types as t

_OF_TRUTH_VALUES = {"add": "max", "mul": "min", "max": "max", "min": "min"}
"""Combiners of truth values, as bytes of 0 and 1."""
_COMBINERS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max",
              "amin": "min"}


# ---------------------------------------------------------------------- along one axis
@aten_op("aten.scatter.src")
def scatter(n: Node, x: Value, axis: int, indices: Value, source: Value) -> Value:
    return _scatter(n, x, axis, indices, source, "none")


@aten_op("aten.scatter.value")
def scatter_value(n: Node, x: Value, axis: int, indices: Value, value: Operand) -> Value:
    source = operand(n, value, x.element).broadcast(indices.shape)
    return _scatter(n, x, axis, indices, source, "none")


@aten_op("aten.scatter_add.default")
def scatter_add(n: Node, x: Value, axis: int, indices: Value, source: Value) -> Value:
    return _scatter(n, x, axis, indices, source, "add")


@aten_op("aten.scatter.reduce")
def scatter_combined(
    n: Node, x: Value, axis: int, indices: Value, source: Value, combiner: str
) -> Value:
    return _scatter(n, x, axis, indices, source, _COMBINERS[combiner])


@aten_op("aten.scatter_reduce.two")
def scatter_reduce(
    n: Node, x: Value, axis: int, indices: Value, source: Value, combiner: str,
    include_self: bool,
) -> Value:
    """Combine elements along an axis; without `include_self`, elements that are met leave out x's.
    """
    base = x
    if not include_self:
        neutral = n.scalar(_neutral(combiner, t.dtype_of(x.element)), x.element)
        base = _scatter(n, x, axis, indices, neutral.broadcast(indices.shape), "none")
    if combiner != "mean":
        return _scatter(n, base, axis, indices, source, _COMBINERS[combiner])
    total = _scatter(n, base, axis, indices, source, "add")
    ones = n.scalar(1, t.i64).broadcast(indices.shape)
    start = n.scalar(int(include_self), t.i64).broadcast(x.shape)
    counts = f.maximum(_scatter(n, start, axis, indices, ones, "add"), 1).cast(x.element)
    return total / counts if t.is_float(x.element) else floored(n, total, counts)


def _neutral(combiner: str, dtype: np.dtype[Any]) -> Any:
    """What a combiner leaves the other operand with."""
    if combiner in ("amax", "amin"):
        return lowest(dtype) if combiner == "amax" else highest(dtype)
    return int(combiner == "prod")


def _scatter(
    n: Node, x: Value, axis: int, indices: Value, source: Value, combiner: str
) -> Value:
    """Write or combine elements along an axis.

    If the source is larger than the indices, only its first entries are used.
    """
    if not x.rank:
        return _scatter(n, x.reshape([1]), 0, indices.reshape([1]), source.reshape([1]),
                        combiner).reshape([])
    if source.shape != indices.shape:
        source = n(SliceOp, source, starts=[0] * x.rank, sizes=list(indices.shape),
                   steps=[1] * x.rank)
    axis = n.axis(axis, x.rank)
    if x.element == t.i1 and combiner != "none":
        return _scatter(n, x.cast(t.ui8), axis, indices, source.cast(t.i1).cast(t.ui8),
                        _OF_TRUTH_VALUES[combiner]).cast(t.i1)
    n.require(0, indices, x.shape[axis])
    return n(ScatterElementsOp, x, indices, source.cast(x.element), axis=axis, combiner=combiner,
             **(_in_any_order() if combiner == "add" else {}))


def _in_any_order() -> dict[str, str]:
    """The order of a sum's updates, unless eager mode must keep to one, too."""
    import torch

    return {} if torch.are_deterministic_algorithms_enabled() else {"order": "any"}


# ---------------------------------------------------------------------- x[indices] = values
@aten_op("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    n: Node, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool
) -> Value:
    """x with the elements at index vectors replaced by values, or with values added to them."""
    picks = [i for i in indices if i is not None]
    if any(i.element in (t.i1, t.ui8) for i in picks):
        if len(indices) == 1 and not accumulate and values.type.count.constant == 1:
            return _under_mask(x, picks[0], values)
        indices = by_places(n, indices)
    axes = [k for k, i in enumerate(indices) if i is not None]
    if axes != list(range(axes[0], axes[0] + len(axes))):
        raise Fault("its index tensors must be for consecutive dims")
    require_places(n, x, indices)
    return put(n, x, indices, values, accumulate)


def put(
    n: Node, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool,
    **order: str,
) -> Value:
    """The same as `index_put`, for indices of consecutive dims that have been checked."""
    picks = [i for i in indices if i is not None]
    axes = [k for k, i in enumerate(indices) if i is not None]
    vectors = index_vectors(picks)
    others = [k for k in range(x.rank) if k not in axes]
    dims = [*axes, *others]
    count, before = vectors.rank - 1, axes[0]
    sizes = [*x.shape[:before], *vectors.shape[:-1], *x.shape[axes[-1] + 1:]]
    values = values.cast(x.element).broadcast(sizes)
    if len(picks) == 1 and picks[0].type.count.constant == 1 and not accumulate:
        one = [1 if k == before else size for k, size in enumerate(x.shape)]
        return _replaced(n, x, before, picks[0], values.reshape(one))
    updates = values.transpose([*range(before, before + count), *range(before),
                                *range(before + count, len(sizes))])
    target, combiner = x.transpose(dims), "add" if accumulate else "none"
    if x.element == t.i1 and accumulate:
        target, updates, combiner = target.cast(t.ui8), updates.cast(t.ui8), "max"
    moved = n(ScatterNdOp, target, vectors, updates, combiner=combiner, **order).cast(x.element)
    return moved.transpose([dims.index(k) for k in range(x.rank)])


def _under_mask(x: Value, mask: Value, values: Value) -> Value:
    """x[mask] = value, for a single value."""
    mask = mask.reshape([*mask.shape, *[1] * (x.rank - mask.rank)])
    return f.where(mask.cast(t.i1), values.cast(x.element).reshape([]), x)


@aten_op("aten.index_copy.default")
def index_copy(n: Node, x: Value, axis: int, indices: Value, source: Value) -> Value:
    """Replace slices at indices.

    PyTorch decomposes `index_fill`, whose indices may be negative, to `index_copy`.
    """
    if not x.rank:
        return index_copy(n, x.reshape([1]), 0, indices, source.reshape([1])).reshape([])
    axis = n.axis(axis, x.rank)
    n.require(-x.shape[axis], indices, x.shape[axis])
    if indices.type.count.constant == 1:
        return _replaced(n, x, axis, indices, source)
    return put(n, x, [*_no_picks(axis), indices], source, False)


@aten_op("aten.index_add.default")
def index_add(
    n: Node, x: Value, axis: int, indices: Value, source: Value, alpha: Operand = 1
) -> Value:
    """Add alpha * source to slices at indices."""
    if not x.rank:
        return index_add(n, x.reshape([1]), 0, indices.reshape([indices.type.count]),
                         source.reshape([indices.type.count]), alpha).reshape([])
    axis = n.axis(axis, x.rank)
    n.require(0, indices, x.shape[axis])
    added = operand(n, scaled(n, source, alpha), x.element)
    return put(n, x, [*_no_picks(axis), indices], added, True, **_in_any_order())


def _no_picks(count: int) -> list[Value | None]:
    return [None] * count


def _replaced(n: Node, x: Value, axis: int, index: Value, source: Value) -> Value:
    """x with one slice replaced.

    No axis is moved, so that if x may be overwritten, only the slice is written.
    """
    indices = index.reshape([1] * x.rank).broadcast(source.shape)
    return n(ScatterElementsOp, x, indices, source.cast(x.element), axis=axis, combiner="none")
