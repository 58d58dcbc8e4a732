"""Operators that pick elements by index."""

from __future__ import annotations

from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.values import Value
from dialects.graph.gather import GatherElementsOp, GatherNdOp, GatherOp


@onnx_op("Gather")
def gather(n: Node, x: Value, indices: Value) -> Value:
    return n(GatherOp, x, indices, axis=n.axis(n.integer("axis"), x.rank))


@onnx_op("GatherElements")
def gather_elements(n: Node, x: Value, indices: Value) -> Value:
    return n(GatherElementsOp, x, indices, axis=n.axis(n.integer("axis"), x.rank))


@onnx_op("GatherND")
def gather_nd(n: Node, x: Value, indices: Value) -> Value:
    return n(GatherNdOp, x, indices, batch_dims=n.integer("batch_dims"))
