"""The first elements of long rows in sorted order, by a radix select (MSD, four bits per round).

Elements become integer keys whose unsigned order is the order of the elements. Each round decides
one more digit of the last key that is selected:

    counts[d] = the number of elements whose key begins with the digits so far, followed by d
    digit     = the first d with counts[0] + ... + counts[d] > rank
    rank      = rank - (counts[0] + ... + counts[digit - 1])

Running counts of the smaller keys, and of those equal to the last key, tell where the selected
elements are: a binary search finds each of them. Only these are sorted then. A round reads every
key once, so the time is linear in the size of a row, and hardly depends on the number of results.
Rounds consist of reductions, which many programs share even if there is one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xdsl.ir import Attribute, SSAValue

from dialects.graph.cumulative import CumulativeSumOp
from dialects.strata import types as t
from dialects.strata.types import tensor
from dialects.symbolic.expr import Expr
from passes.graph_to_loop.nests import Domain, Formula, Read, make_nest, type_of
from passes.graph_to_loop.scalars import Body, Scalar
from passes.graph_to_loop.sorting import BASE, DIGIT, key_digits, order_key
from passes.rewriting import Rewriter

MOST_BITS = 31
"""The bits of a position in a row of unknown size; counts of two kinds share an i64."""

_HALF = 32
_LOW = (1 << _HALF) - 1


def first_elements(
    at: Rewriter, x: SSAValue, axis: int, count: int, descending: bool
) -> SSAValue:
    """The positions along an axis of the `count` first elements in sorted order, as i64.

    The axis becomes the last one. The positions are not sorted, but those of equal elements are in
    ascending order. NaN is greater than all numbers. `count` is at least 1 and at most the size.
    """
    shape = type_of(x).shape
    rows = _Rows(at, [s for dim, s in enumerate(shape) if dim != axis], shape[axis])
    keys = row_keys(at, x, axis, descending)
    last, rank = rows.constant(0, type_of(keys).element), rows.constant(count - 1, t.i64)
    for number in reversed(range(key_digits(type_of(x).element))):
        shift = DIGIT * number
        counts = [_matches(rows, keys, last, digit, shift) for digit in range(BASE - 1)]
        last, rank = (_next_key(rows, last, rank, counts, shift),
                      _next_rank(rows, rank, counts))
    return _found(rows, _running_counts(rows, keys, last), rank, count)


class _Rows(NamedTuple):
    """Rows of `size` elements, one per point of `batch`."""

    at: Rewriter
    batch: Sequence[Expr]
    size: Expr

    def constant(self, number: int, element: Attribute) -> SSAValue:
        """The same number for each row."""
        domain = Domain()
        domain.parallel(*self.batch)
        return make_nest(self.at, domain, [], tensor(element, self.batch),
                         lambda body, read: body.constant(number, element))


def row_keys(
    at: Rewriter, x: SSAValue, axis: int, descending: bool, signed: bool = False
) -> SSAValue:
    """The keys of the elements, with the axis as the last one; bits above their digits are 0.

    Their unsigned order is that of the elements, `signed`: their signed order; `descending`: the
    opposite of it.
    """
    type_, domain = type_of(x), Domain()
    shape = [s for dim, s in enumerate(type_.shape) if dim != axis]
    *batch, i = domain.parallel(*shape, type_.shape[axis])
    element = t.i64 if type_.dtype.itemsize == 8 else t.i32
    bits = DIGIT * key_digits(type_.element)

    def key(body: Body, read: Sequence[Scalar]) -> Scalar:
        found = order_key(read[0], element)
        found = found ^ -1 if descending else found
        if bits < found.bits:
            return found & ((1 << bits) - 1)
        return found ^ (1 << (bits - 1)) if signed else found

    read = Read(x, [*batch[:axis], i, *batch[axis:]])
    return make_nest(at, domain, [read], tensor(element, [*shape, type_.shape[axis]]), key)


# ---------------------------------------------------------------------- one round
def _matches(rows: _Rows, keys: SSAValue, last: SSAValue, digit: int, shift: int) -> SSAValue:
    """How many keys begin with the digits of `last` above `shift`, followed by `digit`."""
    domain = Domain()
    batch = domain.parallel(*rows.batch)
    [i] = domain.reduce(rows.size)

    def counted(body: Body, read: Sequence[Scalar]) -> Scalar:
        key, begin = read
        return (((key ^ begin) >> shift).compare("eq", digit)).to(t.i32)

    return make_nest(rows.at, domain, [Read(keys, [*batch, i]), Read(last, batch)],
                     tensor(t.i32, rows.batch), counted, combiner="add")


def _next_key(
    rows: _Rows, last: SSAValue, rank: SSAValue, counts: Sequence[SSAValue], shift: int
) -> SSAValue:
    """`last`, with the digit at `shift` of the key of that rank."""
    def key(body: Body, read: Sequence[Scalar]) -> Scalar:
        digit, _ = _digit_and_before(read[1], read[2:])
        return read[0] | (digit.to(read[0].element) << shift)

    return _by_row(rows, [last, rank, *counts], key)


def _next_rank(rows: _Rows, rank: SSAValue, counts: Sequence[SSAValue]) -> SSAValue:
    """The rank among the keys that begin with one more digit."""
    def left(body: Body, read: Sequence[Scalar]) -> Scalar:
        _, before = _digit_and_before(read[0], read[1:])
        return read[0] - before

    return _by_row(rows, [rank, *counts], left)


def _digit_and_before(rank: Scalar, counts: Sequence[Scalar]) -> tuple[Scalar, Scalar]:
    """The digit of the key of that rank, and the number of keys with smaller digits."""
    digit = before = total = rank.like(0)
    for count in counts:
        total = total + count.to(t.i64)
        smaller = total.compare("le", rank)
        digit, before = digit + smaller.to(t.i64), smaller.where(total, before)
    return digit, before


def _by_row(rows: _Rows, values: Sequence[SSAValue], formula: Formula) -> SSAValue:
    """The formula of values of each row, in the type of the first one."""
    domain = Domain()
    batch = domain.parallel(*rows.batch)
    return make_nest(rows.at, domain, [Read(v, batch) for v in values], type_of(values[0]),
                     formula)


# ---------------------------------------------------------------------- where they are
def _running_counts(rows: _Rows, keys: SSAValue, last: SSAValue) -> SSAValue:
    """Up to each element, how many keys are smaller than the last one (upper half), or equal."""
    domain = Domain()
    point = domain.parallel(*rows.batch, rows.size)
    batch = point[:-1]
    shape = tensor(t.i64, [*rows.batch, rows.size])
    sign = 1 << (8 * type_of(keys).dtype.itemsize - 1)

    def marked(body: Body, read: Sequence[Scalar]) -> Scalar:
        key, end = (r ^ sign for r in read)
        equal = key.compare("eq", end).to(t.i64)
        return key.compare("lt", end).where(equal.like(1 << _HALF), equal)

    marks = make_nest(rows.at, domain, [Read(keys, point), Read(last, batch)], shape, marked)
    sums = CumulativeSumOp.of(marks, axis=len(rows.batch), exclusive=False, reverse=False)
    return rows.at.insert(sums).results[0]


def _found(rows: _Rows, counts: SSAValue, rank: SSAValue, count: int) -> SSAValue:
    """The position of each result: of the smaller keys, and then of the first equal ones.

    `rank` + 1 results are equal to the last one.
    """
    size, domain = rows.size.constant, Domain()
    domain.parallel(*rows.batch, count)
    place = make_nest(rows.at, domain, [], tensor(t.i64, [*rows.batch, Expr.of(count)]),
                      lambda body, read: body.index(0))
    for bit in reversed(range(MOST_BITS if size is None else size.bit_length())):
        place = _with_bit(rows, counts, rank, place, 1 << bit, count)
    domain = Domain()
    point = domain.parallel(*rows.batch, count)
    return make_nest(
        rows.at, domain, [Read(place, point)], type_of(place),
        lambda body, read: read[0].minimum(body.index(rows.size - 1)))  # beyond the last result


def _with_bit(
    rows: _Rows, counts: SSAValue, rank: SSAValue, place: SSAValue, step: int, count: int
) -> SSAValue:
    """`place` + `step` if the elements before that hold fewer keys than wanted, else `place`."""
    domain = Domain()
    *batch, p = point = domain.parallel(*rows.batch, count)
    reads = [Read(place, point), Read(rank, batch),
             Read(counts, [*batch, Expr.gathered(0) + (step - 1)], 0)]

    def compute(body: Body, read: Sequence[Scalar]) -> Scalar:
        start, rank, sums = read
        number = body.index(p)
        smaller = rank.like(count - 1) - rank
        is_smaller = number.compare("lt", smaller)
        held = is_smaller.where(sums >> _HALF, sums & _LOW)
        wanted = is_smaller.where(number, number - smaller)
        fits = (start + step).compare("le", body.index(rows.size))
        return (fits & held.compare("le", wanted)).where(start + step, start)

    return make_nest(rows.at, domain, reads, type_of(place), compute)
