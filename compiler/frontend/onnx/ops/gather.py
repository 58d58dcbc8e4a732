"""Operators that read elements at indices."""

from __future__ import annotations

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value
from dialects.graph.gather import GatherElementsOp
from dialects.strata import types as t


@onnx_op("Gather")
def gather(n: Node, x: Value, indices: Value) -> Value:
    axis = n.axis(n.integer("axis"), x.rank)
    n.require_index(indices, x.shape[axis])
    return f.gather(x, indices, axis=axis)


@onnx_op("GatherElements")
def gather_elements(n: Node, x: Value, indices: Value) -> Value:
    axis = n.axis(n.integer("axis"), x.rank)
    n.require_index(indices, x.shape[axis])
    return n(GatherElementsOp, x, indices, axis=axis)


@onnx_op("GatherND")
def gather_nd(n: Node, x: Value, indices: Value) -> Value:
    batch = n.integer("batch_dims")
    n.require_vectors(indices, x.shape[batch:])
    return f.gather_nd(x, indices, batch_dims=batch)


@onnx_op("OneHot")
def one_hot(n: Node, indices: Value, depth: Value, values: Value) -> Value:
    """values = [off, on]: on at each index, off elsewhere and for indices out of range."""
    size = n.known_size(_whole(n, depth), "depth")
    axis = n.axis(n.integer("axis", -1), indices.rank + 1)
    whole = indices.cast(t.i64)
    end = n.of_size(size).cast(t.i64)
    there = (whole < end) & (whole >= -end)
    places = f.where(there, whole % end, -1)
    apart = places.reshape([*indices.shape[:axis], 1, *indices.shape[axis:]])
    range_ = n.range(size)
    hit = f.equal(apart, range_.reshape([size, *[1] * (indices.rank - axis)]))
    off, on = (f.gather(values, n.constant(np.array(k)), axis=0) for k in (0, 1))
    return f.where(hit, on, off)


def _whole(n: Node, number: Value) -> Value:
    """A float as an integer."""
    if not t.is_float(number.element):
        return number
    if number.array is not None:
        return n.constant(number.array.astype(np.int64))
    return number.cast(t.i64)


@onnx_op("ReverseSequence")
def reverse_sequence(n: Node, x: Value, lengths: Value) -> Value:
    """Reverse the first lengths[b] entries of each item b of the batch."""
    batch, time = (n.axis(n.integer(f"{name}_axis", default), x.rank)
                   for name, default in (("batch", 1), ("time", 0)))
    if {batch, time} != {0, 1}:
        raise Fault(f"batch_axis {batch} and time_axis {time} must be 0 and 1")
    n.require(0, lengths, x.shape[time] + 1)
    sizes = lengths.cast(t.i64)
    sizes = sizes.reshape([lengths.shape[0], 1] if batch == 0 else [1, lengths.shape[0]])
    range_ = n.range(x.shape[time])
    places = range_.reshape([1, x.shape[1]] if time == 1 else [x.shape[0], 1])
    one = n.scalar(1, places)
    backwards = sizes - places - one
    taken = f.where(places < sizes, backwards, places)
    moved = x if batch == 0 else x.transpose([1, 0, *range(2, x.rank)])
    chosen = taken if batch == 0 else taken.transpose([1, 0])
    found = f.gather_nd(moved, chosen.reshape([*chosen.shape, 1]), batch_dims=1)
    return found if batch == 0 else found.transpose([1, 0, *range(2, x.rank)])
