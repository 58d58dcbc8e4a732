"""graph-simplify: apply algebraic rules until none fits.

    %a = graph.mul %x, 1                    %c = graph.conv %x, %w, %b
    %b = graph.transpose %a, [1, 0]         %y = graph.batch_norm %c, ...constants
    %y = graph.transpose %b, [1, 0]   -->
    strata.return %y                        %y = graph.conv %x, %w2, %b2
    strata.return %x

The rules are in `passes/rewrites/graph`, each with its algebra. All keep floating-point results bit
for bit, except those that fold arithmetic into convolutions. Assumes nothing; a rule that needs the
value of a weight does nothing if the store lacks it.
"""

from __future__ import annotations

from functools import cache

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from dialects.strata.func import FuncOp
from passes.base import StrataContext, StrataPass
from passes.rewrites.graph.arithmetic import ARITHMETIC_RULES
from passes.rewrites.graph.attention import ATTENTION_RULES
from passes.rewrites.graph.convolution import CONVOLUTION_RULES
from passes.rewrites.graph.movement import MOVEMENT_RULES
from passes.rewrites.graph.ranks import RANK_RULES
from passes.rewrites.graph.repeated import REPEATED_RULES
from passes.rewriting import Rule, functions, rewrite


class GraphSimplify(StrataPass):
    """Apply the algebraic rules until none fits."""

    name = "graph-simplify"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        for func in functions(module):
            simplify(func, context)


def simplify(func: FuncOp, context: StrataContext) -> bool:
    """Apply the rules to a function until none fits; whether any did."""
    return rewrite(func, _all_rules(), context)


@cache
def _all_rules() -> dict[type[Operation], list[Rule]]:
    tables = (ARITHMETIC_RULES, MOVEMENT_RULES, CONVOLUTION_RULES, ATTENTION_RULES,
              REPEATED_RULES, RANK_RULES)
    classes = dict.fromkeys(class_ for table in tables for class_ in table)
    return {c: [rule for table in tables for rule in table.get(c, ())] for c in classes}
