"""Distances between the rows of two tensors."""

from __future__ import annotations

import math

from compiler.frontend import formulas as f
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.values import Value
from dialects.graph.unary import CastOp


@aten_op("aten._cdist_forward.default")
def cdist(n: Node, a: Value, b: Value, p: float, compute_mode: int | None) -> Value:
    """The p-norm of the difference of each row of a [..., m, d] and each row of b [..., k, d].

    Differences are always computed. PyTorch may use a matrix product instead, which is less exact.
    """
    rows = a.reshape([*a.shape[:-1], 1, a.shape[-1]])
    others = b.reshape([*b.shape[:-2], 1, *b.shape[-2:]])
    apart, axis = rows - others, max(a.rank, b.rank)
    if p == 2:
        return f.sqrt(f.reduce_sum(apart * apart, axes=[axis]))
    if p == 0:
        differs = ~f.equal(apart, 0)
        return f.reduce_sum(n(CastOp, differs, to=apart.element), axes=[axis])
    size = abs(apart)
    if p == math.inf:
        return f.reduce_max(size, axes=[axis])
    powers = size if p == 1 else size ** p
    total = f.reduce_sum(powers, axes=[axis])
    return total if p == 1 else total ** (1 / p)
