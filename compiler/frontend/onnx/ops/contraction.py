"""Matrix products."""

from __future__ import annotations

from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value
from dialects.graph.contraction import MatmulOp
from dialects.graph.elementwise import AddOp, MulOp


@onnx_op("MatMul")
def matmul(n: Node, a: Value, b: Value) -> Value:
    return n(MatmulOp, a, b)


@onnx_op("Gemm")
def gemm(n: Node, a: Value, b: Value, c: Value | None = None) -> Value:
    """alpha * A' * B' + beta * C."""
    left = n.transpose(a, [1, 0]) if n.flag("transA") else a
    right = n.transpose(b, [1, 0]) if n.flag("transB") else b
    total = _scaled(n, n(MatmulOp, left, right), "alpha")
    return total if c is None else n(AddOp, total, _scaled(n, c, "beta"))


def _scaled(n: Node, x: Value, factor: str) -> Value:
    value = n.real(factor, 1.0)
    return x if value == 1.0 else n(MulOp, x, n.scalar(value, x))
