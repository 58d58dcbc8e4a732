"""Tensors computed from sizes alone."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from dialects.graph.constant import RangeOp, SizesOp
from passes.graph_to_loop.nests import Domain, make_nest, type_of
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Body, Scalar
from passes.rewriting import Rewriter


@lowers(RangeOp)
def range_(op: RangeOp, at: Rewriter) -> SSAValue:
    result = type_of(op.result)
    domain = Domain()
    [i] = domain.parallel(*result.shape)
    value = op.start.data + i * op.step.data
    return make_nest(at, domain, [], result,
                     lambda body, read: body.index(value, result.element))


@lowers(SizesOp)
def sizes(op: SizesOp, at: Rewriter) -> SSAValue:
    """The values, selected by the position in the result."""
    result, values = type_of(op.result), op.values.data
    domain = Domain()
    point = domain.parallel(*result.shape)

    def choose(body: Body, read: Sequence[Scalar]) -> Scalar:
        if not values:
            return body.constant(0, result.element)
        chosen = body.index(values[-1])
        for k in reversed(range(len(values) - 1)):
            chosen = body.index(point[0]).compare("eq", k).where(body.index(values[k]), chosen)
        return chosen

    return make_nest(at, domain, [], result, choose)
