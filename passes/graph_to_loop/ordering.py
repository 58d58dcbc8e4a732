"""top_k. Selects a few results one after another; ranks short axes by counting, for more results:

    rank[i]    = sum over j of (x[j] comes before x[i])
    indices[p] = the i with rank[i] == p

Counting is quadratic in the size of the axis, but parallel and without a temporary beyond the
ranks. A machine that runs many programs at once counts along longer axes, too, and scatters the
indices to their ranks. If only part of a longer axis is needed, that is selected first; a machine
that runs few programs looks for it in the chunks of a row with the best elements. Other long axes,
and those that may be long, are sorted, and the result takes the first of the sorted indices. A
target that sorts tiles (`sorted_bytes` of the facts) does so for all axes of a known size; one that
sorts rows in memory (`sorts_alone`) does so where all else would count along long axes.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from dialects.graph.base import flag_of, int_of
from dialects.graph.ordering import TopKOp
from dialects.loop import EmptyOp
from dialects.strata import types as t
from dialects.strata.types import tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from passes.graph_to_loop.chunk_select import chunk_for, first_by_chunks
from passes.graph_to_loop.gathers import pick
from passes.graph_to_loop.nests import Domain, Read, assume_at_most, copy, make_nest, type_of
from passes.graph_to_loop.radix_select import first_elements
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Body, Scalar
from passes.graph_to_loop.selecting import (
    FEW,
    can_select,
    codes_of,
    first_index,
    has_codes,
    selected_indices,
    selected_wide_indices,
)
from passes.graph_to_loop.sorting import sorted_indices
from passes.graph_to_loop.tile_sorts import can_sort_in_tiles, indices_by_tiles
from passes.rewriting import Rewriter

SHORT = 256
"""Axes of up to this many elements are ranked by counting."""

FEW_RANKED = 128
"""Up to this many elements are ranked so, where a kernel that sorts takes long to begin a row."""

COUNTED = 1 << 12
"""The same, if many programs count at the same time."""

LONG = 1 << 13
"""Longer rows are walked once for each element that is selected."""

SELECTED = 4
"""Fewer elements of long rows are selected, even if tiles can be sorted."""

HUGE = 1 << 31
"""From this size on, indices take more than 32 bits."""

COMPARISONS = 1 << 30
"""The most comparisons of all rows together for which those programs are faster than sorting."""


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
    count, size = result.shape[axis].constant, x.shape[axis].constant
    many, alone = at.context.facts.programs > 1, at.context.facts.sorts_alone
    if not alone and _sorts_in_tiles(op, at, axis, count):
        return _first(op, at, indices_by_tiles(
            at, op.x, axis, count or 1, flag_of(op.properties, "largest")))
    if not many and count and (chunk := chunk_for(x, axis, count)) is not None:
        return _first(op, at, first_by_chunks(
            at, op.x, axis, count, flag_of(op.properties, "largest"), chunk))
    if count == 1 and not many and has_codes(x) and (size or HUGE) < HUGE:
        return first_index(at, op.x, axis, result, descending=flag_of(op.properties, "largest"))
    if can_select(x, count):
        largest = flag_of(op.properties, "largest")
        return selected_indices(at, op.x, axis, result, descending=largest)
    if not many and count and count <= FEW and not has_codes(x) and (
            count == 1 or size is None or size > SHORT):
        largest = flag_of(op.properties, "largest")
        return selected_wide_indices(at, op.x, axis, result, descending=largest)
    if alone and count and (size or 0) > FEW_RANKED and can_sort_in_tiles(at, op.x, size):
        return _first(op, at, indices_by_tiles(
            at, op.x, axis, count, flag_of(op.properties, "largest")))
    if size is not None and size <= SHORT:
        ranks = _ranks(op, at)
        return _places(op, at, ranks) if many else _first(op, at, _indices_by_rank(op, at, ranks))
    if many and _can_count(x.shape, size):
        return _first(op, at, _indices_by_rank(op, at, _ranks(op, at)))
    if count is not None and (_can_count(result.shape, count) if many else 0 < count <= SHORT):
        return _sorted_selection(op, at, axis, count)
    return _first(op, at, sorted_indices(at, op.x, axis, flag_of(op.properties, "largest")))


def _sorts_in_tiles(op: TopKOp, at: Rewriter, axis: int, count: int | None) -> bool:
    """Whether tiles are sorted. A program finds a few elements of a row sooner one by one; only in
    long rows, each of them is a walk of its own."""
    size = type_of(op.x).shape[axis].constant
    if not count or not can_sort_in_tiles(at, op.x, size):
        return False
    long = (size or 0) > LONG
    return count >= SELECTED if long else not can_select(type_of(op.x), count)


def _can_count(shape: Sequence[Expr], size: int | None) -> bool:
    elements = product(shape).constant
    return size is not None and 0 < size <= COUNTED and (
        elements is not None and elements * size <= COMPARISONS)


def _sorted_selection(op: TopKOp, at: Rewriter, axis: int, count: int) -> SSAValue:
    """Select the elements first, and then sort these only."""
    largest = flag_of(op.properties, "largest")
    found = first_elements(at, op.x, axis, count, largest)
    result = type_of(op.indices)
    domain = Domain()
    point = domain.parallel(*result.shape)
    row = [i for dim, i in enumerate(point) if dim != axis]
    places = make_nest(at, domain, [Read(found, [*row, point[axis]])], result, copy)
    domain = Domain()
    point = domain.parallel(*result.shape)
    chosen = pick(at, domain, op.x, [Read(places, point) if dim == axis else i
                                     for dim, i in enumerate(point)])
    order = at.insert(TopKOp.of(chosen, axis=axis, k=count, largest=largest)).results[1]
    domain = Domain()
    point = domain.parallel(*result.shape)
    return pick(at, domain, places, [Read(order, point) if dim == axis else i
                                     for dim, i in enumerate(point)])


def _indices_by_rank(op: TopKOp, at: Rewriter, ranks: SSAValue) -> SSAValue:
    """All indices in sorted order, with the axis as the last one. All ranks of a row differ."""
    type_, axis = type_of(ranks), int_of(op.properties, "axis")
    domain = Domain()
    point = domain.parallel(*type_.shape)
    rows = [dim for dim in range(type_.rank) if dim != axis]
    empty = at.insert(EmptyOp.of(tensor(t.i64, [type_.shape[d] for d in (*rows, axis)])))
    return make_nest(
        at, domain, [Read(ranks, point)], type_of(empty.results[0]),
        lambda body, read: body.index(point[axis]),
        index=[*(point[d] for d in rows), Expr.gathered(0)], into=empty.results[0], total=True)


def _first(op: TopKOp, at: Rewriter, found: SSAValue) -> SSAValue:
    """The first of the sorted indices, which lie along the last axis."""
    result, axis = type_of(op.indices), int_of(op.properties, "axis")
    domain = Domain()
    point = domain.parallel(*result.shape)
    index = [*(i for dim, i in enumerate(point) if dim != axis), point[axis]]
    return make_nest(at, domain, [Read(found, index)], result, lambda body, read: read[0])


def _ranks(op: TopKOp, at: Rewriter) -> SSAValue:
    """How many elements of its row come before each element."""
    axis, largest = int_of(op.properties, "axis"), flag_of(op.properties, "largest")
    if not has_codes(type_of(op.x)):
        return _counted(at, op.x, axis, largest)
    codes = codes_of(at, op.x, axis, largest)
    domain, reads, _ = _pairs(codes, axis)
    return make_nest(at, domain, reads, type_of(codes),
                     lambda body, read: read[1].compare("gt", read[0]).to(t.i64), combiner="add")


def _counted(at: Rewriter, x: SSAValue, axis: int, largest: bool) -> SSAValue:
    domain, reads, distance = _pairs(x, axis)

    def comes_before(body: Body, read: Sequence[Scalar]) -> Scalar:
        x, y = (r.wide() for r in read)
        ahead, after = (_greater(y, x), _greater(x, y)) if largest else (
            _greater(x, y), _greater(y, x))
        earlier = body.index(distance).compare("lt", 0)
        return (ahead | ((after ^ 1) & earlier)).to(t.i64)

    return make_nest(at, domain, reads, tensor(t.i64, type_of(x).shape), comes_before,
                     combiner="add")


def _pairs(x: SSAValue, axis: int) -> tuple[Domain, list[Read], Expr]:
    """Each element with all others of its row, and how far these are behind it."""
    domain, shape = Domain(), type_of(x).shape
    point = domain.parallel(*shape)
    [other] = domain.reduce(shape[axis])
    own = point[axis]
    reads = [Read(x, point), Read(x, [other if i is own else i for i in point])]
    return domain, reads, other - own


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
