"""The first elements of long rows in sorted order, by a radix select (MSD, four bits per round).

Elements become integer keys in the order of the elements. Each round decides one more digit of the
last key that is selected, from the highest digit on:

    candidates[d] = the digits so far, followed by d, then zeros
    smaller[d]    = the number of keys below candidates[d]
    digit         = the last d with smaller[d] <= rank

Running counts of the smaller keys, and of those equal to the last key, tell where the selected
elements are: a binary search finds each of them. Only these are sorted then. A round reads every
key once, so the time is linear in the size of a row, and hardly depends on the number of results.
Rounds consist of reductions, which many programs share even if there is one row. The kernels of all
rounds are equal, since what differs is in tables, so they are compiled once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from xdsl.ir import SSAValue

from dialects.graph.constant import ConstantOp
from dialects.graph.cumulative import CumulativeSumOp
from dialects.strata import types as t
from dialects.strata.types import TensorType, tensor
from dialects.symbolic.expr import Expr
from passes.graph_to_loop.nests import Domain, Read, make_nest, type_of
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
    last, smaller = _last_key(rows, keys, count - 1, type_of(x))
    return _found(rows, _running_counts(rows, keys, last), smaller, count)


class _Rows(NamedTuple):
    """Rows of `size` elements, one per point of `batch`."""

    at: Rewriter
    batch: Sequence[Expr]
    size: Expr


def row_keys(at: Rewriter, x: SSAValue, axis: int, descending: bool) -> SSAValue:
    """The keys of the elements, with the axis as the last one; see `_least_key`.

    Their signed order is that of the elements, `descending`: the opposite of it.
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
        return found ^ (1 << (bits - 1))

    read = Read(x, [*batch[:axis], i, *batch[axis:]])
    return make_nest(at, domain, [read], tensor(element, [*shape, type_.shape[axis]]), key)


def _least_key(x: TensorType) -> int:
    """The least key that elements of a type may have: 0 if keys are wider than their digits."""
    bits = DIGIT * key_digits(x.element)
    return 0 if bits < (64 if x.dtype.itemsize == 8 else 32) else -(1 << (bits - 1))


# ---------------------------------------------------------------------- the last key
def _last_key(
    rows: _Rows, keys: SSAValue, rank: int, x: TensorType
) -> tuple[SSAValue, SSAValue]:
    """The key of that rank in each row of `x`, and how many keys are smaller."""
    digits = key_digits(x.element)
    candidates = _table(rows, keys, _least_key(x), DIGIT * (digits - 1))
    smaller = _smaller(rows, keys, candidates)
    for number in reversed(range(digits - 1)):
        last = _last_not_after(rows, candidates, smaller, rank)
        candidates = _candidates(rows, last, _table(rows, keys, 0, DIGIT * number))
        smaller = _smaller(rows, keys, candidates)
    return (_last_not_after(rows, candidates, smaller, rank),
            _last_not_after(rows, smaller, smaller, rank))


def _table(rows: _Rows, keys: SSAValue, start: int, shift: int) -> SSAValue:
    """start + (d << shift) for each digit d. Tables make the kernels of all rounds equal."""
    numbers = np.array([start + (d << shift) for d in range(BASE)], type_of(keys).dtype)
    table = ConstantOp.of_array(numbers, rows.at.context.weights, "digits")
    return rows.at.insert(table).results[0]


def _candidates(rows: _Rows, last: SSAValue, table: SSAValue) -> SSAValue:
    """`last` with each value of the next digit."""
    domain = Domain()
    *batch, d = domain.parallel(*rows.batch, BASE)
    return make_nest(rows.at, domain, [Read(last, batch), Read(table, [d])],
                     tensor(type_of(last).element, [*rows.batch, Expr.of(BASE)]),
                     lambda body, read: read[0] + read[1])


def _smaller(rows: _Rows, keys: SSAValue, candidates: SSAValue) -> SSAValue:
    """How many keys of each row are smaller than each candidate."""
    domain = Domain()
    *batch, d = domain.parallel(*rows.batch, BASE)
    [i] = domain.reduce(rows.size)

    def is_smaller(body: Body, read: Sequence[Scalar]) -> Scalar:
        key, candidate = read
        return key.compare("lt", candidate).to(t.i32)

    return make_nest(
        rows.at, domain, [Read(keys, [*batch, i]), _candidate(candidates, batch, d)],
        tensor(t.i32, [*rows.batch, Expr.of(BASE)]), is_smaller, combiner="add")


def _last_not_after(rows: _Rows, of: SSAValue, smaller: SSAValue, rank: int) -> SSAValue:
    """What belongs to the last candidate of each row with at most `rank` smaller keys.

    `of`: the candidates, or the numbers of smaller keys; both ascend.
    """
    type_, domain = type_of(of), Domain()
    batch = domain.parallel(*rows.batch)
    [d] = domain.reduce(BASE)
    least = -(1 << 8 * type_.dtype.itemsize - 1)

    def found(body: Body, read: Sequence[Scalar]) -> Scalar:
        own, number = read
        return number.compare("le", rank).where(own, least)

    return make_nest(rows.at, domain, [_candidate(of, batch, d), Read(smaller, [*batch, d])],
                     tensor(type_.element, rows.batch), found, combiner="max")


def _candidate(candidates: SSAValue, batch: Sequence[Expr], d: Expr) -> Read:
    """A candidate of a row; those of the first round are the same for all rows."""
    return Read(candidates, [*batch, d][-type_of(candidates).rank:])


# ---------------------------------------------------------------------- where they are
def _running_counts(rows: _Rows, keys: SSAValue, last: SSAValue) -> SSAValue:
    """Up to each element, how many keys are smaller than the last one (upper half), or equal."""
    domain = Domain()
    point = domain.parallel(*rows.batch, rows.size)
    batch = point[:-1]
    shape = tensor(t.i64, [*rows.batch, rows.size])

    def marked(body: Body, read: Sequence[Scalar]) -> Scalar:
        key, end = read
        equal = key.compare("eq", end).to(t.i64)
        return key.compare("lt", end).where(equal.like(1 << _HALF), equal)

    marks = make_nest(rows.at, domain, [Read(keys, point), Read(last, batch)], shape, marked)
    sums = CumulativeSumOp.of(marks, axis=len(rows.batch), exclusive=False, reverse=False)
    return rows.at.insert(sums).results[0]


def _found(rows: _Rows, counts: SSAValue, smaller: SSAValue, count: int) -> SSAValue:
    """The position of each result: of the smaller keys, and then of the first equal ones.
    """
    size, domain = rows.size.constant, Domain()
    domain.parallel(*rows.batch, count)
    place = make_nest(rows.at, domain, [], tensor(t.i64, [*rows.batch, Expr.of(count)]),
                      lambda body, read: body.index(0))
    for bit in reversed(range(MOST_BITS if size is None else size.bit_length())):
        place = _with_bit(rows, counts, smaller, place, 1 << bit, count)
    domain = Domain()
    point = domain.parallel(*rows.batch, count)
    return make_nest(
        rows.at, domain, [Read(place, point)], type_of(place),
        lambda body, read: read[0].minimum(body.index(rows.size - 1)))  # beyond the last result


def _with_bit(
    rows: _Rows, counts: SSAValue, smaller: SSAValue, place: SSAValue, step: int, count: int
) -> SSAValue:
    """`place` + `step` if the elements before that hold fewer keys than wanted, else `place`."""
    domain = Domain()
    *batch, p = point = domain.parallel(*rows.batch, count)
    reads = [Read(place, point), Read(smaller, batch),
             Read(counts, [*batch, Expr.gathered(0) + (step - 1)], 0)]

    def compute(body: Body, read: Sequence[Scalar]) -> Scalar:
        start, smaller, sums = read
        number = body.index(p)
        smaller = smaller.to(t.i64)
        is_smaller = number.compare("lt", smaller)
        held = is_smaller.where(sums >> _HALF, sums & _LOW)
        wanted = is_smaller.where(number, number - smaller)
        fits = (start + step).compare("le", body.index(rows.size))
        return (fits & held.compare("le", wanted)).where(start + step, start)

    return make_nest(rows.at, domain, reads, type_of(place), compute)
