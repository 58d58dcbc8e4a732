"""Running (cumulative) sums and products.

Targets with scans (`Facts.scans`) get one nest, or three nests for a few long rows: one scans
chunks, one scans their sums, and one adds the sum of the chunks before. For other targets:

An axis of constant size n takes log8(n) elementwise nests. The k-th nest adds to every element
those that are 8^k, 2*8^k ... 7*8^k positions before it, so that each then holds the sum of 8^(k+1)
elements. An axis of unknown size is cut into chunks of a constant size, which are summed in this
way. Then the sum of all earlier chunks is added to every element. That is quadratic only in the
number of chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

from xdsl.ir import SSAValue

from dialects.graph.base import flag_of, int_of
from dialects.graph.cumulative import CumulativeOp, CumulativeProdOp, CumulativeSumOp
from dialects.strata.types import TensorType, f32, tensor, wide_element
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.size_products import product
from passes.graph_to_loop.nests import Domain, Read, converted, make_nest, type_of
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Body, Scalar
from passes.rewriting import Rewriter

CHUNK = 256
"""The number of elements per chunk."""
SCANNED, LEAST_SCANNED = 1024, 64
"""The most and the fewest elements of a scanned chunk."""
INTERLEAVED = 64
"""The number of rows that one program scans if neighbouring rows interleave in memory."""
SUMMED = 8
"""The elements that a nest sums at a time: more elements mean fewer nests that walk all memory."""


@lowers(CumulativeSumOp, CumulativeProdOp)
def cumulate(op: CumulativeOp, at: Rewriter) -> SSAValue:
    x = type_of(op.x)
    wide, running = wide_element(x.element), at.context.facts.scans
    result = tensor(running if running is not None and wide == f32 else wide, x.shape)
    axis = int_of(op.properties, "axis")
    size = x.shape[axis].constant
    if (chunk := _scanned_chunk(op, at)) is not None:
        scanned = _by_scan(op, at, result) if chunk == size else _by_scans(op, at, result, chunk)
        return converted(at, scanned, x.element)
    first = _in_order(op, at, result) if size is not None else _chunks(op, at, result, CHUNK)
    if size is not None:
        return converted(at, _summed(op, at, first, axis, size, backwards(op)), x.element)
    sums = _summed(op, at, first, axis + 1, CHUNK, False)
    before = _sums_before(op, at, sums, axis)
    return converted(at, _joined(op, at, sums, before, result, CHUNK), x.element)


def backwards(op: CumulativeOp) -> bool:
    return flag_of(op.properties, "reverse")


def _in_order(op: CumulativeOp, at: Rewriter, result: TensorType) -> SSAValue:
    """The elements; for exclusive sums, each element's predecessor instead."""
    if not flag_of(op.properties, "exclusive"):
        return op.x
    domain, axis = Domain(), int_of(op.properties, "axis")
    point = domain.parallel(*result.shape)
    read = Read(op.x, _moved(point, axis, 1, backwards(op)), op.NEUTRAL)
    return make_nest(at, domain, [read], result, lambda body, read: read[0].wide())


def _summed(
    op: CumulativeOp, at: Rewriter, value: SSAValue, axis: int, size: int, reverse: bool
) -> SSAValue:
    """Running sums along an axis of constant size."""
    step = 1
    while step < size:
        count = min(SUMMED, -(-size // step))
        value = _combined(op, at, value, axis, [step * k for k in range(count)], reverse)
        step *= SUMMED
    return value


def _combined(
    op: CumulativeOp, at: Rewriter, x: SSAValue, axis: int, steps: Sequence[int], reverse: bool
) -> SSAValue:
    """Combine each element with those at the given distances before it."""
    domain, type_ = Domain(), type_of(x)
    point = domain.parallel(*type_.shape)
    reads = [Read(x, _moved(point, axis, step, reverse), op.NEUTRAL if step else None)
             for step in steps]
    return make_nest(at, domain, reads, tensor(wide_element(type_.element), type_.shape),
                     lambda body, read: reduce(partial(_merge, op), (r.wide() for r in read)))


def _moved(point: Sequence[Expr], axis: int, step: int, reverse: bool) -> list[Expr]:
    """The point `step` positions before this one."""
    moved = step if reverse else -step
    return [i + moved if dim == axis else i for dim, i in enumerate(point)]


# ---------------------------------------------------------------------- scans
def _scanned_chunk(op: CumulativeOp, at: Rewriter) -> int | None:
    """The number of elements that one program scans, or None if the target does not scan.

    It is the whole axis, or a chunk if there would be too few programs otherwise.
    """
    facts = at.context.facts
    if facts.scans is None:
        return None
    shape, axis = type_of(op.x).shape, int_of(op.properties, "axis")
    size, rows = shape[axis].constant, product([*shape[:axis], *shape[axis + 1:]]).constant
    interleaved = 1 if product(shape[axis + 1:]) == Expr.of(1) else INTERLEAVED
    if size is None or rows is None:
        return size or SCANNED
    wanted, programs = facts.programs // 2, -(-rows // interleaved)
    if 4 * programs >= wanted or size * interleaved <= facts.short_rows:
        return size
    chunk = max(size * programs // wanted, LEAST_SCANNED)
    return min(1 << chunk.bit_length() - 1, SCANNED)


def _by_scan(op: CumulativeOp, at: Rewriter, result: TensorType) -> SSAValue:
    axis, before = int_of(op.properties, "axis"), int(flag_of(op.properties, "exclusive"))

    def read(point: Sequence[Expr]) -> Read:
        place = _at(op, point, axis, result)
        return Read(op.x, _moved(place, axis, before, backwards(op)),
                    op.NEUTRAL if before else None)

    return _scan(op, at, result, axis, read, lambda point: _at(op, point, axis, result))


def _by_scans(op: CumulativeOp, at: Rewriter, result: TensorType, chunk: int) -> SSAValue:
    """Scan chunks, and then the sums of chunks."""
    axis = int_of(op.properties, "axis")
    parts = _chunks(op, at, result, chunk)
    sums = _scan(op, at, type_of(parts), axis + 1, lambda point: Read(parts, point), list)
    shape = [s for dim, s in enumerate(type_of(sums).shape) if dim != axis + 1]

    def last(point: Sequence[Expr]) -> Read:
        return Read(sums, [*point[:axis], point[axis] - 1, Expr.of(chunk - 1), *point[axis + 1:]],
                    op.NEUTRAL)

    before = _scan(op, at, tensor(result.element, shape), axis, last, list)
    return _joined(op, at, sums, before, result, chunk)


def _scan(
    op: CumulativeOp, at: Rewriter, result: TensorType, axis: int,
    read: Callable[[Sequence[Expr]], Read], stored: Callable[[Sequence[Expr]], Sequence[Size]],
) -> SSAValue:
    domain = Domain()
    outer = domain.parallel(*result.shape[:axis], *result.shape[axis + 1:])
    [along] = domain.reduce(result.shape[axis])
    point = [*outer[:axis], along, *outer[axis:]]
    return make_nest(at, domain, [read(point)], result, lambda body, read: read[0].wide(),
                     index=stored(point), combiner=_combiner(op))


def _at(op: CumulativeOp, point: Sequence[Expr], axis: int, result: TensorType) -> list[Expr]:
    return [_place(op, i, result.shape[axis]) if dim == axis else i for dim, i in enumerate(point)]


def _combiner(op: CumulativeOp) -> str:
    return "add" if isinstance(op, CumulativeSumOp) else "mul"


# ---------------------------------------------------------------------- axes in chunks
def _place(op: CumulativeOp, i: Expr, size: Expr) -> Expr:
    """An element's position in the order of the sum; also the reverse mapping."""
    return size - 1 - i if backwards(op) else i


def _chunks(op: CumulativeOp, at: Rewriter, result: TensorType, chunk: int) -> SSAValue:
    """The elements in the order of the sum, as [chunks, chunk], padded with neutral elements."""
    axis = int_of(op.properties, "axis")
    size = result.shape[axis]
    shape = [*result.shape[:axis], size.ceildiv(chunk), Expr.of(chunk), *result.shape[axis + 1:]]
    domain = Domain()
    point = domain.parallel(*shape)
    number = point[axis] * chunk + point[axis + 1] - int(flag_of(op.properties, "exclusive"))
    source = [*point[:axis], _place(op, number, size), *point[axis + 2:]]
    return make_nest(at, domain, [Read(op.x, source, op.NEUTRAL)], tensor(result.element, shape),
                     lambda body, read: read[0].wide())


def _sums_before(op: CumulativeOp, at: Rewriter, sums: SSAValue, axis: int) -> SSAValue:
    """For every chunk, the sum of all chunks before it."""
    type_ = type_of(sums)
    shape = [s for dim, s in enumerate(type_.shape) if dim != axis + 1]
    domain = Domain()
    point = domain.parallel(*shape)
    [other] = domain.reduce(shape[axis])
    last = [*point[:axis], other, Expr.of(CHUNK - 1), *point[axis + 1:]]

    def counted(body: Body, read: Sequence[Scalar]) -> Scalar:
        return body.index(other - point[axis]).compare("lt", 0).where(read[0].wide(), op.NEUTRAL)

    return make_nest(at, domain, [Read(sums, last)], tensor(type_.element, shape), counted,
                     combiner=_combiner(op))


def _joined(
    op: CumulativeOp, at: Rewriter, sums: SSAValue, before: SSAValue, result: TensorType, size: int
) -> SSAValue:
    axis = int_of(op.properties, "axis")
    domain = Domain()
    point = domain.parallel(*result.shape)
    number = _place(op, point[axis], result.shape[axis])
    chunk, inside = number // size, number % size
    reads = [Read(sums, [*point[:axis], chunk, inside, *point[axis + 1:]]),
             Read(before, [*point[:axis], chunk, *point[axis + 1:]])]
    return make_nest(at, domain, reads, result,
                     lambda body, read: _merge(op, read[0].wide(), read[1].wide()))


def _merge(op: CumulativeOp, x: Scalar, y: Scalar) -> Scalar:
    return x + y if isinstance(op, CumulativeSumOp) else x * y
