"""Distances between the rows of two tensors."""

from __future__ import annotations

import math

from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.values import Value
from dialects.graph.elementwise import MulOp, PowOp, SubOp
from dialects.graph.logic import EqualOp
from dialects.graph.reduce import ReduceMaxOp, ReduceSumOp
from dialects.graph.unary import AbsOp, CastOp, NotOp, SqrtOp


@aten_op("aten._cdist_forward.default")
def cdist(n: Node, a: Value, b: Value, p: float, compute_mode: int | None) -> Value:
    """The p-norm of the difference of each row of a [..., m, d] and each of b [..., k, d].

    It is summed from differences, also where PyTorch multiplies matrices, which is less exact.
    """
    rows = n.reshape(a, [*a.shape[:-1], 1, a.shape[-1]])
    others = n.reshape(b, [*b.shape[:-2], 1, *b.shape[-2:]])
    apart, axis = n(SubOp, rows, others), max(a.rank, b.rank)
    if p == 2:
        return n(SqrtOp, n(ReduceSumOp, n(MulOp, apart, apart), axes=[axis], keepdims=False))
    if p == 0:
        differs = n(NotOp, n(EqualOp, apart, n.scalar(0, apart.element)))
        return n(ReduceSumOp, n(CastOp, differs, to=apart.element), axes=[axis], keepdims=False)
    size = n(AbsOp, apart)
    if p == math.inf:
        return n(ReduceMaxOp, size, axes=[axis], keepdims=False)
    powers = size if p == 1 else n(PowOp, size, n.scalar(p, size.element))
    total = n(ReduceSumOp, powers, axes=[axis], keepdims=False)
    return total if p == 1 else n(PowOp, total, n.scalar(1 / p, total.element))
