"""Operators that pick elements by index."""

from __future__ import annotations

import numpy as np

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value
from dialects.graph.constant import RangeOp
from dialects.graph.elementwise import ModOp, SubOp
from dialects.graph.gather import GatherElementsOp, GatherNdOp, GatherOp
from dialects.graph.logic import AndOp, EqualOp, GreaterEqualOp, LessOp, WhereOp
from dialects.graph.unary import NegOp
from dialects.strata import types as t


@onnx_op("Gather")
def gather(n: Node, x: Value, indices: Value) -> Value:
    axis = n.axis(n.integer("axis"), x.rank)
    n.require_index(indices, x.shape[axis])
    return n(GatherOp, x, indices, axis=axis)


@onnx_op("GatherElements")
def gather_elements(n: Node, x: Value, indices: Value) -> Value:
    axis = n.axis(n.integer("axis"), x.rank)
    n.require_index(indices, x.shape[axis])
    return n(GatherElementsOp, x, indices, axis=axis)


@onnx_op("GatherND")
def gather_nd(n: Node, x: Value, indices: Value) -> Value:
    batch = n.integer("batch_dims")
    n.require_vectors(indices, x.shape[batch:])
    return n(GatherNdOp, x, indices, batch_dims=batch)


@onnx_op("OneHot")
def one_hot(n: Node, indices: Value, depth: Value, values: Value) -> Value:
    """values = [off, on]: on at each index, off elsewhere and for indices that are no place."""
    [size] = n.known_sizes(_whole(n, depth), "numbers of values")
    axis = n.axis(n.integer("axis", -1), indices.rank + 1)
    whole = n.cast(indices, t.i64)
    end = n.cast(n.of_size(size), t.i64)
    there = n(AndOp, n(LessOp, whole, end), n(GreaterEqualOp, whole, n(NegOp, end)))
    places = n(WhereOp, there, n(ModOp, whole, end), n.scalar(-1, end))
    apart = n.reshape(places, [*indices.shape[:axis], 1, *indices.shape[axis:]])
    range_ = n(RangeOp, start=0, step=1, count=size, to=t.i64)
    hit = n(EqualOp, apart, n.reshape(range_, [size, *[1] * (indices.rank - axis)]))
    off, on = (n(GatherOp, values, n.constant(np.array(k)), axis=0) for k in (0, 1))
    return n(WhereOp, hit, on, off)


def _whole(n: Node, number: Value) -> Value:
    """A float as an integer."""
    if not t.is_float(number.element):
        return number
    if number.array is not None:
        return n.constant(number.array.astype(np.int64))
    return n.cast(number, t.i64)


@onnx_op("ReverseSequence")
def reverse_sequence(n: Node, x: Value, lengths: Value) -> Value:
    """The first lengths[b] entries of each item b of the batch, backwards."""
    batch, time = (n.axis(n.integer(f"{name}_axis", default), x.rank)
                   for name, default in (("batch", 1), ("time", 0)))
    if {batch, time} != {0, 1}:
        raise Fault(f"batch_axis {batch} and time_axis {time} must be 0 and 1")
    n.require(0, lengths, x.shape[time] + 1)
    sizes = n.cast(lengths, t.i64)
    sizes = n.reshape(sizes, [lengths.shape[0], 1] if batch == 0 else [1, lengths.shape[0]])
    range_ = n(RangeOp, start=0, step=1, count=x.shape[time], to=t.i64)
    places = n.reshape(range_, [1, x.shape[1]] if time == 1 else [x.shape[0], 1])
    one = n.scalar(1, places)
    backwards = n(SubOp, n(SubOp, sizes, places), one)
    taken = n(WhereOp, n(LessOp, places, sizes), backwards, places)
    moved = x if batch == 0 else n.transpose(x, [1, 0, *range(2, x.rank)])
    chosen = taken if batch == 0 else n.transpose(taken, [1, 0])
    found = n(GatherNdOp, moved, n.reshape(chosen, [*chosen.shape, 1]), batch_dims=1)
    return found if batch == 0 else n.transpose(found, [1, 0, *range(2, x.rank)])
