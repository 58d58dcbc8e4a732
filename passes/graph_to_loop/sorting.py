"""Sorting the rows of a tensor: a radix sort, four bits of the keys in each round.

Elements become integer keys in whose order, as unsigned numbers, they are to stand. Rows are cut
into chunks. Each round sorts by the lowest digit of the keys and keeps the order of equal ones:

    counts[d, c]   how many elements of chunk c have the digit d
    starts[d, c]   the sum of all counts before it: where those elements go
    place[c, i]    starts[digit of i, c] + how many elements of chunk c before i have its digit
    sorted[place[c, i]] = the key without that digit, and the index it started from

A round is linear in the size of a row but for the sums of sums, which are quadratic in a 512th of
it. The rounds are alike, so that their kernels are compiled once; how many there are depends on the
type of the elements, not on how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Attribute, SSAValue

from dialects.graph.constant import ConstantOp
from dialects.loop import EmptyOp, ViewOp
from dialects.strata import types as t
from dialects.strata.types import tensor
from dialects.symbolic.expr import Expr, minimum
from passes.graph_to_loop.nests import Domain, Read, make_nest, type_of
from passes.graph_to_loop.scalars import Body, Scalar
from passes.rewriting import Rewriter

CHUNK = 32
"""Elements of a chunk: each is compared with all others of it."""

DIGIT = 4
"""The bits of a digit."""

BASE = 1 << DIGIT
"""How many different digits there are."""

GROUP = 16
"""Numbers that are summed at a time to find sums of all before."""

DEPTH = 2
"""How often sums are grouped where their number is not known."""

FEW = 256
"""So many numbers are summed directly."""


def sorted_indices(at: Rewriter, x: SSAValue, axis: int, descending: bool) -> SSAValue:
    """The indices of x along an axis in the order of its elements, i64; equal ones in theirs.

    The axis becomes the last one, and is longer than that of x: what follows are some indices.
    NaN is greater than all numbers.
    """
    shape = type_of(x).shape
    rows = _Rows(at, [s for dim, s in enumerate(shape) if dim != axis], shape[axis])
    keys = _keys(rows, x, axis, descending)
    indices: SSAValue | None = None
    rounds = _key_digits(type_of(x).element)
    for number in range(rounds):
        places = rows.places(keys)
        indices = rows.moved(places, indices)
        if number + 1 < rounds:
            keys = rows.moved(places, keys, drop=DIGIT)
    assert indices is not None
    return at.insert(ViewOp.of(indices, [*rows.batch, rows.length])).results[0]


# ---------------------------------------------------------------------- keys
def _key_digits(element: Attribute) -> int:
    """Digits that tell keys apart; those of halves lie in the upper ones of a float's."""
    upper: dict[Attribute, int] = {t.bf16: 4, t.f16: 5}
    wide = t.wide_element(element) if t.is_float(element) else element
    return upper.get(element) or 2 * t.byte_width(wide)


def _keys(rows: _Rows, x: SSAValue, axis: int, descending: bool) -> SSAValue:
    """The keys of the elements, chunk by chunk; the greatest key of all behind the last one."""
    domain = Domain()
    *batch, chunk, i = domain.parallel(*rows.shape)
    number = chunk * CHUNK + i
    element = t.i64 if type_of(x).dtype.itemsize == 8 else t.i32

    def key(body: Body, read: Sequence[Scalar]) -> Scalar:
        found = order_key(read[0], element)
        found = found ^ -1 if descending else found
        inside = body.index(number - rows.size).compare("lt", 0)
        return inside.where(found, -1)

    index = [*batch[:axis], number, *batch[axis:]]
    return make_nest(rows.at, domain, [Read(x, index, 0)], tensor(element, rows.shape), key)


def order_key(x: Scalar, element: Attribute) -> Scalar:
    """An integer in whose order, as an unsigned number, elements stand; NaN behind all others.

    `element`: its type for an integer, as wide or wider.
    """
    return _float_key(x) if x.is_float else _integer_key(x, element)


def _integer_key(x: Scalar, element: Attribute) -> Scalar:
    """With the sign bit inverted, in the lowest bytes."""
    wide = x.to(element)
    return wide if x.is_unsigned else wide ^ (1 << (8 * t.byte_width(x.element) - 1))


def _float_key(x: Scalar) -> Scalar:
    """The bits of a float, all inverted if it is negative, else only the sign; -0.0 is 0.0."""
    wide = x.wide()
    sign = 1 << (wide.bits - 1)
    bits = wide.bitcast(t.i64 if wide.bits == 64 else t.i32)
    bits = bits.compare("eq", sign).where(bits.like(0), bits)
    key = bits.compare("lt", 0).where(bits ^ -1, bits ^ sign)
    key = wide.is_nan().where(key.like(-1), key)
    unused = wide.bits - DIGIT * _key_digits(x.element)
    return key >> unused if unused else key


# ---------------------------------------------------------------------- one round
@dataclass(frozen=True)
class _Rows:
    """Rows of `size` elements, one per point of `batch`, as tensors [*batch, chunks, CHUNK]."""

    at: Rewriter
    batch: Sequence[Expr]
    size: Expr

    @property
    def chunks(self) -> Expr:
        return self.size.ceildiv(CHUNK)

    @property
    def shape(self) -> list[Expr]:
        return [*self.batch, self.chunks, Expr.of(CHUNK)]

    @property
    def length(self) -> Expr:
        """Elements of a row with those that fill its last chunk."""
        return self.chunks * CHUNK

    def places(self, keys: SSAValue) -> SSAValue:
        """Where each key goes, i64."""
        starts = self._sums_before(self._counts(keys))
        equal = self._equal_before(keys)
        domain = Domain()
        point = domain.parallel(*self.shape)
        *batch, chunk, _ = point
        start = (Expr.gathered(0) % BASE) * self.chunks + chunk
        reads = [Read(keys, point), Read(starts, [*batch, start]), Read(equal, point)]
        return make_nest(self.at, domain, reads, tensor(t.i64, self.shape),
                         lambda body, read: read[1].to(t.i64) + read[2].to(t.i64))

    def _counts(self, keys: SSAValue) -> SSAValue:
        """How often each digit occurs in each chunk, as [*batch, BASE * chunks]."""
        domain = Domain()
        *batch, digit, chunk = domain.parallel(*self.batch, BASE, self.chunks)
        [i] = domain.reduce(CHUNK)

        def counted(body: Body, read: Sequence[Scalar]) -> Scalar:
            own = read[0].to(t.i32) & (BASE - 1)
            return own.compare("eq", body.index(digit, t.i32)).to(t.i64)

        counts = make_nest(
            self.at, domain, [Read(keys, [*batch, chunk, i])],
            tensor(t.i64, [*self.batch, BASE, self.chunks]), counted, combiner="add")
        return self._flat(counts, BASE * self.chunks)

    def _equal_before(self, keys: SSAValue) -> SSAValue:
        """How many elements before each in its chunk have the same digit."""
        before = ConstantOp.of_array(
            np.tri(CHUNK, k=-1, dtype=np.int32).T, self.at.context.weights, "before")
        domain = Domain()
        *batch, chunk, i = domain.parallel(*self.shape)
        [j] = domain.reduce(CHUNK)
        reads = [Read(keys, [*batch, chunk, i]), Read(keys, [*batch, chunk, j]),
                 Read(self.at.insert(before).results[0], [j, i])]

        def counted(body: Body, read: Sequence[Scalar]) -> Scalar:
            different = (read[0].to(t.i32) ^ read[1].to(t.i32)) & (BASE - 1)
            return different.compare("eq", 0).where(read[2], 0)

        return make_nest(self.at, domain, reads, tensor(t.i32, self.shape), counted,
                         combiner="add")

    def moved(self, places: SSAValue, values: SSAValue | None, drop: int = 0) -> SSAValue:
        """The values at their places, without their `drop` low bits. None: the keys' indices."""
        domain = Domain()
        point = domain.parallel(*self.shape)
        *batch, chunk, i = point
        element = t.i64 if values is None else type_of(values).element
        empty = self.at.insert(EmptyOp.of(tensor(element, [*self.batch, self.length])))
        reads = [Read(places, point), *([] if values is None else [Read(values, point)])]

        def value(body: Body, read: Sequence[Scalar]) -> Scalar:
            if values is None:  # what follows the elements has the index of the last one
                return body.index(minimum(chunk * CHUNK + i, self.size - 1))
            return read[1] >> drop if drop else read[1]

        result = make_nest(
            self.at, domain, reads, type_of(empty.results[0]), value,
            index=[*batch, Expr.gathered(0)], into=empty.results[0])
        return self.at.insert(ViewOp.of(result, self.shape)).results[0]

    # ------------------------------------------------------------------ sums
    def _sums_before(self, x: SSAValue) -> SSAValue:
        """Of the numbers in every row, the sum of all before each; longer than x."""
        count = type_of(x).shape[-1]
        depth = DEPTH
        if count.constant is not None:
            depth = next(d for d in range(64) if count.constant <= FEW * GROUP ** d)
        unit = GROUP ** depth
        return self._grouped_sums(x, count.ceildiv(unit) * unit, depth)

    def _grouped_sums(self, x: SSAValue, length: Expr, depth: int) -> SSAValue:
        """The same for rows of `length` numbers, zeros behind those of x."""
        if depth == 0:
            return self._sums(x, [length])
        groups = length // GROUP
        domain = Domain()
        *batch, group = domain.parallel(*self.batch, groups)
        [w] = domain.reduce(GROUP)
        totals = make_nest(
            self.at, domain, [Read(x, [*batch, group * GROUP + w], 0)],
            tensor(t.i64, [*self.batch, groups]), lambda body, read: read[0], combiner="add")
        before = self._grouped_sums(totals, groups, depth - 1)
        inside = self._sums(x, [groups, Expr.of(GROUP)])
        domain = Domain()
        point = domain.parallel(*self.batch, groups, GROUP)
        sums = make_nest(
            self.at, domain, [Read(inside, point), Read(before, point[:-1])], type_of(inside),
            lambda body, read: read[0] + read[1])
        return self._flat(sums, length)

    def _sums(self, x: SSAValue, shape: Sequence[Expr]) -> SSAValue:
        """The sums of all numbers before each, in groups of the last of the dims `shape`."""
        domain = Domain()
        point = domain.parallel(*self.batch, *shape)
        [w] = domain.reduce(shape[-1])
        first = point[-2] * GROUP if len(shape) > 1 else 0
        read = Read(x, [*point[:len(self.batch)], first + w], 0)

        def counted(body: Body, read: Sequence[Scalar]) -> Scalar:
            return body.index(w - point[-1]).compare("lt", 0).where(read[0], 0)

        return make_nest(self.at, domain, [read], tensor(t.i64, [*self.batch, *shape]), counted,
                         combiner="add")

    def _flat(self, x: SSAValue, length: Expr) -> SSAValue:
        return self.at.insert(ViewOp.of(x, [*self.batch, length])).results[0]
