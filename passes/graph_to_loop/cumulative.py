"""Running sums and products.

Over an axis of constant size n in log2(n) elementwise nests: the k-th adds to every element the one
2^k places before it, so that each then holds the sum of 2^(k+1). Over a size that only a run tells,
one reduction over the elements before each, which is quadratic in that size.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from dialects.expr import Expr
from dialects.graph.base import flag_of, int_of
from dialects.graph.cumulative import CumulativeOp, CumulativeProdOp, CumulativeSumOp
from dialects.types import TensorType, tensor
from passes.graph_to_loop.nests import Domain, Read, converted, make_nest, type_of, wide_element
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Body, Scalar
from passes.rewriting import Rewriter


@lowers(CumulativeSumOp, CumulativeProdOp)
def cumulate(op: CumulativeOp, at: Rewriter) -> SSAValue:
    x = type_of(op.x)
    result = tensor(wide_element(x.element), x.shape)
    size = x.shape[int_of(op.properties, "axis")].constant
    total = _reduced(op, at, result) if size is None else _doubled(op, at, result, size)
    return converted(at, total, x.element)


def _doubled(op: CumulativeOp, at: Rewriter, result: TensorType, size: int) -> SSAValue:
    value = op.x
    if flag_of(op.properties, "exclusive"):
        value = _shifted(op, at, value, result)
    step = 1
    while step < size:
        value = _combined(op, at, value, result, step)
        step *= 2
    return value


def _shifted(op: CumulativeOp, at: Rewriter, x: SSAValue, result: TensorType) -> SSAValue:
    """Each element's neighbour before it; the neutral number for the first."""
    domain = Domain()
    read = Read(x, _before(op, domain.parallel(*result.shape), 1), op.NEUTRAL)
    return make_nest(at, domain, [read], result, lambda body, read: read[0].wide())


def _combined(
    op: CumulativeOp, at: Rewriter, x: SSAValue, result: TensorType, step: int
) -> SSAValue:
    """Each element with the one `step` places before it."""
    domain = Domain()
    point = domain.parallel(*result.shape)
    reads = [Read(x, point), Read(x, _before(op, point, step), op.NEUTRAL)]
    return make_nest(at, domain, reads, result,
                     lambda body, read: _merge(op, read[0].wide(), read[1].wide()))


def _before(op: CumulativeOp, point: Sequence[Expr], step: int) -> list[Expr]:
    axis = int_of(op.properties, "axis")
    moved = step if flag_of(op.properties, "reverse") else -step
    return [i + moved if dim == axis else i for dim, i in enumerate(point)]


def _merge(op: CumulativeOp, x: Scalar, y: Scalar) -> Scalar:
    return x + y if isinstance(op, CumulativeSumOp) else x * y


def _reduced(op: CumulativeOp, at: Rewriter, result: TensorType) -> SSAValue:
    """Reduces all elements, those that do not count as neutral numbers."""
    axis = int_of(op.properties, "axis")
    domain = Domain()
    point = domain.parallel(*result.shape)
    [other] = domain.reduce(result.shape[axis])
    read = Read(op.x, [other if dim == axis else i for dim, i in enumerate(point)])
    first, last = (point[axis], other) if flag_of(op.properties, "reverse") else (
        other, point[axis])
    order = "lt" if flag_of(op.properties, "exclusive") else "le"

    def counted(body: Body, read: Sequence[Scalar]) -> Scalar:
        counts = body.index(first - last).compare(order, 0)
        return counts.where(read[0].wide(), op.NEUTRAL)

    combiner = "add" if isinstance(op, CumulativeSumOp) else "mul"
    return make_nest(at, domain, [read], result, counted, combiner=combiner)
