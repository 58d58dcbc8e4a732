"""top_k. Selects a few results one after another; ranks short axes by counting, for more results:

    rank[i]    = sum over j of (x[j] comes before x[i])
    indices[p] = the i with rank[i] == p

Counting is quadratic in the size of the axis, but parallel and without a temporary beyond the
ranks. Axes that are long, or may be, are sorted, and the result takes the first of the sorted
indices.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from dialects.graph.base import flag_of, int_of
from dialects.graph.ordering import TopKOp
from dialects.strata import types as t
from dialects.strata.types import tensor
from passes.graph_to_loop.gathers import pick
from passes.graph_to_loop.nests import Domain, Read, assume_at_most, make_nest, type_of
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Body, Scalar
from passes.graph_to_loop.selecting import can_select, selected_indices
from passes.graph_to_loop.sorting import sorted_indices
from passes.rewriting import Rewriter

SHORT = 256
"""Axes of up to this many elements are ranked by counting."""


@lowers(TopKOp)
def top_k(op: TopKOp, at: Rewriter) -> Sequence[SSAValue]:
    axis = int_of(op.properties, "axis")
    assume_at_most(at, op.k.data, type_of(op.x).shape[axis])
    indices = _indices(op, at, axis)
    domain = Domain()
    point = domain.parallel(*type_of(op.values).shape)
    index = [Read(indices, point) if dim == axis else i for dim, i in enumerate(point)]
    return [pick(at, domain, op.x, index), indices]


def _indices(op: TopKOp, at: Rewriter, axis: int) -> SSAValue:
    x, result = type_of(op.x), type_of(op.indices)
    if can_select(x, result.shape[axis].constant):
        largest = flag_of(op.properties, "largest")
        return selected_indices(at, op.x, axis, result, descending=largest)
    size = x.shape[axis].constant
    if size is not None and size <= SHORT:
        return _places(op, at, _ranks(op, at))
    return _first_sorted(op, at)


def _first_sorted(op: TopKOp, at: Rewriter) -> SSAValue:
    """The first of the sorted indices."""
    result, axis = type_of(op.indices), int_of(op.properties, "axis")
    found = sorted_indices(at, op.x, axis, flag_of(op.properties, "largest"))
    domain = Domain()
    point = domain.parallel(*result.shape)
    index = [*(i for dim, i in enumerate(point) if dim != axis), point[axis]]
    return make_nest(at, domain, [Read(found, index)], result, lambda body, read: read[0])


def _ranks(op: TopKOp, at: Rewriter) -> SSAValue:
    x, axis, largest = type_of(op.x), int_of(op.properties, "axis"), flag_of(
        op.properties, "largest")
    domain = Domain()
    point = domain.parallel(*x.shape)
    [other] = domain.reduce(x.shape[axis])
    own = point[axis]
    reads = [Read(op.x, point), Read(op.x, [other if i is own else i for i in point])]

    def comes_before(body: Body, read: Sequence[Scalar]) -> Scalar:
        x, y = (r.wide() for r in read)
        ahead, after = (_greater(y, x), _greater(x, y)) if largest else (
            _greater(x, y), _greater(y, x))
        earlier = body.index(other - own).compare("lt", 0)
        return (ahead | ((after ^ 1) & earlier)).to(t.i64)

    return make_nest(at, domain, reads, tensor(t.i64, x.shape), comes_before, combiner="add")


def _greater(x: Scalar, y: Scalar) -> Scalar:
    """x > y, where NaN is greater than all numbers."""
    greater = x.compare("gt", y)
    return greater | (x.is_nan() & (y.is_nan() ^ 1)) if x.is_float else greater


def _places(op: TopKOp, at: Rewriter, ranks: SSAValue) -> SSAValue:
    result, axis = type_of(op.indices), int_of(op.properties, "axis")
    domain = Domain()
    point = domain.parallel(*result.shape)
    [place] = domain.reduce(type_of(op.x).shape[axis])
    wanted = point[axis]
    read = Read(ranks, [place if i is wanted else i for i in point])

    def found(body: Body, read: Sequence[Scalar]) -> Scalar:
        return read[0].compare("eq", body.index(wanted)).where(body.index(place), 0)

    return make_nest(at, domain, [read], result, found, combiner="max")
