"""Rules on masks whose operands repeat: they are computed once, and the result is broadcast.

    %r = constant [[0, 1, 2], [0, 1, 2]]
    %m = less_equal %r, %q : i1[2, 3]       %q : i64[2, 1], equal rows
    ->  %n = less_equal [[0, 1, 2]], [[1]] : i1[1, 3]
        %m = broadcast %n : i1[2, 3]

Exported models compute masks for each sequence of a batch from positions that are constants. What
is the same for all can be folded, and compared as indices where it is read.
"""

from __future__ import annotations

import numpy as np
from xdsl.ir import Operation, SSAValue

from dialects.graph import (
    AndOp,
    BroadcastOp,
    ConstantOp,
    OrOp,
    WhereOp,
)
from dialects.graph.base import GraphOp
from dialects.graph.folded import evaluated
from dialects.graph.logic import CompareOp
from dialects.strata.types import is_float
from passes.rewrites.graph.matching import constant_array, is_settled, type_of
from passes.rewriting import Rewriter, Rule

MAX_ELEMENTS = 1 << 20
"""Larger constants are not searched for repetitions."""


def once(op: GraphOp, at: Rewriter) -> SSAValue | None:
    # m(broadcast(x), broadcast(y)) == broadcast(m(x, y))
    slim = [_once(v, at) for v in op.operands]
    if all(a is b for a, b in zip(slim, op.operands, strict=True)):
        return None
    made = at(type(op), *slim)
    if all(isinstance(v.owner, ConstantOp) and type_of(v).count.constant == 1 for v in slim):
        made = _folded(made, slim, at)
    if made.type == op.results[0].type:
        return made
    return at(BroadcastOp, made, shape=list(type_of(op.results[0]).shape))


def choose_once(op: WhereOp, at: Rewriter) -> SSAValue | None:
    # where(broadcast(c), x, y) == where(c, x, y) if x and y determine the shape of the result
    condition = _once(op.condition, at)
    if condition is op.condition:
        return None
    types = [type_of(v) for v in (condition, op.x, op.y)]
    [type_] = WhereOp.infer(types, op.properties)
    return at(WhereOp, condition, op.x, op.y) if type_ == op.results[0].type else None


def _once(value: SSAValue, at: Rewriter) -> SSAValue:
    """What a value repeats along dims, which have one element here; the value if there are none."""
    if isinstance(value.owner, BroadcastOp):
        return value.owner.x
    type_, count = type_of(value), type_of(value).count.constant
    if is_float(type_.element) or not count or not 1 < count <= MAX_ELEMENTS or not is_settled(
            value, at.context):
        return value
    array = constant_array(value, at.context)
    if array is None:
        return value
    slim = array
    for dim in range(array.ndim):
        first = slim.take([0], dim)
        if slim.shape[dim] > 1 and np.array_equal(slim, np.broadcast_to(first, slim.shape)):
            slim = first
    if slim is array:
        return value
    return at.insert(ConstantOp.of_array(slim, at.context.weights, "positions")).results[0]


def _folded(value: SSAValue, operands: list[SSAValue], at: Rewriter) -> SSAValue:
    arrays = [constant_array(v, at.context) for v in operands]
    assert isinstance(value.owner, GraphOp)
    [found] = evaluated(value.owner, [a for a in arrays if a is not None])
    return at.insert(ConstantOp.of_array(found, at.context.weights, "mask")).results[0]


REPEATED_RULES: dict[type[Operation], list[Rule]] = {
    AndOp: [once],
    OrOp: [once],
    CompareOp: [once],
    WhereOp: [choose_once],
}
