"""Matrix products."""

from __future__ import annotations

from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.stretching import one_way
from compiler.frontend.values import Value


@onnx_op("MatMul")
def matmul(n: Node, a: Value, b: Value) -> Value:
    return a @ b


@onnx_op("Gemm")
def gemm(n: Node, a: Value, b: Value, c: Value | None = None) -> Value:
    """alpha * A' * B' + beta * C. For beta = 0, NaN and infinity in C do not count."""
    left = a.transpose([1, 0]) if n.flag("transA") else a
    right = b.transpose([1, 0]) if n.flag("transB") else b
    total = _scaled(n, left @ right, "alpha")
    if c is None or not n.real("beta", 1.0):
        return total
    return total + one_way(n.build, _scaled(n, c, "beta"), total.shape)


def _scaled(n: Node, x: Value, factor: str) -> Value:
    value = n.real(factor, 1.0)
    return x if value == 1.0 else x * value
