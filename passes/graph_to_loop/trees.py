"""descend: one recurrence, whose state is the node.

    %y = loop.nest (i0: n, i1: trees, reduce i2: steps)
        ins(%roots[i1], %nodes[in0, 0], %nodes[in0, 1], %x[i0, in2 mod 8])
        outs(next i64[n, trees][i0, i1]) {
      loop.yield place / 8 + (x <= bound)
    }
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from dialects.graph.base import int_of
from dialects.graph.trees import DescendOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr
from passes.graph_to_loop.nests import Domain, Read, converted, make_nest, type_of
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Body, Scalar
from passes.rewriting import Rewriter


@lowers(DescendOp)
def descend(op: DescendOp, at: Rewriter) -> SSAValue:
    domain, result = Domain(), type_of(op.result)
    row, *tree = domain.parallel(*result.shape)
    domain.reduce(int_of(op.properties, "steps"))
    node, place, columns = Expr.gathered(0), Expr.gathered(2), type_of(op.x).shape[1]
    reads = [Read(converted(at, op.roots, t.i64), tree), Read(op.nodes, [node, Expr.of(0)]),
             Read(op.nodes, [node, Expr.of(1)]), Read(op.x, [row, place % columns])]

    def follow(body: Body, read: Sequence[Scalar]) -> Scalar:
        child = read[2].apply(arith.DivUIOp, columns.constant or 1).to(t.i64)
        return child + read[3].compare("le", read[1]).to(t.i64)

    return make_nest(at, domain, reads, result, follow, combiner="next")
