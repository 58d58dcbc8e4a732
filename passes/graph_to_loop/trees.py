"""descend: one recurrence, whose state is the node.

    %y = loop.nest (i0: n, i1: trees, reduce i2: steps)
        ins(%roots[i1], %nodes[in0, 0], %nodes[in0, 1], %x[i0, in2], %nodes[in0, 2])
        outs(next i64[n, trees][i0, i1]) {
      loop.yield child + (x <= bound)
    }
"""

from __future__ import annotations

from collections.abc import Sequence

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
    node, column = Expr.gathered(0), Expr.gathered(2)
    reads = [Read(converted(at, op.roots, t.i64), tree), Read(op.nodes, [node, Expr.of(0)]),
             Read(op.nodes, [node, Expr.of(1)]), Read(op.x, [row, column]),
             Read(op.nodes, [node, Expr.of(2)])]
    return make_nest(at, domain, reads, result, _next, combiner="next")


def _next(body: Body, read: Sequence[Scalar]) -> Scalar:
    _, bound, _, x, child = read
    return child.to(t.i64) + x.compare("le", bound).to(t.i64)
