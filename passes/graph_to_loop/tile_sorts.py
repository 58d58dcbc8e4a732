"""Sort rows whose keys fit into a tile of a program, and rows that are cut into such runs.

    code[i]   = the key of x[i], followed by the bits of i: all codes differ, so order is stable
    sorted    = the codes of a run in ascending order (a nest that sorts)
    index[p]  = the low bits of sorted[p]

Where a nest that sorts is a kernel of its own (`Facts.sorts_alone`), another nest makes the codes.

All elements of a longer row are sorted by merging groups of sorted runs until one run is left. The
place of an element is its place in its own run, and how many elements of the others are smaller, by
binary searches. If only the first few elements of a longer row are wanted, only the first few of
each run can be among them: these are a shorter row. Much longer rows are cut into small groups. The
first few elements lie in as many groups, those whose first elements come first.

    merged:   [2 5 8 | 1 3 9]  ->  places [1 3 4 | 0 2 5]  ->  [1 2 3 5 8 9]
    first 2:  [2 5 8 | 1 3 9]  ->  [2 5 | 1 3]  ->  [1 2]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from xdsl.ir import Attribute, SSAValue

from dialects.loop import EmptyOp, ViewOp
from dialects.strata import types as t
from dialects.strata.types import tensor
from dialects.symbolic.expr import Expr, minimum
from dialects.symbolic.size_products import product
from passes.graph_to_loop.nests import Domain, Read, copy, make_nest, type_of
from passes.graph_to_loop.scalars import Body, Scalar
from passes.graph_to_loop.sorting import order_key
from passes.rewriting import Rewriter

_WORD = 32

FEWER = 4
"""How many times as many elements as are wanted of a run it has at least."""

WAYS = 4
"""The most runs that are merged at once."""

GROUPED = 4
"""How many times as long as the longest run rows are whose groups are compared first."""

RUN = 1024
"""The shortest run of which the first few are taken."""


def can_sort_in_tiles(at: Rewriter, x: SSAValue, size: int | None) -> bool:
    """Whether the target sorts in tiles, and the elements' keys leave room for an index."""
    return at.context.facts.sorted_bytes > 0 and size is not None and 1 < size < 1 << 30 and (
        type_of(x).dtype.itemsize <= _WORD // 8)


def indices_by_tiles(
    at: Rewriter, x: SSAValue, axis: int, count: int, descending: bool
) -> SSAValue:
    """The indices of the `count` first elements of x along an axis, as i64; ties keep their order.

    The axis becomes the last one. NaN is greater than all numbers.
    """
    shape = type_of(x).shape
    size, bits = shape[axis].constant or 0, key_bits(type_of(x).element)
    batch = [s for dim, s in enumerate(shape) if dim != axis]
    greatest = (1 << bits) - 1
    wide = t.i32 if bits < _WORD else t.i64

    def key(body: Body, read: Sequence[Scalar]) -> Scalar:
        found = order_key(read[0], t.i32)
        found = (found >> 1 if type_of(x).element == t.f16 else found).to(wide) & greatest
        return found ^ greatest if descending else found

    def read(point: Sequence[Expr], i: Expr) -> Read:
        return Read(x, [*point[:axis], i, *point[axis:]])

    return _Row(at, batch, size, bits, read, key).first(count)


def key_bits(element: Attribute) -> int:
    """The number of bits that distinguish keys: 16 of bf16, 19 of f16, which is widened to f32."""
    floats: dict[Attribute, int] = {t.bf16: 16, t.f16: 19}
    return floats.get(element) or (
        _WORD if t.is_float(element) else 8 * t.byte_width(element))


class _Row(NamedTuple):
    """Rows of `size` elements, one per point of `batch`, whose keys have `bits` bits.

    `read` says where element i of a row lies, and `key` makes its key of what is read.
    """

    at: Rewriter
    batch: Sequence[Expr]
    size: int
    bits: int
    read: Callable[[Sequence[Expr], Expr], Read]
    key: Callable[[Body, Sequence[Scalar]], Scalar]

    def first(self, count: int) -> SSAValue:
        """The positions of the `count` first elements, [*batch, count]."""
        longest = self.longest(self.size)
        if self.size <= longest:
            return self.positions(self.sorted_runs(self.size), count)
        if FEWER * count <= longest:
            each = self.group_length(count)
            if self.size >= GROUPED * longest and 2 * self.compared(each, count) <= self.size:
                return self.of_groups(each, count)
            return self.of_runs(self.run_length(count), count)
        length = self.merge_length()
        return self.positions(self.merged(self.sorted_runs(length, merged=True), length), count)

    # ------------------------------------------------------------------ sizes
    def shift(self, length: int) -> int:
        """The bits of a position in a run of that length."""
        return max(1, (length - 1).bit_length())

    def code_type(self, length: int) -> Attribute:
        short = self.bits + self.shift(length) <= _WORD and not self.at.context.facts.sorts_alone
        return t.i32 if short else t.i64

    def longest(self, positions: int) -> int:
        """The longest run that is sorted at once, if codes tell so many positions apart."""
        return self.at.context.facts.sorted_bytes // t.byte_width(self.code_type(positions))

    def run_length(self, count: int) -> int:
        """The shortest run so that one more sort finds the first elements."""
        most = self.longest(1 << (_WORD - self.bits) if self.bits < _WORD else self.size)
        enough = most // 2
        length = max(RUN, FEWER * (1 << (count - 1).bit_length()))
        while length < enough and -(-self.size // length) * count > enough:
            length *= 2
        return min(length, most)

    # ------------------------------------------------------------------ runs
    def sorted_runs(self, length: int, merged: bool = False) -> SSAValue:
        """Codes in ascending order within runs, [*batch, runs, length].

        Positions count from the start of a run, or of the row if its runs are `merged` later.
        """
        runs = -(-self.size // length)
        whole = runs * length if merged else length
        element, shift = self.code_type(whole), self.shift(whole)
        alone = self.at.context.facts.sorts_alone
        domain = Domain()
        *batch, run = domain.parallel(*self.batch, runs)
        [i] = domain.parallel(length) if alone else domain.reduce(length)
        place, beyond = run * length + i, runs * length > self.size
        read = self.read(batch, place)
        read = Read(read.value, read.index, 0) if beyond else read

        def code(body: Body, read: Sequence[Scalar]) -> Scalar:
            found = self.key(body, read)
            if beyond:
                inside = body.index(place - self.size).compare("lt", 0)
                found = inside.where(found, (1 << self.bits) - 1)
            found = (found.to(element) << shift) | body.index(
                place if merged else i, element)
            full = self.bits + shift == t.bit_width(element)
            return found ^ (1 << (self.bits + shift - 1)) if full else found

        result, index = tensor(element, [*self.batch, runs, length]), [*batch, run, i]
        if not alone:
            return make_nest(self.at, domain, [read], result, code, index=index, combiner="sort")
        codes = make_nest(self.at, domain, [read], result, code)
        domain = Domain()
        point = [*domain.parallel(*self.batch, runs), *domain.reduce(length)]
        return make_nest(self.at, domain, [Read(codes, point)], result, copy, index=point,
                         combiner="sort")

    def positions(self, codes: SSAValue, count: int) -> SSAValue:
        """The positions in the first codes of a row whose runs are merged.

        The minimum bounds what a tile holds beyond the end of its row.
        """
        length = product(type_of(codes).shape[len(self.batch):]).constant or 0
        low = (1 << self.shift(length)) - 1
        domain = Domain()
        point = domain.parallel(*self.batch, count)
        flat = self.at.insert(ViewOp.of(codes, [*self.batch, Expr.of(length)])).results[0]
        return make_nest(self.at, domain, [Read(flat, point)],
                         tensor(t.i64, [*self.batch, Expr.of(count)]),
                         lambda body, read: (read[0] & low).minimum(self.size - 1).to(t.i64))

    def of_runs(self, length: int, count: int) -> SSAValue:
        """The positions of the first elements, of which each run holds at most `count`."""
        codes, shift, runs = self.sorted_runs(length), self.shift(length), -(-self.size // length)
        low, greatest = (1 << shift) - 1, (1 << self.bits) - 1
        wide = t.i32 if self.bits < _WORD else t.i64

        def key(body: Body, read: Sequence[Scalar]) -> Scalar:
            full = self.bits + shift == read[0].bits
            code = read[0] ^ (1 << (read[0].bits - 1)) if full else read[0]
            return (code >> shift).to(wide) & greatest

        def read(point: Sequence[Expr], i: Expr) -> Read:
            return Read(codes, [*point, minimum(i // count, runs - 1), i % count])

        chosen = _Row(self.at, self.batch, runs * count, self.bits, read, key).first(count)
        domain = Domain()
        point = domain.parallel(*self.batch, count)
        held = Expr.gathered(0)
        return make_nest(
            self.at, domain,
            [Read(chosen, point), Read(codes, [*point[:-1], held // count, held % count])],
            type_of(chosen), lambda body, read: body.index(held // count * length) + (
                read[1] & low).to(t.i64))

    # ------------------------------------------------------------------ groups
    def group_length(self, count: int) -> int:
        """The length of groups, a power of two, with which the fewest elements are sorted."""
        return min((1 << k for k in range(1, self.size.bit_length())),
                   key=lambda each: self.compared(each, count))

    def compared(self, each: int, count: int) -> int:
        """How many elements are sorted: one of each group, and all of the groups that count."""
        return -(-self.size // each) + count * each

    def of_groups(self, each: int, count: int) -> SSAValue:
        """The first elements, which lie in the `count` groups whose first elements come first.

        These groups stay in their order, so that equal elements do.
        """
        groups = self.in_order(self.first_groups(each, count), count, -(-self.size // each))
        domain = Domain()
        *batch, i = point = domain.parallel(*self.batch, count * each)
        place = Expr.gathered(0) * each + i % each
        keys = make_nest(
            self.at, domain, [Read(groups, [*batch, i // each]), self.padded(batch, place)],
            tensor(self.wide, [*self.batch, count * each]),
            lambda body, read: self.inside(body, place, read[1:]))
        chosen = self.of_keys(keys, count * each, self.bits).first(count)
        domain = Domain()
        point = domain.parallel(*self.batch, count)
        held = Expr.gathered(0)
        return make_nest(
            self.at, domain, [Read(chosen, point), Read(groups, [*point[:-1], held // each])],
            type_of(chosen), lambda body, read: body.index(
                Expr.gathered(1) * each + held % each))

    def first_groups(self, each: int, count: int) -> SSAValue:
        """The groups whose first elements come first, as positions."""
        groups, domain = -(-self.size // each), Domain()
        *batch, g = domain.parallel(*self.batch, groups)
        [j] = domain.reduce(each)
        keys = make_nest(
            self.at, domain, [self.padded(batch, g * each + j)],
            tensor(self.wide, [*self.batch, groups]),
            lambda body, read: self.inside(body, g * each + j, read), combiner="min")
        return self.of_keys(keys, groups, self.bits).first(count)

    def in_order(self, positions: SSAValue, count: int, size: int) -> SSAValue:
        """Positions below a size, in ascending order."""
        order = self.of_keys(positions, count, (size - 1).bit_length()).first(count)
        domain = Domain()
        point = domain.parallel(*self.batch, count)
        return make_nest(
            self.at, domain,
            [Read(order, point), Read(positions, [*point[:-1], Expr.gathered(0)])],
            type_of(positions), lambda body, read: read[1])

    def of_keys(self, keys: SSAValue, size: int, bits: int) -> _Row:
        """Rows of keys of so many bits."""
        def read(point: Sequence[Expr], i: Expr) -> Read:
            return Read(keys, [*point, i])

        def key(body: Body, read: Sequence[Scalar]) -> Scalar:
            return read[0].to(t.i32 if bits < _WORD else t.i64)

        return _Row(self.at, self.batch, size, bits, read, key)

    @property
    def wide(self) -> Attribute:
        return t.i32 if self.bits < _WORD else t.i64

    def padded(self, point: Sequence[Expr], i: Expr) -> Read:
        """An element, which may lie beyond the end."""
        read = self.read(point, i)
        return Read(read.value, read.index, 0)

    def inside(self, body: Body, place: Expr, read: Sequence[Scalar]) -> Scalar:
        """The key of an element, the greatest one beyond the end."""
        key = self.key(body, read)
        return body.index(place).compare("lt", self.size).where(key, (1 << self.bits) - 1)

    # ------------------------------------------------------------------ merging
    def merge_length(self) -> int:
        """The length of runs: half of the longest, which is sorted faster, unless a merge more
        would be needed."""
        longest = self.longest(self.size)
        return longest // 2 if self.size <= WAYS * longest // 2 else longest

    def merged(self, codes: SSAValue, length: int) -> SSAValue:
        """The codes of whole rows, without padding; runs of that length are sorted."""
        total = product(type_of(codes).shape[len(self.batch):]).constant or 0
        flat = self.at.insert(ViewOp.of(codes, [*self.batch, Expr.of(total)])).results[0]
        while length < self.size:
            ways = min(WAYS, -(-self.size // length))
            flat = self.merged_runs(flat, length, ways)
            length *= ways
        return flat

    def merged_runs(self, codes: SSAValue, length: int, ways: int) -> SSAValue:
        """The codes where groups of runs are one run.

        An element comes after those of its run before it, and the smaller ones of other runs.
        """
        type_, domain = type_of(codes), Domain()
        *batch, p = point = domain.parallel(*self.batch, self.size)
        first = p // (ways * length) * (ways * length)
        counts = [self.smaller(codes, length, ways, k) for k in range(1, ways)]
        empty = self.at.insert(EmptyOp.of(tensor(type_.element, [*self.batch, self.size])))

        def place(body: Body, read: Sequence[Scalar]) -> Scalar:
            found = body.index(first + p % length, t.i32)
            for number in read:
                found = found + number
            return found

        places = make_nest(self.at, domain, [Read(c, point) for c in counts],
                           tensor(t.i32, [*self.batch, self.size]), place)
        domain = Domain()
        *batch, p = point = domain.parallel(*self.batch, self.size)
        return make_nest(
            self.at, domain, [Read(places, point), Read(codes, point)], type_of(empty.results[0]),
            copy, index=[*batch, Expr.gathered(0)], into=empty.results[0], total=True)

    def smaller(self, codes: SSAValue, length: int, ways: int, other: int) -> SSAValue:
        """How many elements of another run of the group are smaller than each element.

        `other` runs on from its own, cyclically. Behind the end of a row there are none.
        """
        domain = Domain()
        domain.parallel(*self.batch, self.size)
        type_ = tensor(t.i32, [*self.batch, self.size])
        found = make_nest(self.at, domain, [], type_, lambda body, read: body.constant(0, t.i32))
        for step in [length >> k for k in range(1, length.bit_length())] + [1]:
            found = self.with_step(codes, found, length, (ways, other), step)
        return found

    def with_step(
        self, codes: SSAValue, found: SSAValue, length: int, run: tuple[int, int], step: int
    ) -> SSAValue:
        """`found` + `step` if so many elements of the other run are smaller."""
        ways, other = run
        domain = Domain()
        *batch, p = point = domain.parallel(*self.batch, self.size)
        own, group = p // length % ways, p // (ways * length) * (ways * length)
        start = group + (own + other) % ways * length
        last = start + Expr.gathered(0) + (step - 1)
        greatest = (1 << (type_of(codes).dtype.itemsize * 8 - 1)) - 1
        reads = [Read(found, point), Read(codes, [*batch, last], greatest), Read(codes, point)]

        def compute(body: Body, read: Sequence[Scalar]) -> Scalar:
            number, theirs, ours = read
            return theirs.compare("lt", ours).where(number + step, number)

        return make_nest(self.at, domain, reads, type_of(found), compute)
