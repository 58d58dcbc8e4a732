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

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.arith import CMPI_COMPARISON_OPERATIONS
from xdsl.dialects.builtin import IndexType, IntegerAttr, IntegerType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from dialects.loop import Axis, IndexOp, KernelOp, NestOp, YieldOp
from dialects.records import dataclass
from dialects.semantics.scalar import operations_for
from dialects.strata.types import i1, i32, i64, tensor
from dialects.symbolic.expr import Expr, minimum
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.analyses.loop.online import argument_read
from passes.analyses.loop.seen import Seen
from passes.rewrites.loop.nests import Read
from passes.rewrites.loop.seen_places import excerpt

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
        used = {s for t in self.tests for v in _values(t) for s in self._symbols(v)}
        return [Axis(a.name, a.extent.ceildiv(self.tiles[a.name])) for a in self.seen.scores.axes
                if a.name in used and a.name != self.seen.axis]

    @property
    def inputs(self) -> list[SSAValue]:
        """What the tests read, without duplicates."""
        return [*dict.fromkeys(
            read.value for t in self.tests for v in _values(t) for read in self._reads_of(v))]

    # ------------------------------------------------------------------ conditions
    def _test(self, value: SSAValue, holds: bool) -> Test | None:
        """What must hold for some row of a block where a condition is met; None: nothing."""
        op, rows = value.owner, self._symbols(value) & self._blocked
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
            if key not in self._symbols(row) and not self._symbols(other) & self._blocked:
                return Compared(row, of, other)
        return None

    @property
    def _blocked(self) -> set[Symbol]:
        return {a for a, tile in self.tiles.items() if tile > 1}

    def _ops(self, value: SSAValue) -> list[Operation]:
        return list(operations_for(self.seen.scores.body.block, [value]))

    def _reads_of(self, value: SSAValue) -> list[Read]:
        needed = {value}.union(*(op.operands for op in self._ops(value)))
        return [argument_read(self.seen.scores, a) for a in self.seen.scores.body.block.args
                if a in needed]

    def _symbols(self, value: SSAValue) -> set[Symbol]:
        """The axes on which a value depends."""
        places = [op.expr.data for op in self._ops(value) if isinstance(op, IndexOp)]
        places += [e for read in self._reads_of(value) for e in read.map]
        return {s for e in places for s in e.symbols} & {a.name for a in self.seen.scores.axes}

    def _reads(self, test: Test) -> bool:
        return any(self._reads_of(v) for v in _values(test))

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
        place = Expr.symbol(self.seen.axis)
        found = [self._places(known, ranges, *how) for how in (
            ("min", place, int(np.iinfo(np.int32).max)), ("max", place + 1, 0))]
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
        used = self._symbols(row)
        for axis in sorted(used & self._blocked):
            part, size = axis.followed_by("_row"), self.tiles[axis]
            place = Expr.symbol(axis) * size + Expr.symbol(part)
            whole = not (extents[axis] % size).terms
            at[axis] = place if whole else minimum(place, extents[axis] - 1)
            inner.append(Axis(part, Expr.of(size), True))
        reads, block, copies = excerpt(self.seen.scores, [row], at)
        block.add_op(YieldOp.of(_number(block, copies[row], unsigned)))
        axes = [a for a in self.axes if a.name in used]
        moved = [Read(known[r.value], r.map, r.pad) for r in reads]
        return self._nest([*axes, *inner], moved, block, combiner, i64)

    def _places(
        self, known: Mapping[SSAValue, SSAValue], ranges: Mapping[_Ranged, tuple[NestOp, NestOp]],
        combiner: str, place: Expr, otherwise: int,
    ) -> NestOp:
        """The least or the greatest place of a key for which all tests hold."""
        wanted = [v for t in self.tests for v in _keys(t)]
        reads, block, copies = excerpt(self.seen.scores, wanted, {})
        sources = [Read(known[r.value], r.map, r.pad) for r in reads]
        bounds: dict[_Ranged, list[SSAValue]] = {}
        for of, nests in ranges.items():
            for nest in nests:
                bounds.setdefault(of, []).append(block.insert_arg(i64, len(block.args)))
                sources.append(Read(nest.results[0], nest.output_maps[0], None))
        truth = _joined(block, [_built(t, block, copies, bounds) for t in self.tests], arith.AndIOp)
        index = IndexOp.of(place)
        number = arith.IndexCastOp(index.result, i32)
        other = arith.ConstantOp(IntegerAttr(otherwise, i32))
        choice = arith.SelectOp(truth, number.result, other.result)
        block.add_ops([index, number, other, choice, YieldOp.of(choice.result)])
        extent = next(a.extent for a in self.seen.scores.axes if a.name == self.seen.axis)
        return self._nest([*self.axes, Axis(self.seen.axis, extent, True)], sources, block,
                          combiner, i32)

    def _nest(
        self, axes: Sequence[Axis], reads: Sequence[Read], block: Block, combiner: str,
        element: Attribute,
    ) -> NestOp:
        kept = [a for a in axes if not a.reduce]
        for op in block.ops:
            set_location(op, self.seen.scores)
        nest = NestOp.of(
            axes, [r.value for r in reads], [r.map for r in reads],
            [tensor(element, [a.extent for a in kept])], [[Expr.symbol(a.name) for a in kept]],
            combiners=[combiner],
            pads=[r.pad for r in reads], body=Region(block))
        set_location(nest, self.seen.scores)
        return nest


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
