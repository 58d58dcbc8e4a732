"""Rules on masks of rows of attention scores.

ONNX's Attention gives weights of 0 to rows that are fully masked, whose softmax is NaN:

    w = softmax(s + b)      where(max b == -inf, 0, w)      product with w

In any other row, positions where b is -inf have the weight 0 anyway. So each position can be tested
separately, and no maximum of b is needed:

    where(b == -inf, 0, w)

In a row with NaN among its scores all weights are NaN. Those that are not masked stay so, and each
sum of products with the row is NaN; hence all readers have to be such products.
"""

from __future__ import annotations

import numpy as np
from xdsl.ir import Operation, SSAValue

from dialects.graph import (
    AddOp,
    CastOp,
    ConstantOp,
    EqualOp,
    MatmulOp,
    ReduceMaxOp,
    SoftmaxOp,
    WhereOp,
)
from dialects.graph.base import int_of, ints_of
from dialects.strata.types import is_float
from passes.rewrites.graph.matching import is_number, type_of
from passes.rewriting import Rewriter, Rule


def nothing_seen(op: WhereOp, at: Rewriter) -> SSAValue | None:
    # where(max b == -inf, 0, softmax(s + b)) == where(b == -inf, 0, softmax(s + b))
    bias = _least_of_row(op.condition, at)
    if bias is None or at.context.exact or not is_number(op.x, 0.0, at.context):
        return None
    if not _is_softmax_of_sum(op.y, bias) or not _is_only_factor(op.results[0]):
        return None
    none = at.insert(ConstantOp.scalar(-np.inf, type_of(bias).element)).results[0]
    return at(WhereOp, at(EqualOp, bias, none), op.x, op.y)


def _least_of_row(condition: SSAValue, at: Rewriter) -> SSAValue | None:
    """The b of `max b == -inf`, if the maximum is over the last dim."""
    equal = condition.owner
    if not isinstance(equal, EqualOp):
        return None
    for value, other in ((equal.x, equal.y), (equal.y, equal.x)):
        found = value.owner
        if isinstance(found, ReduceMaxOp) and is_number(other, -np.inf, at.context):
            type_ = type_of(found.x)
            last = list(ints_of(found.properties, "axes")) == [type_.rank - 1]
            return found.x if last and is_float(type_.element) else None
    return None


def _is_softmax_of_sum(value: SSAValue, bias: SSAValue) -> bool:
    """Whether a value is a softmax, along the last dim, of a sum with a bias; it may be cast."""
    softmaxes: list[SoftmaxOp] = []
    op: object = value.owner
    while isinstance(op, CastOp | SoftmaxOp):
        softmaxes += [op] if isinstance(op, SoftmaxOp) else []
        op = op.x.owner
    if not isinstance(op, AddOp) or bias not in (op.x, op.y) or len(softmaxes) != 1:
        return False
    return int_of(softmaxes[0].properties, "axis") == type_of(softmaxes[0].x).rank - 1


def _is_only_factor(value: SSAValue) -> bool:
    """Whether only products read a value, as their left factor; it may be cast before."""
    return all(
        _is_only_factor(use.operation.results[0]) if isinstance(use.operation, CastOp) else
        isinstance(use.operation, MatmulOp) and use.index == 0 for use in value.uses)


ATTENTION_RULES: dict[type[Operation], list[Rule]] = {WhereOp: [nothing_seen]}
