"""Grouped products, row by row: each row is multiplied by the matrix of its group.

    %g = nest (i, reduce e) ins(%ends[e]) outs(add) {ends <= i}
    %y = nest (i, j, reduce k) ins(%g[i], %a[i, k], %b[in0, k, j]) outs(add) {a * b}

A row after the last group reads the last matrix, and its result is replaced by 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from dialects.graph.grouped import GroupedMatmulOp
from dialects.strata import types as t
from dialects.strata.types import tensor
from dialects.symbolic.expr import Expr
from passes.graph_to_loop.nests import Domain, Read, assume_equal, make_nest, type_of
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Body, Scalar
from passes.rewriting import Rewriter


@lowers(GroupedMatmulOp)
def grouped_matmul(op: GroupedMatmulOp, at: Rewriter) -> SSAValue:
    (rows, columns), groups = type_of(op.result).shape, type_of(op.ends).shape[0]
    assume_equal(at, groups, type_of(op.b).shape[0])
    assume_equal(at, type_of(op.a).shape[1], type_of(op.b).shape[1])
    group = _groups(op, at, rows, groups)
    element = t.wide_element(type_of(op.result).element)
    domain = Domain()
    i, j = domain.parallel(rows, columns)
    [k] = domain.reduce(type_of(op.a).shape[1])
    reads = [Read(_inside(at, group, rows, groups), [i]), Read(op.a, [i, k]),
             Read(op.b, [Expr.gathered(0), k, j])]
    total = make_nest(at, domain, reads, tensor(element, (rows, columns)),
                      lambda body, read: read[1].to(element) * read[2].to(element),
                      combiner="add")

    def chosen(body: Body, read: Sequence[Scalar]) -> Scalar:
        return read[0].compare("lt", body.index(groups)).where(read[1], read[1].like(0.0))

    masked = Domain()
    point = masked.parallel(rows, columns)
    return make_nest(at, masked, [Read(group, point[:1]), Read(total, point)],
                     type_of(op.result), chosen)


def _groups(op: GroupedMatmulOp, at: Rewriter, rows: Expr, groups: Expr) -> SSAValue:
    """The group of each row, which is the number of groups that end before it."""
    domain = Domain()
    [i] = domain.parallel(rows)
    [e] = domain.reduce(groups)

    def ended(body: Body, read: Sequence[Scalar]) -> Scalar:
        return read[0].to(t.i64).compare("le", body.index(i)).to(t.i64)

    return make_nest(at, domain, [Read(op.ends, [e])], tensor(t.i64, [rows]), ended,
                     combiner="add")


def _inside(at: Rewriter, group: SSAValue, rows: Expr, groups: Expr) -> SSAValue:
    """The matrix for each row: that of its group, or the last one."""
    domain = Domain()
    point = domain.parallel(rows)

    def limited(body: Body, read: Sequence[Scalar]) -> Scalar:
        return read[0].minimum(body.index(groups - 1)).maximum(0)

    return make_nest(at, domain, [Read(group, point)], tensor(t.i64, [rows]), limited)
