"""Operators that read elements at indices."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.frontend import formulas as f
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.torch.ops.data_dependent import by_places
from compiler.frontend.values import Value
from dialects.graph.gather import GatherElementsOp
from dialects.graph.inference import broadcast_shapes
from dialects.strata import types as t


@aten_op("aten.embedding.default", ignored=("padding_idx", "scale_grad_by_freq", "sparse"))
def embedding(n: Node, weight: Value, indices: Value) -> Value:
    n.require(0, indices, weight.shape[0])
    return f.gather(weight, indices, axis=0)


@aten_op("aten.index_select.default")
def index_select(n: Node, x: Value, axis: int, indices: Value) -> Value:
    if not x.rank:
        return x
    axis = n.axis(axis, x.rank)
    n.require(0, indices, x.shape[axis])
    return f.gather(x, indices.reshape([indices.type.count]), axis=axis)


@aten_op("aten.gather.default", ignored=("sparse_grad",))
def gather(n: Node, x: Value, axis: int, indices: Value) -> Value:
    if not x.rank or not indices.rank:
        return x.reshape(n.shape)
    axis = n.axis(axis, x.rank)
    n.require(0, indices, x.shape[axis])
    return n(GatherElementsOp, x, indices, axis=axis)


@aten_op("aten.one_hot.default", ignored=("num_classes",))
def one_hot(n: Node, indices: Value) -> Value:
    """A new last dim with 1 at each index, and 0 elsewhere."""
    n.require(0, indices, n.shape[-1])
    column = indices.reshape([*indices.shape, 1])
    return f.equal(column, n.range(n.shape[-1], column.element)).cast(n.element)


# ---------------------------------------------------------------------- x[indices]
@aten_op("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(n: Node, x: Value, indices: Sequence[Value | None]) -> Value:
    """x[i, :, j]: index tensors are broadcast to one shape, whose dims replace the indexed ones.

    They come at the place of the first indexed dim, or first of all if the indexed dims are not
    consecutive.
    """
    indices = by_places(n, indices)
    axes = [k for k, i in enumerate(indices) if i is not None]
    picks = [i for i in indices if i is not None]
    require_places(n, x, indices)
    if len(axes) == 1:
        return f.gather(x, picks[0], axis=axes[0])
    vectors = index_vectors(picks)
    others = [k for k in range(x.rank) if k not in axes]
    moved = x.transpose([*axes, *others])
    found = f.gather_nd(moved, vectors, batch_dims=0)
    side_by_side = axes == list(range(axes[0], axes[0] + len(axes)))
    return _in_place(found, vectors.rank - 1, axes[0] if side_by_side else 0)


def require_places(n: Node, x: Value, indices: Sequence[Value | None]) -> None:
    """Add run-time checks that indices are in range, except for the `_unsafe` operators."""
    if "_unsafe" in n.op:
        return
    for size, index in zip(x.shape, indices, strict=False):
        if index is not None:
            n.require_index(index, size)


def index_vectors(picks: Sequence[Value]) -> Value:
    """Index tensors, broadcast to one shape, as vectors [..., dims] with an index per dim."""
    shape = broadcast_shapes([i.shape for i in picks])
    columns = [i.cast(t.i64).broadcast(shape).reshape([*shape, 1]) for i in picks]
    return f.concat(columns, axis=len(shape))


def _in_place(x: Value, count: int, place: int) -> Value:
    """Move the first `count` dims after the next `place` dims."""
    leading = range(count, count + place)
    return x.transpose([*leading, *range(count), *range(count + place, x.rank)])
