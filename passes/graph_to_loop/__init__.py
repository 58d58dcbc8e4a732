"""graph-to-loop: tensor operators become nests.

    %y = graph.matmul %a, %b : f32[n, 8]
    -->
    %y = loop.nest (i0: n, i1: 8, reduce i2: 64) ins(%a[i0, i2], %b[i2, i1])
        outs(add f32[n, 8][i0, i1]) { ... arith.mulf ... }

Enters: a function of graph operations, the composite ones decomposed (`graph-decompose`), except
those that the target claims; they stay. Leaves: `loop.nest`, `loop.view`, `loop.empty`, and
`graph.constant`. Conventions that later passes may rely on:

- axes are named i0, i1 ...: first the parallel ones, in the order of the result's dims, then the
  reductions; a result is indexed by the parallel axes themselves wherever that is possible;
- an operand's dim of size 1 that broadcasts is indexed by 0;
- constants of one element become `arith.constant` in bodies of elementwise nests;
- bodies compute f16 and bf16 in f32; sums, products and extrema of them are held in an f32 tensor,
  and a nest of its own rounds them; unsigned extrema are those of integers with the sign bit
  flipped; `max` and `min` of truth values are `or` and `and`;
- integer division by zero gives 0, and indices of gathers are clamped: nothing traps or reads
  outside memory; what must hold of indices is compared at the end (`requirements.py`);
- every operation carries its graph operation's location.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from dialects.graph.base import GraphOp
from dialects.graph.constant import ConstantOp
from dialects.syntax import location_name
from passes.base import StrataContext, StrataPass
from passes.rewriting import functions, rewrite


@dataclass(frozen=True)
class GraphToLoop(StrataPass):
    """Replace graph operations by nests over tensors."""

    name = "graph-to-loop"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        from passes.graph_to_loop.requirements import lower_requirements, move_requirements
        from passes.graph_to_loop.rules import lowering_rules

        for func in functions(module):
            lower_requirements(func, context)
            rewrite(func, lowering_rules(), context)
            move_requirements(func)
        left = [op for op in module.walk() if _should_be_gone(op, context)]
        if left:
            places = ", ".join(f"{op.name} (node {location_name(op)!r})" for op in left)
            raise ValueError(f"graph-to-loop has no lowering of {places}; "
                             "composite operations need graph-decompose before")


def _should_be_gone(op: Operation, context: StrataContext) -> bool:
    if not isinstance(op, GraphOp) or isinstance(op, ConstantOp):
        return False
    return context.target is None or not context.target.claims(op.name)
