"""Operators that put elements at places that indices give."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import Operand, aten_op
from compiler.frontend.torch.ops.elementwise import operand
from compiler.frontend.torch.ops.gather import index_vectors, require_places
from compiler.frontend.values import Value
from dialects.graph.scatter import ScatterElementsOp, ScatterNdOp
from dialects.graph.shape import SliceOp
from dialects.strata import types as t

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
    if combiner not in _COMBINERS or not include_self:
        raise Fault(f"elements are combined by {combiner}, "
                    f"{'with' if include_self else 'without'} what is there already")
    return _scatter(n, x, axis, indices, source, _COMBINERS[combiner])


def _scatter(
    n: Node, x: Value, axis: int, indices: Value, source: Value, combiner: str
) -> Value:
    """PyTorch uses one entry of the source per index."""
    if not x.rank:
        return _scatter(n, x.reshape([1]), 0, indices.reshape([1]), source.reshape([1]),
                        combiner).reshape([])
    if source.shape != indices.shape:
        source = n(SliceOp, source, starts=[0] * x.rank, sizes=list(indices.shape),
                   steps=[1] * x.rank)
    axis = n.axis(axis, x.rank)
    n.require(0, indices, x.shape[axis])
    return n(ScatterElementsOp, x, indices, source.cast(x.element), axis=axis, combiner=combiner)


# ---------------------------------------------------------------------- x[indices] = values
@aten_op("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    n: Node, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool
) -> Value:
    """x with the elements at index vectors replaced, or added to."""
    picks = [i for i in indices if i is not None]
    if any(i.element in (t.i1, t.ui8) for i in picks):
        return _under_mask(x, indices, values, accumulate)
    axes = [k for k, i in enumerate(indices) if i is not None]
    if axes != list(range(axes[0], axes[0] + len(axes))):
        raise Fault("its index tensors are not side by side")
    require_places(n, x, indices)
    return _put(n, x, indices, values, accumulate)


def _put(
    n: Node, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool
) -> Value:
    """As `index_put`, of indices that are side by side and need no check."""
    picks = [i for i in indices if i is not None]
    axes = [k for k, i in enumerate(indices) if i is not None]
    vectors = index_vectors(picks)
    others = [k for k in range(x.rank) if k not in axes]
    order = [*axes, *others]
    count, before = vectors.rank - 1, axes[0]
    sizes = [*x.shape[:before], *vectors.shape[:-1], *x.shape[axes[-1] + 1:]]
    values = values.cast(x.element).broadcast(sizes)
    if len(picks) == 1 and picks[0].type.count.constant == 1 and not accumulate:
        one = [1 if k == before else size for k, size in enumerate(x.shape)]
        return _replaced(n, x, before, picks[0], values.reshape(one))
    updates = values.transpose([*range(before, before + count), *range(before),
                                *range(before + count, len(sizes))])
    moved = n(ScatterNdOp, x.transpose(order), vectors, updates,
              combiner="add" if accumulate else "none")
    return moved.transpose([order.index(k) for k in range(x.rank)])


def _under_mask(
    x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool
) -> Value:
    """x[mask] = value. Several values would depend on how many elements are true."""
    first = indices[0]
    if len(indices) != 1 or first is None or accumulate or values.type.count.constant != 1:
        raise Fault("it replaces elements where a mask is true, whose number depends on the data",
                    "use torch.where instead")
    mask = first.reshape([*first.shape, *[1] * (x.rank - first.rank)])
    return f.where(mask.cast(t.i1), values.cast(x.element).reshape([]), x)


@aten_op("aten.index_copy.default", "aten.index_add.default")
def index_copy(n: Node, x: Value, axis: int, indices: Value, source: Value) -> Value:
    """PyTorch itself makes `index_copy` of `index_fill`, which counts from the end."""
    axis = n.axis(axis, x.rank)
    if x.rank:
        n.require(0 if "add" in n.op else -x.shape[axis], indices, x.shape[axis])
    if x.rank and indices.type.count.constant == 1 and "add" not in n.op:
        return _replaced(n, x, axis, indices, source)
    picks: list[Value | None] = [None] * axis
    return _put(n, x, [*picks, indices], source, "add" in n.op)


def _replaced(n: Node, x: Value, axis: int, index: Value, source: Value) -> Value:
    """x with one slice replaced: no axis moves, and where x may be given up, nothing else does."""
    indices = index.reshape([1] * x.rank).broadcast(source.shape)
    return n(ScatterElementsOp, x, indices, source.cast(x.element), axis=axis, combiner="none")


@aten_op("aten.masked_scatter.default")
def masked_scatter(n: Node, x: Value) -> Value:
    raise Fault("it takes as many elements as a mask has true ones, which depends on the data",
                "use torch.where instead")
