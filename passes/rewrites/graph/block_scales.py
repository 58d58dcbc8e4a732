"""Scales of blocks follow integer codes as they lie, where products of few rows read the codes.

With the codes reshaped into blocks for their scales, and the floats reshaped back, the floats would
be in memory. A product reads codes, and the scale at `k floordiv 32`. Repeating is exact.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from dialects.graph import AddOp, BroadcastOp, CastOp, DivOp, MulOp, ReshapeOp, SubOp
from dialects.graph.base import GraphOp
from dialects.graph.composite import reshaped
from dialects.strata.types import i1, is_float
from dialects.symbolic.expr import Expr
from passes.analyses.graph.codes import reaches_few_rows
from passes.rewrites.graph.matching import type_of
from passes.rewriting import Rewriter

_BETWEEN = (AddOp, SubOp, MulOp, DivOp, CastOp)
"""What dequantization computes: zero points and scales."""
_STEPS = 8
"""The most operations between the two reshapes."""
Shape = Sequence[Expr]


def repeat_scales(op: ReshapeOp, at: Rewriter) -> SSAValue | None:
    # reshape(f(reshape(x, blocks), s)) == f(x, reshape(broadcast(s, blocks))), of x's shape
    flat, blocked = type_of(op.result).shape, type_of(op.x).shape
    rows = at.context.facts.blocked_rows
    if not is_float(type_of(op.x).element) or len(blocked) != len(flat) + 1 or not (
            _holds_codes(op.x, flat, blocked, _STEPS) and reaches_few_rows(op.result, rows)):
        return None
    return _unblocked(op.x, flat, blocked, at)


def _holds_codes(value: SSAValue, flat: Shape, blocked: Shape, steps: int) -> bool:
    """Whether a value is computed from integers in blocks, by nothing that others read, too."""
    op = value.owner
    if type_of(value).shape == blocked and _is_code(value):
        return True
    if isinstance(op, ReshapeOp) and type_of(op.x).shape == flat:
        return _were_codes(op.x)
    return steps > 0 and isinstance(op, _BETWEEN) and value.has_one_use() and any(
        _holds_codes(v, flat, blocked, steps - 1) for v in op.operands)


def _were_codes(value: SSAValue) -> bool:
    """Whether floats were just converted from codes."""
    while isinstance(value.owner, CastOp):
        value = value.owner.x
    return _is_code(value)


def _is_code(value: SSAValue) -> bool:
    return not is_float(type_of(value).element) and type_of(value).element != i1


def _unblocked(value: SSAValue, flat: Shape, blocked: Shape, at: Rewriter) -> SSAValue:
    """The value in the shape of codes before they were reshaped into blocks."""
    op = value.owner
    if isinstance(op, ReshapeOp) and type_of(op.x).shape == flat:
        return op.x
    if type_of(value).shape == blocked and _is_code(value):
        return reshaped(at, value, flat)
    if isinstance(op, _BETWEEN) and value.has_one_use() and type_of(value).shape == blocked:
        operands = [_unblocked(v, flat, blocked, at) for v in op.operands]
        if isinstance(op, CastOp):
            return at(CastOp, *operands, to=op.to)
        kind: type[GraphOp] = type(op)
        return at(kind, *operands)
    if all(size.constant == 1 for size in type_of(value).shape):
        return reshaped(at, value, [])
    return reshaped(at, at(BroadcastOp, value, shape=blocked), flat)
