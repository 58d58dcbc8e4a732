"""Schedules of kernels whose programs hold a block of rows (`loop-join-rows`).

In every nest, the rows of a block lie in vector lanes. An operand of a contraction that all rows
share is read in its own layout, one element for all lanes. Values that a program keeps for itself
have contiguous rows. Reductions along a row combine whole vectors. Only the operand that has the
rows is copied once per program, with contiguous rows, before a contraction uses it repeatedly,
unless other inputs index it.

    nest (i, j, reduce d) ins(%q[i, d], %k[j, d])
    ->  %r = nest (i, d1) ins(%q[i, d1])  {q}      nest (i, j, reduce d) ins(%r[i, d], %k[j, d])
"""

from __future__ import annotations

from collections.abc import Collection

from xdsl.ir import BlockArgument

from dialects.loop import Axis, KernelOp, NestOp, YieldOp, fresh_axes
from dialects.strata.schedule import Level, Schedule
from dialects.strata.types import TensorType, byte_width, tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.private import block_axis, private_values
from passes.analyses.loop.runs import common_rows
from passes.rewrites.loop.nests import (
    Read,
    gathered_inputs,
    reads_of,
    replace_nest,
    with_reads,
)
from targets.cpu.machine import Machine

VECTORS = 2
"""Vectors of rows in a block; neither one more nor one less is faster."""
OPEN_VECTORS = 1
"""The same if the number of rows is known only at run time, and may be small."""
WALKED_REGISTERS = 4
"""Registers of a tile that is neither accumulated in registers nor transposed."""
COPIED = 16
"""The most elements of a row that are computed or copied at once. Squares of a vector's width are
transposed if a row's elements are contiguous."""
WASTE = 1.05
"""How much more work a wider block may cause through lanes without a row."""


# ---------------------------------------------------------------------- before scheduling
def copy_rows(kernel: KernelOp) -> None:
    """Copy the operands of contractions that have the block's rows into private memory."""
    axis = block_axis(kernel) if private_values(kernel) else None
    if axis is None:
        return
    for nest in [n for n in kernel.nests if is_contraction(n)]:
        current = nest
        for position, read in enumerate(reads_of(nest)):
            if isinstance(read.value, BlockArgument) and _holds(read, axis):
                current = _copy(kernel, current, position)


def _holds(read: Read, axis: Symbol) -> bool:
    return read.pad is None and not gathered_inputs(read.map) and any(
        axis in e.symbols for e in read.map)


def _copy(kernel: KernelOp, nest: NestOp, position: int) -> NestOp:
    """Make a nest read a copy of an operand, over the axes that index it."""
    read = reads_of(nest)[position]
    used = {s for e in read.map for s in e.symbols}
    axes = [a for a in nest.axes if a.name in used]
    fresh = fresh_axes(kernel.axes)
    names = {a.name: a.name if a.name in common_rows(kernel) else next(fresh) for a in axes}
    assert isinstance(read.value.type, TensorType)
    kept = [Expr.symbol(names[a.name]) for a in axes]
    copy = NestOp.of(
        [Axis(names[a.name], a.extent) for a in axes], [read.value],
        [[e.substitute({k: Expr.symbol(v) for k, v in names.items()}) for e in read.map]],
        [tensor(read.value.type.element, [a.extent for a in axes])], [kept])
    copy.body.block.add_op(YieldOp.of(copy.body.block.args[0]))
    set_location(copy, nest)
    block = nest.parent_block()
    assert block is not None
    block.insert_op_before(copy, nest)
    reads = reads_of(nest)
    reads[position] = Read(copy.results[0], tuple(Expr.symbol(a.name) for a in axes))
    new = with_reads(nest, reads)
    replace_nest(nest, new)
    return new


# ---------------------------------------------------------------------- schedules
def schedule_rows(kernel: KernelOp, machine: Machine) -> Schedule:
    """A program per block of rows; inside, one nest after another, each with its own loops."""
    axis, extents = block_axis(kernel), kernel.axes
    levels = [Level("grid", a) for a in common_rows(kernel) if a != axis]
    vectors = 1
    if axis is not None:
        lanes = _lanes(kernel, machine)
        vectors = _vectors(extents[axis].constant, lanes)
        levels.append(Level("grid", axis, vectors * lanes, lanes=True))
    budget = min((machine.vector_registers - machine.spare_registers) // vectors, COPIED)
    for nest in kernel.nests:
        placed = {x.axis for x in levels}
        loops = (_product_loops(nest, placed, budget, machine.unrolled) if is_contraction(nest)
                 else _walks(nest, placed, axis, vectors))
        levels += [x for x in loops if x.axis not in placed]
    return Schedule(tuple(levels))


def _lanes(kernel: KernelOp, machine: Machine) -> int:
    """Rows of one vector of the widest elements in the kernel."""
    widest = max(byte_width(r.type.element) for nest in kernel.nests for r in nest.results
                 if isinstance(r.type, TensorType))
    return machine.lanes if widest <= 4 else machine.lanes // 2


def _vectors(rows: int | None, lanes: int) -> int:
    """Vectors of rows in a block: one if that leaves clearly fewer lanes without a row."""
    if rows is None:
        return OPEN_VECTORS
    wide, narrow = (-(-rows // n) * n for n in (VECTORS * lanes, lanes))
    return 1 if narrow * WASTE < wide else VECTORS


def _product_loops(
    nest: NestOp, placed: Collection[Symbol], budget: int, steps: int
) -> list[Level]:
    """A tile of accumulators along the last axis that is not the rows', then the sum."""
    own = [a for a in nest.parallel_axes if a.name not in placed]
    levels = [Level("loop", a.name) for a in own[:-1]]
    levels += [Level("loop", a.name, _even(a.extent.constant, budget)) for a in own[-1:]]
    *outer, last = nest.reduce_axes
    size = last.extent.constant
    return [*levels, *(Level("loop", a.name) for a in outer),
            Level("loop", last.name, 1, steps if size is None else max(1, min(size, steps)))]


def _walks(
    nest: NestOp, placed: Collection[Symbol], axis: Symbol | None, vectors: int
) -> list[Level]:
    """A few elements of each row at once."""
    own = [a for a in nest.axes if a.name not in placed]
    transposes = any(isinstance(r.value, BlockArgument) and any(axis in e.symbols for e in r.map)
                     for r in reads_of(nest))
    most = COPIED if transposes else max(1, WALKED_REGISTERS // vectors)
    levels = [Level("loop", a.name) for a in own[:-1]]
    return levels + [Level("loop", a.name, _even(a.extent.constant, most)) for a in own[-1:]]


def _even(size: int | None, most: int) -> int:
    """The tile of at most `most` that divides `size` into the fewest, most even parts."""
    if size is None:
        return most
    parts = -(-max(size, 1) // most)
    return -(-max(size, 1) // parts)
