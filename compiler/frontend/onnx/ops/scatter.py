"""Operators that write elements at indices."""

from __future__ import annotations

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value
from dialects.graph.gather import GatherElementsOp
from dialects.graph.scatter import ScatterElementsOp, ScatterNdOp
from dialects.graph.shape import PadOp
from dialects.strata import types as t
from dialects.symbolic.size_products import product


@onnx_op("Scatter", "ScatterElements")
def scatter_elements(n: Node, x: Value, indices: Value, updates: Value) -> Value:
    axis = n.axis(n.integer("axis"), x.rank)
    n.require_index(indices, x.shape[axis])
    return n(ScatterElementsOp, x, indices, updates, axis=axis,
             combiner=n.text("reduction", "none"), order="any")


@onnx_op("ScatterND")
def scatter_nd(n: Node, x: Value, indices: Value, updates: Value) -> Value:
    length = indices.rank - 1 + x.rank - updates.rank
    if indices.rank and indices.shape[-1].constant is None and 0 < length <= x.rank:
        n.build.assume(indices.shape[-1], "==", length)
        indices = indices.reshape([*indices.shape[:-1], length])
    n.require_vectors(indices, x.shape)
    return n(ScatterNdOp, x, indices, updates, combiner=n.text("reduction", "none"), order="any")


@onnx_op("TensorScatter")
def tensor_scatter(n: Node, past: Value, update: Value, starts: Value | None = None) -> Value:
    """A cache with new entries from index starts[batch] on.

    Each position of the cache reads its new entry, if there is one. Mode circular wraps around at
    the end.
    """
    axis = n.axis(n.integer("axis", -2), past.rank)
    offset, size = n.positions(past, axis), past.shape[axis]
    circular = n.text("mode", "linear") == "circular"
    if starts is not None:
        n.require(0, starts, size if circular else size - update.shape[axis] + 1)
        starts = starts.cast(t.i64).reshape([past.shape[0], *[1] * (past.rank - 1)])
        offset = offset - starts
    if circular:
        offset = offset % n.of_size(size)
    last = n.of_size(update.shape[axis] - 1)
    zero = n.scalar(0, offset)
    entry = f.minimum(f.maximum(offset, zero), last)
    found = n(GatherElementsOp, update, entry.broadcast(past.shape), axis=axis)
    inside = (offset >= zero) & (offset <= last)
    return f.where(inside, found, past)


@onnx_op("MaxUnpool")
def max_unpool(n: Node, x: Value, indices: Value, shape: Value | None = None) -> Value:
    """Zeros, with the elements of x at the indices that MaxPool returned.

    If `shape` is given, the result is padded with zeros at the end.
    """
    rank = x.rank - 2
    kernel, strides = n.ints("kernel_shape"), n.ints("strides", [1] * rank)
    pads = n.ints("pads", [0] * (2 * rank))
    if not len(kernel) == len(strides) == len(pads) // 2 == rank:
        raise Fault(f"kernel_shape, strides and pads do not fit {x.type.short}")
    pooled = [(s - 1) * strides[k] + kernel[k] - pads[k] - pads[k + rank]
              for k, s in enumerate(x.shape[2:])]
    sizes = [*x.shape[:2], *pooled]
    zeros = n.scalar(0, x).broadcast([product(sizes)])
    n.require(0, indices, product(sizes))
    flat, places = (v.reshape([x.type.count]) for v in (x, indices))
    result = n(ScatterElementsOp, zeros, places, flat, axis=0, combiner="none").reshape(sizes)
    if shape is None:
        return result
    wanted = n.known_sizes(shape, "output shape", x.rank)
    more = [w - s for w, s in zip(wanted, sizes, strict=True)]
    return n(PadOp, result, low=[0] * x.rank, high=more, mode="constant", value=0.0)
