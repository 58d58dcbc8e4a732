"""Sort the rows of a tensor with a radix sort, four bits of the keys per round.

Elements become integer keys whose unsigned order is the order of the elements. Rows are cut into
chunks. Each round sorts by the lowest digit of the keys and is stable, so equal digits keep order:

    counts[d, c]   the number of elements of chunk c that have the digit d
    starts[d, c]   the sum of all counts before it: the first position of those elements
    place[c, i]    starts[digit of i, c] + the number of elements before i in chunk c with its digit
    sorted[place[c, i]] = the key without that digit, and the original index

A round is linear in the size of a row, except for prefix sums, which are quadratic in 1/512 of that
size. All rounds are alike, so their kernels are compiled once. The number of rounds depends on the
element type, not on the number of elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
"""Elements per chunk; each is compared with all others of its chunk."""

DIGIT = 4
"""The number of bits per digit."""

BASE = 1 << DIGIT
"""The number of different digits."""

GROUP = 16
"""The number of counts that are summed at a time for prefix sums."""

DEPTH = 2
"""The number of levels of grouping where the number of counts is not known."""

FEW = 256
"""Up to this many counts, prefix sums are computed directly."""


def sorted_indices(at: Rewriter, x: SSAValue, axis: int, descending: bool) -> SSAValue:
    """The indices that sort x along an axis, as i64; equal elements keep their order.

    The axis becomes the last one. It is longer than that of x; the additional indices are valid but
    arbitrary. NaN is greater than all numbers.
    """
    shape = type_of(x).shape
    rows = _Rows(at, [s for dim, s in enumerate(shape) if dim != axis], shape[axis])
    keys = _keys(rows, x, axis, descending)
    indices: SSAValue | None = None
    rounds = key_digits(type_of(x).element)
    for number in range(rounds):
        places = rows.places(keys)
        indices = rows.moved(places, indices)
        if number + 1 < rounds:
            keys = rows.moved(places, keys, drop=DIGIT)
    assert indices is not None
    return at.insert(ViewOp.of(indices, [*rows.batch, rows.length])).results[0]


# ---------------------------------------------------------------------- keys
def key_digits(element: Attribute) -> int:
    """The number of digits that distinguish keys; keys of halves use only upper digits of f32."""
    upper: dict[Attribute, int] = {t.bf16: 4, t.f16: 5}
    wide = t.wide_element(element) if t.is_float(element) else element
    return upper.get(element) or 2 * t.byte_width(wide)


def _keys(rows: _Rows, x: SSAValue, axis: int, descending: bool) -> SSAValue:
    """The keys of the elements, chunk by chunk, padded with the greatest possible key."""
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
    """An integer whose unsigned order is the order of the elements; NaN comes after all others.

    `element` is the type of the key of an integer; it must be at least as wide.
    """
    return _float_key(x) if x.is_float else _integer_key(x, element)


def _integer_key(x: Scalar, element: Attribute) -> Scalar:
    """An integer with its sign bit inverted, in the lowest bytes of `element`."""
    wide = x.to(element)
    return wide if x.is_unsigned else wide ^ (1 << (8 * t.byte_width(x.element) - 1))


def _float_key(x: Scalar) -> Scalar:
    """The bits of a float, all inverted if negative, else with the sign inverted; -0.0 is 0.0."""
    wide = x.wide()
    sign = 1 << (wide.bits - 1)
    bits = wide.bitcast(t.i64 if wide.bits == 64 else t.i32)
    bits = bits.compare("eq", sign).where(bits.like(0), bits)
    key = bits.compare("lt", 0).where(bits ^ -1, bits ^ sign)
    key = wide.is_nan().where(key.like(-1), key)
    unused = wide.bits - DIGIT * key_digits(x.element)
    return key >> unused if unused else key


# ---------------------------------------------------------------------- one round
class _Rows(NamedTuple):
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
        """The number of elements of a row, including the padding of its last chunk."""
        return self.chunks * CHUNK

    def places(self, keys: SSAValue) -> SSAValue:
        """The position of each key after this round, as i64."""
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
        """The number of occurrences of each digit in each chunk, as [*batch, BASE * chunks]."""
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
        """The number of elements with the same digit before each element in its chunk."""
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
        """The values at their places, without their `drop` low bits; the keys' indices for None."""
        domain = Domain()
        point = domain.parallel(*self.shape)
        *batch, chunk, i = point
        element = t.i64 if values is None else type_of(values).element
        empty = self.at.insert(EmptyOp.of(tensor(element, [*self.batch, self.length])))
        reads = [Read(places, point), *([] if values is None else [Read(values, point)])]

        def value(body: Body, read: Sequence[Scalar]) -> Scalar:
            if values is None:  # padding gets the index of the last element
                return body.index(minimum(chunk * CHUNK + i, self.size - 1))
            return read[1] >> drop if drop else read[1]

        result = make_nest(
            self.at, domain, reads, type_of(empty.results[0]), value,
            index=[*batch, Expr.gathered(0)], into=empty.results[0], total=True)
        return self.at.insert(ViewOp.of(result, self.shape)).results[0]

    # ------------------------------------------------------------------ sums
    def _sums_before(self, x: SSAValue) -> SSAValue:
        """The sum of all numbers before each one, per row; rows are longer than those of x."""
        count = type_of(x).shape[-1]
        depth = DEPTH
        if count.constant is not None:
            depth = next(d for d in range(64) if count.constant <= FEW * GROUP ** d)
        unit = GROUP ** depth
        return self._grouped_sums(x, count.ceildiv(unit) * unit, depth)

    def _grouped_sums(self, x: SSAValue, length: Expr, depth: int) -> SSAValue:
        """The same for rows of `length` numbers, where zeros follow those of x."""
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
        """The sum of all numbers before each one, in groups along the last of the dims `shape`."""
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
