"""graph-join-groups: merge groups of few channels into larger ones, with zeros between them.

    %y = graph.conv %x, %w {group = 32}: %w: f16[128, 4, 3, 3]
    -->  %y = graph.conv %x, %w' {group = 4}, %w': f16[128, 32, 3, 3]    zero except 4 of each 32

A machine that multiplies tiles of at least 16 by 16 takes just as long if little of a tile is
needed. The target chooses how many groups to join (`Rules.joined_groups`). Each sum has the same
terms as before, plus zeros. The only difference is that an infinity or NaN in x now reaches all
results of the joined groups.

A filter that is no constant is filled with zeros when the model runs; to fill it costs little
beside a convolution, which reads each of its numbers at many positions.

    %s = graph.reshape %w {shape = [128, 1, 4, 3, 3]}
    %f = graph.where %own, %s, %zero      %own: i1[128, 8, 1, 1, 1], which place is a filter's own
    %w' = graph.reshape %f {shape = [128, 32, 3, 3]}

Enters: filters as constants where they are known. Assumes nothing.
"""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from dialects.graph import ConstantOp, ConvOp, ReshapeOp, WhereOp
from dialects.graph.base import int_of
from dialects.semantics.filters import JoinedGroups
from dialects.strata.elements import dtype_of
from dialects.strata.types import ExprAttr, SizesAttr
from dialects.symbolic.expr import Expr
from passes.base import StrataContext, StrataPass
from passes.rewrites.graph.matching import known_constant, type_of
from passes.rewriting import Rewriter, functions, rewrite


class GraphJoinGroups(StrataPass):
    """Join groups of a convolution if the target computes them as fast together."""

    name = "graph-join-groups"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if context.rules is None or context.exact:
            return
        for func in functions(module):
            rewrite(func, {ConvOp: [join_groups]}, context)


def join_groups(op: ConvOp, at: Rewriter) -> SSAValue | None:
    # conv(x, w, group = g) == conv(x, w with zeros, group = g / joined)
    rules, group = at.context.rules, int_of(op.properties, "group", 1)
    type_ = type_of(op.w)
    outputs, inputs = type_.shape[0].constant, type_.shape[1].constant
    assert rules is not None
    if group == 1 or not outputs or not inputs:
        return None
    is_constant = isinstance(op.w.owner, ConstantOp)
    joined = rules.joined_groups(inputs, outputs // group, group, type_.element, is_constant)
    if joined <= 1:
        return None
    filters = _constant_joined(op, at, group, joined) if is_constant else (
        _joined(op.w, at, group, joined))
    others = [] if op.b is None else [op.b]
    return None if filters is None else at(
        ConvOp, op.x, filters, *others,
        **{**op.properties, "group": ExprAttr(Expr.of(group // joined))})


def _constant_joined(op: ConvOp, at: Rewriter, group: int, joined: int) -> SSAValue | None:
    filter_ = known_constant(op.w, at.context)
    return None if filter_ is None else at.insert(filter_.derived(
        at.context.weights, ".joined", f"joined {group} {joined}",
        JoinedGroups(group, joined))).results[0]


def _joined(filters: SSAValue, at: Rewriter, group: int, joined: int) -> SSAValue:
    """Filters [co, c, k...] as [co, joined*c, k...], computed when the model runs."""
    type_, store = type_of(filters), at.context.weights
    outputs, *rest = type_.shape
    one_channel = np.ones((outputs.constant or 0, 1, *[1] * len(rest)), np.bool_)
    own = at.insert(ConstantOp.of_array(
        JoinedGroups(group, joined)(one_channel), store, "own places"))
    zero = at.insert(ConstantOp.of_array(
        np.zeros((), dtype_of(type_.element)), store, "zero")).results[0]
    chosen = at(WhereOp, own.results[0],
                at(ReshapeOp, filters, shape=SizesAttr((outputs, Expr.of(1), *rest))), zero)
    return at(ReshapeOp, chosen, shape=SizesAttr((outputs, rest[0] * joined, *rest[1:])))
