"""Matrix products."""

from __future__ import annotations

from compiler.frontend.faults import Fault
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import Operand, aten_op
from compiler.frontend.torch.ops.elementwise import HALVES, operand
from compiler.frontend.values import Value
from dialects.graph.grouped import GroupedMatmulOp
from dialects.graph.integer_contraction import MatmulIntegerOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr


@aten_op("aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default",
         "aten.dot.default")
def matmul(n: Node, a: Value, b: Value) -> Value:
    return a @ b


@aten_op("aten._int_mm.default")
def integer_mm(n: Node, a: Value, b: Value) -> Value:
    """Codes of 8 bits, multiplied and added in i32."""
    return n(MatmulIntegerOp, a, b, n.scalar(0, a.element), n.scalar(0, b.element))


@aten_op("aten._weight_int8pack_mm.default")
def scaled_codes_mm(n: Node, x: Value, weight: Value, scales: Value) -> Value:
    """x [m, k] times the transposed codes [n, k], each row of which has a scale [n]."""
    return x @ n.swap(weight.cast(x.element) * scales.cast(x.element).reshape([*scales.shape, 1]))


@aten_op("aten.linear.default")
def linear(n: Node, x: Value, weight: Value, bias: Value | None) -> Value:
    """x times the transposed weight, plus the bias."""
    total = x @ (n.swap(weight) if weight.rank > 1 else weight)
    return total if bias is None else total + bias


@aten_op("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default")
def addmm(
    n: Node, c: Value, a: Value, b: Value, beta: Operand = 1, alpha: Operand = 1
) -> Value:
    """beta * c + alpha * (a @ b), rounded once for halves that are scaled.

    As in BLAS, an operand whose factor is 0 does not count, even if it is NaN. PyTorch multiplies
    batches of small matrices, and halves, by an alpha of 0 nevertheless.
    """
    if alpha == 0 and n.element not in HALVES and "baddbmm" not in n.op:
        c = n.scalar(0, n.element) if beta == 0 else _times(n, c, beta)
        return c.broadcast(n.shape)
    if n.element in HALVES and not (alpha == 1 and beta == 1):
        a, b, c = (v.cast(t.f32) for v in (a, b, c))
    total = _times(n, a @ b, alpha)
    return total if beta == 0 else total + _times(n, c, beta)


def _times(n: Node, x: Value, factor: Operand) -> Value:
    """x * factor in x's element type."""
    return x if factor == 1 else x * operand(n, factor, x.element)


@aten_op("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default")
def grouped_mm(
    n: Node, a: Value, b: Value, ends: Value | None = None, bias: Value | None = None,
    out: object = None,
) -> Value:
    """Grouped matrix multiplication: consecutive groups of rows of a, each by its own matrix.

    `ends`: the end of each group.
    """
    if ends is None or bias is not None or (a.rank, b.rank) != (2, 3):
        raise Fault("only a matrix of grouped rows times a stack of matrices, without a bias, is "
                    "supported")
    return n(GroupedMatmulOp, a, b, ends).cast(n.element)


@aten_op("aten._scaled_mm.default")
def scaled_mm(
    n: Node, a: Value, b: Value, scale_a: Value, scale_b: Value, bias: Value | None = None,
    scale_result: Value | None = None, out: object = None, fast: bool = False,
) -> Value:
    """(a @ b) * scale_a * scale_b for 8-bit floats.

    Each scale is a single number, or there is one per row of a and one per column of b. All is
    computed in f32, whether or not `fast` allows less exact sums.
    """
    single = all(x.type.count.constant == 1 for x in (scale_a, scale_b))
    rows, columns = (a.shape[0], Expr.of(1)), (Expr.of(1), b.shape[1])
    if scale_result is not None or not (
            single or (scale_a.shape, scale_b.shape) == (rows, columns)):
        raise Fault("its scales must be two single numbers, or one for each row and column, and "
                    "the result must not be scaled")
    total = a.cast(t.f32) @ b.cast(t.f32)
    for scale in (scale_a, scale_b):
        total = total * (scale.reshape(()) if single else scale)
    if bias is not None:
        total = total + bias.cast(t.f32)
    return total.cast(n.element)
