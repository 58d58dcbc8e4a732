"""A kernel that finds which keys a mask may leave to blocks of rows, from ranges of table entries.

    %x = nest (i, j) {select(%ids[i] == %ids[j], s, -inf)}             scores, in blocks of 64 rows
    ->
    %low = nest (i: n / 64, reduce r: 64) ins(%ids[64*i + r]) outs(min)
    %high = nest (i, reduce r) ins(%ids[64*i + r]) outs(max)
    %first = nest (i, reduce j) ins(%ids[j], %low[i], %high[i]) outs(min)
        {select(low <= id and id <= high, j, the largest number)}
    %last = nest (i, reduce j) ... outs(max) {select(low <= id and id <= high, j + 1, 0)}

A comparison of a number that depends on rows with one that depends on keys holds for no row of a
block if it does not hold for the range of the rows' numbers. The kernel therefore compares each key
with blocks instead of rows. What both decide in another way may hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import reduce
from typing import TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.arith import CMPI_COMPARISON_OPERATIONS
from xdsl.dialects.builtin import IndexType, IntegerAttr, IntegerType
from xdsl.ir import Block, Operation, SSAValue

from dialects.loop import Axis, KernelOp, NestOp, YieldOp
from dialects.records import dataclass
from dialects.strata.types import i1, i64
from dialects.symbolic.expr import Expr, minimum
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.analyses.loop.seen import Condition, Derivation, Seen
from passes.rewrites.loop.nests import Read
from passes.rewrites.loop.seen_places import Question, excerpt, places, reduction

_MIRRORED = {"eq": "eq", "ne": "ne", "slt": "sgt", "sgt": "slt", "sle": "sge", "sge": "sle",
             "ult": "ugt", "ugt": "ult", "ule": "uge", "uge": "ule"}
_INVERSE = {"eq": "ne", "ne": "eq", "slt": "sge", "sge": "slt", "sle": "sgt", "sgt": "sle",
            "ult": "uge", "uge": "ult", "ule": "ugt", "ugt": "ule"}


# ---------------------------------------------------------------------- what may hold
@dataclass(frozen=True)
class Exact:
    """A truth value that is the same for all rows of a block."""

    value: SSAValue
    holds: bool


@dataclass(frozen=True)
class Compared:
    """A comparison of a number of each row with a number of each key."""

    row: SSAValue
    name: str
    key: SSAValue

    @property
    def unsigned(self) -> bool:
        return self.name.startswith("u") or self.row.type == i1

    @property
    def ranged(self) -> _Ranged:
        return self.row, self.unsigned


@dataclass(frozen=True)
class Joined:
    """All of some tests, or any of them."""

    tests: tuple[Test, ...]
    all: bool


Test: TypeAlias = "Exact | Compared | Joined"
_Ranged: TypeAlias = tuple[SSAValue, bool]
"""A number of the rows, and whether it is unsigned."""


@dataclass
class Visible:
    """The tests of which all must hold for some row of a block if one of its rows sees a key."""

    seen: Seen
    tiles: Mapping[Symbol, int]
    """How many rows a block has along each axis of rows."""
    tests: list[Test] = field(default_factory=list[Test])

    @staticmethod
    def of(seen: Seen, tiles: Mapping[Symbol, int]) -> Visible | None:
        """None if nothing but the places of rows and keys tells what may hold: loops know where
        such rows begin and end anyway."""
        found = Visible(seen, tiles)
        tests = [found._test(c.value, c.holds) for c in seen.conditions]
        found.tests = [t for t in tests if t is not None and found._reads(t)]
        return found if found.tests else None

    @property
    def axes(self) -> list[Axis]:
        """One axis per axis of rows on which a test depends, over the blocks along it."""
        used = self._derivation(*(v for t in self.tests for v in _values(t))).axes
        return [Axis(a.name, a.extent.ceildiv(self.tiles[a.name])) for a in self.seen.scores.axes
                if a.name in used and a.name != self.seen.axis]

    @property
    def inputs(self) -> list[SSAValue]:
        """What the tests read, without duplicates."""
        values = [v for t in self.tests for v in _values(t)]
        return [*dict.fromkeys(read.value for read in self._derivation(*values).reads)]

    # ------------------------------------------------------------------ conditions
    def _test(self, value: SSAValue, holds: bool) -> Test | None:
        """What must hold for some row of a block where a condition is met; None: nothing."""
        op, rows = value.owner, self._derivation(value).axes & self._blocked
        if not rows:
            return Exact(value, holds)
        match op:
            case arith.AndIOp() | arith.OrIOp() if value.type == i1:
                tests = [self._test(v, holds) for v in op.operands]
                kept = tuple(t for t in tests if t is not None)
                if isinstance(op, arith.AndIOp) != holds and len(kept) < len(tests):
                    return None
                return Joined(kept, isinstance(op, arith.AndIOp) == holds) if kept else None
            case arith.XOrIOp() if _is_true(op.rhs):
                return self._test(op.lhs, not holds)
            case arith.CmpiOp():
                name = CMPI_COMPARISON_OPERATIONS[op.predicate.value.data]
                return self._compared(op, name if holds else _INVERSE[name])
            case _:
                return None

    def _compared(self, op: arith.CmpiOp, name: str) -> Test | None:
        key = self.seen.axis
        if op.lhs.type == i64 and name.startswith("u"):
            return None  # ranges are of signed numbers
        for row, of, other in ((op.lhs, name, op.rhs), (op.rhs, _MIRRORED[name], op.lhs)):
            if key not in self._derivation(row).axes and not (
                    self._derivation(other).axes & self._blocked):
                return Compared(row, of, other)
        return None

    @property
    def _blocked(self) -> set[Symbol]:
        return {a for a, tile in self.tiles.items() if tile > 1}

    def _derivation(self, *values: SSAValue) -> Derivation:
        return Derivation.of(self.seen.scores, values)

    def _reads(self, test: Test) -> bool:
        return bool(self._derivation(*_values(test)).arguments)

    # ------------------------------------------------------------------ the kernel
    def kernel(self, name: str, old: KernelOp) -> KernelOp:
        """The kernel that computes the first key and one after the last, as i32 per block. A block
        that sees nothing gets the largest number and 0."""
        kernel = KernelOp.of(name, [v.type for v in self.inputs], old.size_names)
        set_location(kernel, self.seen.scores)
        known = dict(zip(self.inputs, kernel.body.block.args, strict=True))
        for value, argument in known.items():
            argument.name_hint = value.name_hint
        ranges: dict[_Ranged, tuple[NestOp, NestOp]] = {}
        for of in dict.fromkeys(of for test in self.tests for of in _ranged(test)):
            ranges[of] = self._range(of, known, "min"), self._range(of, known, "max")
            kernel.body.block.add_ops(ranges[of])
        found = places(
            self.seen, self.axes, self.seen.axis, lambda: self._question(known, ranges))
        for nest, hint in zip(found, ("first", "last"), strict=True):
            nest.results[0].name_hint = hint
        kernel.body.block.add_ops([*found, end := YieldOp.of(*(n.results[0] for n in found))])
        set_location(end, kernel)
        return kernel

    def _range(self, of: _Ranged, known: Mapping[SSAValue, SSAValue], combiner: str) -> NestOp:
        """The least or the greatest of a number of the rows of each block."""
        row, unsigned = of
        at, inner = dict[Symbol, Expr](), list[Axis]()
        extents = {a.name: a.extent for a in self.seen.scores.axes}
        derived = self._derivation(row)
        used = derived.axes
        for axis in sorted(used & self._blocked):
            part, size = axis.followed_by("_row"), self.tiles[axis]
            place = Expr.symbol(axis) * size + Expr.symbol(part)
            whole = not (extents[axis] % size).terms
            at[axis] = place if whole else minimum(place, extents[axis] - 1)
            inner.append(Axis(part, Expr.of(size), True))
        reads, block, copies = excerpt(derived, at)
        axes = [a for a in self.axes if a.name in used]
        moved = [Read(known[r.value], r.map, r.pad) for r in reads]
        number = _number(block, copies[row], unsigned)
        return reduction(self.seen, [*axes, *inner], moved, block, number, combiner, i64)

    def _question(
        self, known: Mapping[SSAValue, SSAValue], ranges: Mapping[_Ranged, tuple[NestOp, NestOp]]
    ) -> Question:
        """Whether all tests hold for a key and a block of rows."""
        wanted = [v for t in self.tests for v in _keys(t)]
        reads, block, copies = excerpt(self._derivation(*wanted), {})
        sources = [Read(known[r.value], r.map, r.pad) for r in reads]
        bounds: dict[_Ranged, list[SSAValue]] = {}
        for of, nests in ranges.items():
            for nest in nests:
                bounds.setdefault(of, []).append(block.insert_arg(i64, len(block.args)))
                sources.append(Read(nest.results[0], nest.output_maps[0], None))
        truth = _joined(block, [_built(t, block, copies, bounds) for t in self.tests], arith.AndIOp)
        return Question(sources, block, [Condition(truth, True)])


# ---------------------------------------------------------------------- values of tests
def _values(test: Test) -> list[SSAValue]:
    return [*_keys(test), *(row for row, _ in _ranged(test))]


def _keys(test: Test) -> list[SSAValue]:
    """What is computed per key."""
    match test:
        case Exact():
            return [test.value]
        case Compared():
            return [test.key]
        case Joined():
            return [v for t in test.tests for v in _keys(t)]


def _ranged(test: Test) -> list[_Ranged]:
    """What has a range per block of rows."""
    match test:
        case Exact():
            return []
        case Compared():
            return [test.ranged]
        case Joined():
            return [of for t in test.tests for of in _ranged(t)]


def _is_true(value: SSAValue) -> bool:
    number = value.owner.value if isinstance(value.owner, arith.ConstantOp) else None
    return value.type == i1 and isinstance(number, IntegerAttr) and bool(number.value.data)


# ---------------------------------------------------------------------- bodies
def _built(
    test: Test, block: Block, copies: Mapping[SSAValue, SSAValue],
    bounds: Mapping[_Ranged, Sequence[SSAValue]],
) -> SSAValue:
    """The truth value of a test, added to a body."""
    match test:
        case Exact():
            return copies[test.value] if test.holds else _added(block, arith.XOrIOp(
                copies[test.value], _constant(block, -1, i1)))
        case Compared():
            low, high = bounds[test.ranged]
            key = _number(block, copies[test.key], test.unsigned)
            return _may_hold(block, low, high, test.name, key)
        case Joined():
            parts = [_built(t, block, copies, bounds) for t in test.tests]
            return _joined(block, parts, arith.AndIOp if test.all else arith.OrIOp)


def _may_hold(block: Block, low: SSAValue, high: SSAValue, name: str, key: SSAValue) -> SSAValue:
    """Whether a comparison with a key may hold for a number from low to high."""
    def compared(bound: SSAValue, how: str) -> SSAValue:
        return _added(block, arith.CmpiOp(bound, key, how))

    match name:
        case "eq":
            return _joined(block, [compared(low, "sle"), compared(high, "sge")], arith.AndIOp)
        case "ne":
            return _joined(block, [compared(low, "ne"), compared(high, "ne")], arith.OrIOp)
        case "slt" | "sle" | "ult" | "ule":
            return compared(low, "s" + name[1:])
        case _:
            return compared(high, "s" + name[1:])


def _number(block: Block, value: SSAValue, unsigned: bool) -> SSAValue:
    """An integer as i64."""
    match value.type:
        case IndexType():
            return _added(block, arith.IndexCastOp(value, i64))
        case IntegerType() if value.type != i64:
            widen = arith.ExtUIOp if unsigned else arith.ExtSIOp
            return _added(block, widen(value, i64))
        case _:
            return value


def _constant(block: Block, number: int, type_: IntegerType) -> SSAValue:
    return _added(block, arith.ConstantOp(IntegerAttr(number, type_)))


def _joined(
    block: Block, values: Sequence[SSAValue],
    join: Callable[[SSAValue, SSAValue], arith.AndIOp | arith.OrIOp],
) -> SSAValue:
    return reduce(lambda a, b: _added(block, join(a, b)), values)


def _added(block: Block, op: Operation) -> SSAValue:
    block.add_op(op)
    return op.results[0]
