"""graph-join-groups: merge groups of few channels into larger ones, with zeros between them.

    %y = graph.conv %x, %w {group = 32}: %w: f16[128, 4, 3, 3]
    -->  %y = graph.conv %x, %w' {group = 4}, %w': f16[128, 32, 3, 3]    zero except 4 of each 32

A machine that multiplies tiles of at least 16 by 16 takes just as long if little of a tile is
needed. The target chooses how many groups to join (`Rules.joined_groups`). Each sum has the same
terms as before, plus zeros. The only difference is that an infinity or NaN in x now reaches all
results of the joined groups.

Enters: filters as constants. Assumes nothing.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from dialects.graph import ConstantOp, ConvOp
from dialects.graph.base import int_of
from dialects.semantics.filters import JoinedGroups
from dialects.strata.types import ExprAttr
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
    if group == 1 or not outputs or not inputs or not isinstance(op.w.owner, ConstantOp):
        return None
    joined = rules.joined_groups(inputs, outputs // group, group, type_.element)
    filter_ = known_constant(op.w, at.context)
    if joined <= 1 or filter_ is None:
        return None
    filters = at.insert(filter_.derived(
        at.context.weights, ".joined", f"joined {group} {joined}",
        JoinedGroups(group, joined)))
    others = [] if op.b is None else [op.b]
    return at(ConvOp, op.x, filters.results[0], *others,
              **{**op.properties, "group": ExprAttr(Expr.of(group // joined))})
