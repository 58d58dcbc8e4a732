"""Matrix products."""

from __future__ import annotations

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.stretching import one_way
from compiler.frontend.values import Value
from dialects.strata import types as t


@onnx_op("MatMul")
def matmul(n: Node, a: Value, b: Value) -> Value:
    return a @ b


@onnx_op("Gemm")
def gemm(n: Node, a: Value, b: Value, c: Value | None = None) -> Value:
    """alpha * A' * B' + beta * C. For beta = 0, NaN and infinity in C do not count.

    Integers with factors that are none are computed in f64 and truncated once.
    """
    for operand in (a, b):
        if operand.rank != 2:
            raise Fault(f"{operand.type.short} is not a matrix", "MatMul takes batches")
    left = a.transpose([1, 0]) if n.flag("transA") else a
    right = b.transpose([1, 0]) if n.flag("transB") else b
    alpha, beta = n.real("alpha", 1.0), n.real("beta", 1.0)
    total = left @ right
    if not t.is_float(a.element) and not (alpha.is_integer() and beta.is_integer()):
        total, c = total.cast(t.f64), None if c is None else c.cast(t.f64)
    total = _scaled(total, alpha)
    if c is not None and beta != 0:
        total = total + one_way(n.build, _scaled(c, beta), total.shape)
    return total.cast(a.element)


def _scaled(x: Value, factor: float) -> Value:
    return x if factor == 1 else x * factor
