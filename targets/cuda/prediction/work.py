"""The work of one program of a block kernel: what it issues, moves, multiplies and waits for.

Every operation counts as often as its loops walk it. A program in the middle of the grid stands for
all, and the middle trip of a loop for all trips.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log2, prod

from xdsl.dialects import arith
from xdsl.ir import Block, Operation, SSAValue

from dialects.block import (
    DotOp,
    ForOp,
    IndexOp,
    KernelOp,
    LoadOp,
    MapOp,
    ReduceOp,
    ScanOp,
    StoreOp,
)
from dialects.block.branches import Branch, branch_of, is_single
from dialects.block.programs import tile_type
from dialects.strata.schedule_options import ScheduleOption
from dialects.strata.types import TileType, byte_width, is_float
from dialects.symbolic.expr import Call, Expr
from dialects.symbolic.symbol import Kind, Symbol
from targets.cuda.facts.fitted import CopiedTimes, ProductTimes
from targets.cuda.machine import WARP, Machine
from targets.cuda.prediction.accesses import access_of, evaluate
from targets.cuda.scheduling.options import SPECIALIZE, STAGES, WARPS
from targets.cuda.scheduling.products.time import together

LINE = 128
"""The bytes that the L1 cache serves in a cycle."""
DIVISION, POWER = 6, 1
"""Instructions of a division of an index by a constant, and by a power of two."""
COSTS: Mapping[str, float] = {
    "math.exp": 10, "math.exp2": 2, "math.log": 4, "math.log2": 3, "math.log1p": 8, "math.tanh": 10,
    "math.erf": 16, "math.sin": 12, "math.cos": 12, "math.sqrt": 4, "math.rsqrt": 3,
    "math.powf": 20, "arith.divf": 6, "arith.divsi": 20, "arith.divui": 20, "arith.remsi": 24,
    "arith.remui": 24, "arith.remf": 24, "arith.extf": 0.5, "arith.truncf": 0.5,
    "arith.constant": 0, "arith.index_cast": 0}
"""Instructions of a scalar operation in f32 or i32; 1 for others. Indices are of 32 bits mostly."""
WIDE = 3
"""How many times as many an operation on 8 bytes takes."""
OVERLAP = 2
"""How well the work of a single program overlaps, as in `together`; with others beside it, better.
"""
COMPARED = 3
"""Instructions for an element in a stage of a sort: those of code for 1,024 to 8,192 elements."""
SHUFFLED, CROSSED = 1.5, 20
"""Cycles in which 32 elements are exchanged in a stage of a sort: in a warp, and between warps, by
shared memory. Measured on an H100 with 4 million keys whose elements were dealt right, in tiles of
256, 512, 1,024, 2,048 and 4,096: 36, 48, 81, 145 and 222 us."""
EXCHANGED = 1.5
"""Cycles for each element of a program for which a stage between warps lasts if it is alone."""
ASYNCHRONOUS = 4
"""The bytes of the shortest word that is loaded while others are multiplied (PTX ISA, "cp.async").
"""
ACROSS = 30
"""Cycles in which the threads of a program exchange a partial result, per doubling."""
FAR = 1 << 60
"""What stands for an end that data decide. Parts of it are still beyond all sizes."""


@dataclass(frozen=True)
class Cost:
    """`issued`: instructions of a thread, over all positions. `served`: cycles of the L1 cache.
    `moved`: bytes through the L2 cache. `multiplied`: seconds of tensor cores. `alone`: seconds
    that a program takes if no other runs beside it."""

    issued: float = 0
    served: float = 0
    moved: float = 0
    multiplied: float = 0
    alone: float = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.issued + other.issued, self.served + other.served,
                    self.moved + other.moved, self.multiplied + other.multiplied,
                    self.alone + other.alone)

    def __mul__(self, times: float) -> Cost:
        return Cost(self.issued * times, self.served * times, self.moved * times,
                    self.multiplied * times, self.alone * times)


@dataclass
class Work:
    """The work of a program of a kernel at some sizes."""

    kernel: KernelOp
    sizes: Mapping[Symbol, int]
    machine: Machine
    values: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    touched: Counter[SSAValue] = field(default_factory=Counter[SSAValue])
    """Bytes of each buffer that a program touches."""
    lone: set[LoadOp] = field(default_factory=set[LoadOp])
    """Loads of words that are too short to be asynchronous."""
    shared: int = 0
    held: int = 0
    """Words of 4 bytes in registers at a time, about."""

    def __post_init__(self) -> None:
        for program, extent in zip(self.kernel.program_ids, self.kernel.grid.data, strict=True):
            self.values[program] = int(extent.evaluate(self.sizes)) // 2
        self.cost = self.block(self.kernel.body.block, 1)

    @property
    def programs(self) -> int:
        return prod(int(e.evaluate(self.sizes)) for e in self.kernel.grid.data)

    @property
    def warps(self) -> int:
        return self.option(WARPS)

    def option(self, option: ScheduleOption[int]) -> int:
        schedule = self.kernel.schedule
        return option.default if schedule is None else schedule.data.option(option)

    @property
    def copied(self) -> CopiedTimes | None:
        """The facts of warp-specialized kernels, if this is one: a producer warp hides latency."""
        return self.machine.fitted.copied if self.option(SPECIALIZE) else None

    @property
    def has_products(self) -> bool:
        return any(isinstance(op, DotOp) for op in self.kernel.walk())

    @property
    def times(self) -> ProductTimes:
        return self.machine.fitted.products

    # ------------------------------------------------------------------ blocks and loops
    def block(self, block: Block, times: float) -> Cost:
        """The cost of one execution of a block, which happens `times` times."""
        own, loops, waits = Cost(), Cost(), 0.0
        for op in block.ops:
            if isinstance(op, ForOp):
                loops += self.loop(op, times)
            else:
                own += self.operation(op, times)
                waits += self.exchanged(op)
        if any(isinstance(op, LoadOp) for op in block.ops) and not self.copied:
            waits += self.times.latency
        alone = waits + busy(own, self.machine, min(4, self.warps), OVERLAP)
        return replace(own + loops, alone=alone + loops.alone)

    def exchanged(self, op: Operation) -> float:
        """Seconds in which the threads of a program wait for one another."""
        if not isinstance(op, ReduceOp | ScanOp):
            return 0
        if isinstance(op, ScanOp) and op.sorts:
            return EXCHANGED * _size(op.value) * self.crossing(op) / (self.machine.clock * 1e9)
        return ACROSS * log2(max(2, WARP * self.warps)) / (self.machine.clock * 1e9)

    def crossing(self, op: ScanOp) -> float:
        """The stages of a sort that compare elements of different warps."""
        rows = _size(op.value) // tile_type(op.value).shape[op.axis]
        between = log2(max(1, self.warps // rows))
        return between * (between + 1) / 2

    def loop(self, op: ForOp, times: float) -> Cost:
        if (branch := branch_of(op)) is not None:  # of as many programs as its part has
            self.values[op.counter] = _middle(op, branch)
            share = branch.count / self.programs
            return self.block(op.body.block, times * share) * share
        lower, upper = (evaluate(e.data, op.indices, self.values, self.sizes, data) or 0
                        for e, data in ((op.lower, 0), (op.upper, FAR)))
        if op.is_conditional:  # as often as data say: at least once, where it matters
            return self.block(op.body.block, times)
        if upper > FAR >> 20:  # as often as data say: mostly never; others are walked to their ends
            return Cost()
        step = op.step.data.constant or 1
        trips = max(0, -(-(upper - lower) // step))
        if not trips:
            return Cost()
        self.values[op.counter] = lower + trips // 2 * step
        self._hold(*op.carried)
        each = self.block(op.body.block, times * trips)
        return replace(each * trips, alone=self._alone(op, each, trips))

    def _alone(self, op: ForOp, each: Cost, trips: int) -> float:
        """Seconds of a loop in a single program. Software pipelining hides part of the latency."""
        latency, stages = self.times.latency, self.option(STAGES)
        loads = [x for x in op.body.block.ops if isinstance(x, LoadOp)]
        if not loads or stages < 2 or self.copied or not self.lone.isdisjoint(loads):
            return trips * (each.alone + self.times.step)
        if any(isinstance(x, DotOp) for x in op.body.block.ops):
            self.shared = max(self.shared, stages * sum(map(_bytes, loads)))
        hidden = together(each.alone - latency, latency / (stages - 1), self.times.waiting)
        return latency + trips * (hidden + self.times.step)

    # ------------------------------------------------------------------ operations
    def operation(self, op: Operation, times: float) -> Cost:
        match op:
            case LoadOp() | StoreOp():
                return self.access(op, times)
            case MapOp():
                self._hold(*op.inputs, *op.results)
                return Cost(_issued(op))
            case ReduceOp() | ScanOp():
                issued = _size(op.value) * _steps_along(op)
                if not (isinstance(op, ScanOp) and op.sorts):
                    return Cost(issued)
                crossed = CROSSED * self.crossing(op) * _size(op.value)
                return Cost(issued, (SHUFFLED * issued / COMPARED + crossed) / WARP)
            case DotOp():
                return self.product(op)
            case IndexOp():
                return Cost(self.positions([op.expr.data], tile_type(op.result), times))
            case _:
                return Cost()

    def _hold(self, *values: SSAValue) -> None:
        self.held = max(self.held, sum(map(_words, values)))

    def access(self, op: LoadOp | StoreOp, times: float) -> Cost:
        tile = tile_type(op.result if isinstance(op, LoadOp) else op.value)
        found = access_of(op, self.values, self.sizes)
        self.touched[op.buffer] += int(found.bytes * times)
        if self.copied and isinstance(op, LoadOp):  # one thread asks for the whole tile
            return Cost(moved=found.bytes / self._readers(op) / self.copied.loads)
        if isinstance(op, LoadOp) and found.width < ASYNCHRONOUS:
            self.lone.add(op)
        instructions = found.elements * byte_width(tile.element) / found.width
        served = max(found.bytes / LINE, instructions / WARP)
        addresses = self.positions(op.exprs, tile, times) * byte_width(tile.element) / found.width
        return Cost(instructions + addresses, served, found.bytes)  # one address for each word

    def _readers(self, op: LoadOp) -> int:
        """The groups of warps of a warp-specialized program that share a tile: a right factor."""
        is_right = any(isinstance(u.operation, DotOp) and u.index == 1 for u in op.result.uses)
        return self.warps // self.times.group_warps if is_right else 1

    def positions(self, exprs: Sequence[Expr], tile: TileType, times: float) -> float:
        """The instructions that compute index expressions; what no loop changes is computed once.
        """
        atoms = {a for e in exprs for monomial, _ in e.terms for a in monomial
                 if isinstance(a, Call)}
        return sum(self._division(a, tile, times) for a in atoms)

    def _division(self, atom: Call, tile: TileType, times: float) -> float:
        symbols = atom.symbols
        size = prod(tile.shape[s.number] for s in symbols if s.kind is Kind.PLACE)
        moves = any(s.kind is Kind.OPERAND for s in symbols)
        divisor = atom.args[1].constant if len(atom.args) > 1 else None
        power = divisor is not None and divisor > 0 and not divisor & (divisor - 1)
        inner = sum(self._division(a, tile, times) for e in atom.args for m, _ in e.terms
                    for a in m if isinstance(a, Call))
        own = size * (POWER if power else DIVISION)
        return inner + (own if moves and times > 1 else own / max(times, 1))

    def product(self, op: DotOp) -> Cost:
        rows, columns = prod(tile_type(op.a).shape[:-1]), tile_type(op.b).shape[-1]
        depth = tile_type(op.a).shape[-1]
        width, times = byte_width(tile_type(op.a).element), self.times
        if width > 2 and op.precision.data == "ieee" and is_float(tile_type(op.a).element):
            loads = times.fma_loads / (rows * columns / (WARP * self.warps)) ** 0.5
            return Cost(rows * columns * depth * (1 + loads) / times.fma_efficiency)
        full = self.machine.tensor_rate * 1e12 / self.machine.multiprocessors * 2 / max(width, 1)
        if self.copied:
            rate = self.copied.efficiency * full * columns / (columns + self.copied.half_columns)
            return Cost(multiplied=2 * rows * columns * depth / rate)
        each = columns // max(1, self.warps // times.group_warps // max(
            1, rows // times.group_rows))
        rate = times.efficiency * full * min(rows / times.group_rows, 1) * each / (
            each + times.half_columns)
        parts = 3 if op.precision.data == "tf32x3" else 1
        return Cost(multiplied=2 * parts * rows * columns * depth / rate)


def busy(
    cost: Cost, machine: Machine, quarters: int = 4, overlap: int | None = None
) -> float:
    """Seconds of a multiprocessor of which `quarters` have work. `overlap`: as in `together`."""
    cycle = 1 / (machine.clock * 1e9)
    parts = (cost.issued / (machine.lanes * quarters / 4) * cycle, cost.served * cycle,
             cost.moved / (machine.cache_rate * 1e9), cost.multiplied)
    total = 0.0
    for part in parts:
        total = together(total, part, overlap or machine.fitted.products.hiding)
    return total


def _middle(loop: ForOp, branch: Branch) -> int:
    """A program of a part that is neither at the beginning nor at the end of any axis."""
    counter = Symbol.operand(0)
    exprs = [x.lower.data for x in loop.body.walk() if isinstance(x, ForOp) and is_single(x)
             and x.lower.data.symbols]
    rows = [[int(e.evaluate({counter: k})) for k in range(branch.first, branch.end)]
            for e in exprs]
    rows = [row for row in rows if max(row)] or [[*range(branch.count)]]
    apart = [0.0] * branch.count
    for row in rows:
        most = max(row)
        apart = [a + abs(2 * v / max(1, most) - 1) for a, v in zip(apart, row, strict=True)]
    return branch.first + min(range(branch.count), key=lambda k: apart[k])


def _steps_along(op: ReduceOp | ScanOp) -> float:
    """Instructions for each element of a reduction, a scan or a bitonic sort, whose stages compare
    each element with another one."""
    if not isinstance(op, ScanOp):
        return 1
    rounds = max(1, tile_type(op.value).shape[op.axis] - 1).bit_length()
    return COMPARED * rounds * (rounds + 1) / 2 if op.sorts else 3


def _size(value: SSAValue) -> int:
    return prod(value.type.shape) if isinstance(value.type, TileType) else 1


def _words(value: SSAValue) -> int:
    type_ = value.type
    if not isinstance(type_, TileType) or isinstance(value.owner, IndexOp):  # computed at each use
        return 0
    return -(-_size(value) * byte_width(type_.element) // 4)


def _bytes(op: LoadOp) -> int:
    return _size(op.result) * byte_width(tile_type(op.result).element)


def _issued(op: MapOp) -> float:
    """Instructions of a map: of each scalar operation, at the positions on which it depends."""
    shape = op.result_type.shape
    dims: dict[SSAValue, frozenset[int]] = {
        a: frozenset(d) for a, d in zip(op.body.block.args, op.dim_lists, strict=True)}
    total = 0.0
    for inner in op.body.block.ops:
        own = frozenset[int]().union(*(dims.get(v, frozenset()) for v in inner.operands))
        for result in inner.results:
            dims[result] = own
        if inner.results and not _is_fused(inner):
            wide = WIDE if _element_width(inner) > 4 else 1
            total += COSTS.get(inner.name, 1) * wide * prod(shape[d] for d in own)
    return total


def _is_fused(op: Operation) -> bool:
    """Whether a product is added to something in the same instruction."""
    uses = list(op.results[0].uses)
    return isinstance(op, arith.MulfOp) and len(uses) == 1 and isinstance(
        uses[0].operation, arith.AddfOp | arith.SubfOp)


def _element_width(op: Operation) -> int:
    try:
        return byte_width(op.operands[0].type) if op.operands else 4
    except (KeyError, ValueError, AssertionError):
        return 4


