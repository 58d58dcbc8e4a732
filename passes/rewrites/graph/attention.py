"""Rules on masks of rows of attention scores.

ONNX's Attention gives weights of 0 to rows that are fully masked, whose softmax is NaN:

    w = softmax(s + b)      where(max b == -inf, 0, w)

In any other row, positions where b is -inf have the weight 0 anyway. So each position can be tested
separately, and no maximum of b is needed:

    w = softmax(where(b == -inf, lowest, s + b))      where(b == -inf, 0, w)

Rows with NaN among their scores keep it where they are not masked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Operation, SSAValue

from dialects.graph import AddOp, CastOp, ConstantOp, EqualOp, ReduceMaxOp, SoftmaxOp, WhereOp
from dialects.graph.base import int_of, ints_of
from dialects.strata.types import is_float, largest
from passes.rewrites.graph.matching import is_number, type_of
from passes.rewriting import Rewriter, Rule


def nothing_seen(op: WhereOp, at: Rewriter) -> SSAValue | None:
    # where(max b == -inf, 0, softmax(s + b)) == where(b == -inf, 0, softmax(s + b))
    bias = _least_of_row(op.condition, at)
    if bias is None or at.context.exact or not is_number(op.x, 0.0, at.context):
        return None
    chain = _softmax_of_sum(op.y, bias)
    if chain is None:
        return None
    *steps, total = chain
    element = type_of(bias).element
    none = at.insert(ConstantOp.scalar(-np.inf, element)).results[0]
    hidden = at(EqualOp, bias, none)
    wide = type_of(total.result).element
    least = at.insert(ConstantOp.scalar(-largest(wide), wide)).results[0]
    value = at(WhereOp, hidden, least, total.result)
    for step in reversed(steps):
        value = at(type(step), value, **step.properties)
    return at(WhereOp, hidden, op.x, value)


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


def _softmax_of_sum(
    value: SSAValue, bias: SSAValue
) -> Sequence[CastOp | SoftmaxOp | AddOp] | None:
    """The operations from a value back to the sum with a bias, if the value is a softmax of it."""
    chain: list[CastOp | SoftmaxOp | AddOp] = []
    op: object = value.owner
    while isinstance(op, CastOp | SoftmaxOp):
        chain.append(op)
        op = op.x.owner
    softmaxes = [s for s in chain if isinstance(s, SoftmaxOp)]
    if not isinstance(op, AddOp) or bias not in (op.x, op.y) or len(softmaxes) != 1:
        return None
    rank = type_of(softmaxes[0].x).rank
    return [*chain, op] if int_of(softmaxes[0].properties, "axis") == rank - 1 else None


ATTENTION_RULES: dict[type[Operation], list[Rule]] = {WhereOp: [nothing_seen]}
