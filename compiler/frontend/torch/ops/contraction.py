"""Matrix products."""

from __future__ import annotations

from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import Operand, aten_op
from compiler.frontend.torch.ops.elementwise import arithmetic, scaled
from compiler.frontend.values import Value
from dialects.graph.contraction import MatmulOp
from dialects.graph.elementwise import AddOp


@aten_op("aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default",
         "aten.dot.default")
def matmul(n: Node, a: Value, b: Value) -> Value:
    return n(MatmulOp, a, b)


@aten_op("aten.linear.default")
def linear(n: Node, x: Value, weight: Value, bias: Value | None) -> Value:
    """x times the transposed weight, plus the bias."""
    total = n(MatmulOp, x, n.swap(weight) if weight.rank > 1 else weight)
    return total if bias is None else n(AddOp, total, bias)


@aten_op("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default")
def addmm(
    n: Node, c: Value, a: Value, b: Value, beta: Operand = 1, alpha: Operand = 1
) -> Value:
    """beta * c + alpha * (a @ b)."""
    total = scaled(n, n(MatmulOp, a, b), alpha)
    return total if beta == 0 and isinstance(total, Value) else arithmetic(
        n, AddOp, total, scaled(n, c, beta))
