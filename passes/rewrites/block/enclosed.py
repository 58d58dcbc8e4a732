"""Kernels of one program with control flow inside: parts one after another, in loops and branches.

    block.kernel @loop_0(%x, %first, %state, %next, %going) grid() {
      block.for %p = 0 to 4 step 1 { state = first }
      block.barrier
      %a = block.load %going[] : tile<i1>
      block.for %step = 0 to 2147483647 step 1 while (%b = %a) {
        block.barrier
        block.for %p = 0 to 4 step 1 { the program %p of a launch: next and going from state and x }
        block.barrier
        block.for %p = 0 to 4 step 1 { state = next }
        block.barrier
        %c = block.load %going[] : tile<i1>
        block.yield %c
      }

A part is what the host would launch: the programs of a kernel, here in a loop, or a copy. A barrier
stands before each, so that it sees what those before it have stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, i32
from xdsl.ir import Block, Operation, Region, SSAValue

from dialects.block import (
    BarrierOp,
    ForOp,
    IndexOp,
    KernelOp,
    LoadOp,
    MapOp,
    StoreOp,
    ValidOp,
    YieldOp,
)
from dialects.block.kernel_ops import WHILE
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.strata.schedule import Schedule, ScheduleAttr
from dialects.strata.symbols_in import exprs_of_attribute
from dialects.strata.types import SizesAttr, buffer_type, signless
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import merge_locations, set_location
from passes.analyses.host.neighbours import WARPS
from passes.graph.fix_sizes import with_sizes
from passes.rewrites.block.programs import add_programs

ENDLESS = 2 ** 31 - 1
"""The most trips of a loop that only its condition ends: counters are integers of 32 bits."""

COPIED = 512
"""The most elements of a tile that one warp copies: 16 in the registers of each of 32 threads."""

FEWEST = 4
"""The warps of a kernel whose parts do not say how many they need."""


# ---------------------------------------------------------------------- parts
@dataclass
class Launched:
    """A launch: a kernel of a static grid, its buffers, and its sizes over the loop's step."""

    kernel: KernelOp
    buffers: Sequence[SSAValue]
    sizes: Mapping[Symbol, Expr]
    at: Operation

    @property
    def programs(self) -> int:
        return prod(e.constant or 0 for e in self.kernel.grid.data)

    @property
    def written(self) -> Iterator[SSAValue]:
        stored = {op.buffer for op in self.kernel.walk() if isinstance(op, StoreOp)}
        return (value for value, own in zip(self.buffers, self.kernel.buffers, strict=True)
                if own in stored)


@dataclass
class Copied:
    """A copy between two buffers of one dim."""

    source: SSAValue
    target: SSAValue
    at: Operation

    @property
    def buffers(self) -> Sequence[SSAValue]:
        return self.source, self.target

    @property
    def written(self) -> Iterator[SSAValue]:
        return iter([self.target])


Part = Launched | Copied


def copied_programs(elements: int, warps: int) -> int:
    """How many tiles a copy has."""
    return -(-elements // (COPIED * warps))


def most_warps(kernels: Iterable[KernelOp]) -> int:
    """The warps of the part that needs most of them, for which the others' tiles are small."""
    return max((int(kernel.schedule.data.given(WARPS) or FEWEST) for kernel in kernels
                if kernel.schedule is not None), default=FEWEST)


# ---------------------------------------------------------------------- kernels
class Enclosed:
    """A kernel that is being built, with an argument for each buffer of the host's."""

    def __init__(
        self, name: str, flags: Sequence[SSAValue], parts: Sequence[Part], at: Operation
    ) -> None:
        """`flags`: the conditions. `parts`: all that the kernel does."""
        written = dict.fromkeys(value for part in parts for value in part.written)
        read = dict.fromkeys([*flags, *(v for part in parts for v in part.buffers)])
        self.buffers = [*(v for v in read if v not in written), *written]
        """What the host passes: the buffers that are only read come first."""
        types = [buffer_type(value) for value in self.buffers]
        self.warps = most_warps(part.kernel for part in parts if isinstance(part, Launched))
        schedule = ScheduleAttr(Schedule((), ((WARPS, self.warps),)))
        self.kernel = KernelOp.of(name, types, [], [], schedule)
        self.arguments = dict(zip(self.buffers, self.kernel.buffers, strict=True))
        for value, argument in self.arguments.items():
            argument.name_hint = value.name_hint
        merge_locations(self.kernel, dict.fromkeys([at, *(part.at for part in parts)]))
        self.at = at

    @property
    def body(self) -> Block:
        return self.kernel.body.block

    def add(self, block: Block, parts: Sequence[Part], step: SSAValue | None = None) -> None:
        """Append parts to a block. `step`: the number of the iteration."""
        for part in parts:
            if isinstance(part, Launched):
                self._launch(block, part, step)
            else:
                self._copy(block, part)

    def flag(self, block: Block, flag: SSAValue) -> SSAValue:
        """Append a load of a condition."""
        load = LoadOp.of(self.arguments[flag], [], [], t.tile(t.i1, []))
        self._append(block, BarrierOp.create())
        return self._append(block, load).results[0]

    def loop(self, block: Block, flag: SSAValue, most: int) -> ForOp:
        """Append a loop that goes on while a truth value holds, at most so often."""
        loop = ForOp.of(0, most, 1, [], [flag], kind=WHILE)
        loop.counter.name_hint, loop.body.block.args[1].name_hint = "step", "goes_on"
        self._append(block, loop)
        return loop

    def end(self, block: Block, *values: SSAValue) -> None:
        self._append(block, YieldOp.of(*values))

    def opposite(self, block: Block, flag: SSAValue) -> SSAValue:
        """Append the computation of the other truth value."""
        inner = Block(arg_types=[t.i1])
        true = arith.ConstantOp(IntegerAttr(1, 1))
        other = arith.XOrIOp(inner.args[0], true.result)
        inner.add_ops([true, other, YieldOp.of(other.result)])
        made = MapOp.of([flag], [()], [t.tile(t.i1, [])], Region(inner))
        return self._append(block, made).results[0]

    # ------------------------------------------------------------------ parts
    def _launch(self, block: Block, part: Launched, step: SSAValue | None) -> None:
        loop = self._programs(block, part.programs)
        merge_locations(loop, [part.at])
        own = [self.arguments[value] for value in part.buffers]
        add_programs(part.kernel, loop, dict(zip(part.kernel.buffers, own, strict=True)))
        if step is not None:
            for op in [*loop.body.walk()]:
                _write_sizes(op, part.sizes, step)

    def _copy(self, block: Block, part: Copied) -> None:
        source, target = (self.arguments[value] for value in part.buffers)
        type_ = buffer_type(source)
        count = type_.shape[0].constant or 0
        length = min(COPIED * self.warps, 1 << max(0, count - 1).bit_length())
        loop = self._programs(block, copied_programs(count, self.warps))
        where, checks = [_operand(0) * length + Expr.symbol(Symbol.place(0))], [0]
        load = LoadOp.of(source, where, [loop.counter], t.tile(signless(type_.element), [length]),
                         checks=checks, pad=0)
        store = StoreOp.of(load.result, target, where, [loop.counter], checks=checks)
        loop.body.block.add_ops([load, store, YieldOp.create()])
        merge_locations(loop, [part.at])
        set_location(loop, part.at)

    def _programs(self, block: Block, count: int) -> ForOp:
        """Append a barrier and a loop over programs."""
        loop = ForOp.of(0, count, 1)
        loop.counter.name_hint = "p"
        self._append(block, BarrierOp.create())
        return self._append(block, loop)

    def _append(self, block: Block, op: Operation) -> Any:
        block.add_op(op)
        set_location(op, self.at)
        return op


# ---------------------------------------------------------------------- sizes that count iterations
def _operand(number: int) -> Expr:
    return Expr.symbol(Symbol.operand(number))


def _write_sizes(op: Operation, sizes: Mapping[Symbol, Expr], step: SSAValue) -> None:
    """Write the sizes of a launch in an operation as expressions over the number of an iteration.

    `sizes`: over the symbol of operand 0, which stands for the number.
    """
    used = {s for a in op.properties.values() for e in exprs_of_attribute(a) for s in e.symbols}
    if used.isdisjoint(sizes) or not isinstance(op, LoadOp | StoreOp | IndexOp | ValidOp | ForOp):
        return
    count = len(op.indices)
    own = {name: size.substitute({Symbol.operand(0): _operand(count)})
           for name, size in sizes.items()}
    for name, attribute in op.properties.items():
        op.properties[name] = with_sizes(attribute, own)
    end = _first_index(op) + count
    op.operands = [*op.operands[:end], step, *op.operands[end:]]
    if isinstance(op, ForOp):
        segments = count + 1, len(op.operands) - count - 1
        op.properties["operandSegmentSizes"] = DenseArrayBase.from_list(i32, segments)
    elif not isinstance(op, ValidOp):
        op.index_dims = ArrayAttr([*op.index_dims.data, SizesAttr.of(())])


def _first_index(op: Operation) -> int:
    """How many operands stand before an operation's index values."""
    return 1 if isinstance(op, LoadOp) else 2 if isinstance(op, StoreOp) else 0
