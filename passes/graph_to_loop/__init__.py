"""graph-to-loop: lower tensor operators to nests.

    %y = graph.matmul %a, %b : f32[n, 8]
    -->
    %y = loop.nest (i0: n, i1: 8, reduce i2: 64) ins(%a[i0, i2], %b[i2, i1])
        outs(add f32[n, 8][i0, i1]) { ... arith.mulf ... }

Enters: a function of graph operations. Composite ones are decomposed (`graph-decompose`), except
those that the target claims, which stay. Leaves: `loop.nest`, `loop.view`, `loop.empty`,
`graph.constant`, collective operations, in which other ranks take part, and kernels of the user.
Conventions that later passes may rely on:

- axes are named i0, i1 ...: first the parallel ones, in the order of the result's dims, then the
  reduce axes; a result is indexed by the parallel axes themselves wherever possible;
- an operand's dim of size 1 that broadcasts is indexed by 0;
- constants of one element become `arith.constant` in the bodies of elementwise nests;
- bodies compute f16 and bf16 in f32; their sums, products and extrema are held in an f32 tensor,
  which a separate nest rounds; unsigned extrema are those of integers with the sign bit flipped;
  `max` and `min` of truth values are `or` and `and`;
- integer division by zero yields 0, and indices of gathers are clamped, so nothing traps or reads
  out of bounds; requirements on indices are checked at the end (`requirements.py`);
- every operation carries its graph operation's location.
"""

from __future__ import annotations

import inspect

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from dialects.graph.base import GraphOp
from dialects.graph.collective import CollectiveOp
from dialects.graph.constant import ConstantOp
from dialects.graph.foreign import ForeignKernelOp
from dialects.text.syntax import location_name
from dialects.walking import walked
from passes.base import PassError, StrataContext, StrataPass
from passes.rewriting import functions, rewrite


class GraphToLoop(StrataPass):
    """Replace graph operations by nests over tensors."""

    name = "graph-to-loop"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        from passes.graph_to_loop.requirements import lower_requirements, move_requirements
        from passes.graph_to_loop.rules import lowering_rules

        rules = lowering_rules(context.plugins)
        for func in functions(module):
            lower_requirements(func, context)
            rewrite(func, rules, context)
            move_requirements(func)
        left = [op for op in walked(module) if _should_be_gone(op, context)]
        if left and not context.allowance.is_spent:
            raise PassError(self.name, [(location_name(op), _without_lowering(op)) for op in left])


def _without_lowering(op: Operation) -> str:
    if type(op).__module__.startswith("dialects."):
        return f"{op.name} has no nest of its own; graph-decompose must come before"
    return (f"{op.name} has no lowering; a pass before graph-to-loop must write it as operations "
            f"that have one ({_definition(type(op))})")


def _definition(class_: type[Operation]) -> str:
    """Where a class is defined, for operations of plugins."""
    try:
        line = inspect.getsourcelines(class_)[1]
    except (OSError, TypeError):  # its source is not a file
        return f"defined in {class_.__module__}"
    return f"defined in {inspect.getsourcefile(class_)}, line {line}"


def _should_be_gone(op: Operation, context: StrataContext) -> bool:
    if not isinstance(op, GraphOp) or isinstance(
            op, (ConstantOp, CollectiveOp, ForeignKernelOp)):
        return False
    return op.name not in context.facts.claims
