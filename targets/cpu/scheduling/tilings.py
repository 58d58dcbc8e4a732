"""How contractions are divided into register tiles: lanes, rows, and steps of their sums.

    lanes: the axis that is contiguous in the result; rows: as many of the parallel axes before it
    as registers allow; the remaining axes become outer loops.

Tile sizes follow from the kernel's own sizes and the machine's registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dialects.loop import NestOp, extents_of
from dialects.strata.schedule import Schedule
from dialects.strata.types import TensorType, byte_width, is_float
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.runs import LONG, memory_order
from passes.rewrites.loop.nests import has_calls
from targets.cpu.machine import Machine
from targets.cpu.scheduling.groups import BLOCK, adds_after, grouping_of, has_group_instruction
from targets.cpu.scheduling.matrices import MatrixTiles, matrix_tiles
from targets.cpu.scheduling.rows import (
    CACHE_WAYS,
    competes,
    even,
    is_window,
    stored_along,
    summed_lanes,
    tile_order,
    tiled_rows,
    window_rows,
    window_width,
)

WIDENING_REGISTERS = 8
"""Vector registers for operands of short integers besides the sums: each needs one for its widened
form."""
DYNAMIC_ROWS, DYNAMIC_ROWS_EACH = 6, 8
"""Rows of a register tile if their number is known only at run time; few, to keep tails short. More
where each number of rows that tiles leave has code of its own."""
MANY_ROWS = 32
"""Of so many rows, few are what full tiles leave."""
SUMS = 8
"""Registers of sums that keep the multipliers busy; a tile of few rows is made wide."""
WIDEST = 5
"""The most vectors of a tile that was made to divide a panel."""
WASTE = 1.05
"""The most padded columns of such wide tiles, relative to the least that are possible."""


class Tiling(NamedTuple):
    """How a contraction is divided into register tiles."""

    lanes: Symbol
    width: int
    rows: tuple[tuple[Symbol, int], ...]
    """Unrolled axes, outermost first, with their tiles."""
    outer: tuple[Symbol, ...]
    """Remaining parallel axes, outermost first."""
    reduce: tuple[Symbol, ...]
    """Reduce axes, outermost first."""
    group: int
    """How many steps of the last reduce axis one instruction takes."""
    is_window: bool = False
    """Whether the sums are short enough to be fully unrolled."""
    matrices: MatrixTiles | None = None
    """The tiles of matrix registers, if these hold the sums."""
    each: bool = False
    """Whether each number of rows that tiles leave has code of its own."""


def scheduled(schedule: Schedule, nest: NestOp, machine: Machine) -> Tiling | None:
    """The tiling of a schedule; None if its lanes are not a parallel axis of the nest."""
    parallel = {a.name for a in nest.parallel_axes}
    lanes = next((x for x in schedule.levels if x.lanes and x.axis in parallel), None)
    if lanes is None:
        return None
    summed = {a.name for a in nest.reduce_axes}
    order = tuple(x.axis for x in schedule.levels if x.axis in summed)
    reduce, group = grouping_of(nest, lanes.axis, machine) or (order, 1)
    return Tiling(lanes.axis, lanes.tile, (), (), reduce, group)


def tiling_of(nest: NestOp, machine: Machine) -> Tiling | None:
    """The register tiling of a contraction; None if no parallel axis can lie in lanes.

    Lanes: the last axis of `tile_order`. Rows: as many of the parallel axes before it as registers
    allow. The answer is the same before and after packing.
    """
    order = tile_order(nest)
    if not order or summed_lanes(nest) is not None:
        return None
    lanes, extents = order[-1], extents_of(nest.axes)
    names = [a for a in order[:-1] if is_row(nest, a, lanes)]
    reduce, group = grouping_of(nest, lanes, machine) or (_reduce_order(nest), 1)
    matrices, each = None, False
    if group > 1:
        matrices = matrix_tiles(nest, lanes, names, reduce[-1], group, machine)
    if matrices is not None:
        width, rows, window = matrices.width, matrices.rows, False
    elif window := bool(names) and is_window(nest, lanes):
        width = window_width(extents[lanes], machine)
        rows = window_rows(names, extents, -(-width // machine.lanes))
    elif (row := stored_along(nest, lanes, names, machine.lanes)) is not None:
        width, rows = machine.lanes, ((row, machine.lanes),)
    else:
        uses = product(extents[a] for a in names).constant
        width = _width(extents[lanes], machine, nest, group, uses)
        width = _fitted(width, extents[lanes], nest, machine)
        vectors = -(-width // machine.lanes)
        spare = _spare(nest, vectors, group, machine)
        most = CACHE_WAYS if competes(nest, lanes, names[-1:]) else machine.vector_registers
        budget = min(most, _most_rows(machine.vector_registers - spare, vectors, group))
        each = _is_read_again(nest, names, width, machine)
        few = DYNAMIC_ROWS_EACH if each else DYNAMIC_ROWS
        rows = _rows(names, extents, budget, few) or tiled_rows(nest, order[-2:-1], budget)
    chosen = {a for a, _ in rows}
    outer = tuple(a.name for a in nest.parallel_axes if a.name not in chosen | {lanes})
    return Tiling(lanes, width, rows, outer, reduce, group, window, matrices, each)


def _is_read_again(
    nest: NestOp, names: Sequence[Symbol], width: int, machine: Machine
) -> bool:
    """Whether an open number of rows, of which there may be few, reads panels that the first cache
    does not hold: each tile of what full tiles leave would fetch the whole panel again. Images have
    tiles in two axes, whose tails multiply, so theirs stay short."""
    rows = extents_of(nest.axes)[names[0]] if len(names) == 1 else Expr.of(1)
    least = rows.evaluate(dict.fromkeys(rows.symbols, 1))
    if rows.constant is not None or least > MANY_ROWS:
        return False
    terms = product(a.extent for a in nest.reduce_axes).constant or 0
    return terms * width * _bytes_of_element(nest) > machine.caches[0]


def _bytes_of_element(nest: NestOp) -> int:
    """The bytes of an element of the factors."""
    return min(byte_width(v.type.element) for v in nest.inputs if isinstance(v.type, TensorType))


def _most_rows(registers: int, vectors: int, group: int) -> int:
    """Rows whose sums fit in registers; of blocks, pairs of rows, each with a factor's register."""
    if group == BLOCK:
        return max(2, 2 * (registers // (2 * vectors + 1)))
    return max(1, registers // vectors)


def _spare(nest: NestOp, vectors: int, group: int, machine: Machine) -> int:
    """Registers that hold no sums: a row of the panel, an element of the other operand, and a
    product that is not yet added. A row of blocks is twice as long."""
    if group == BLOCK:
        return 2 * vectors + 1
    if group > 1 and has_group_instruction(nest, machine):
        return vectors + 1
    if group > 1 and adds_after(nest, machine):
        return max(vectors + 2, machine.spare_registers)
    return max(machine.spare_registers, WIDENING_REGISTERS if _widens(nest) else 0)


def is_row(nest: NestOp, axis: Symbol, lanes: Symbol) -> bool:
    """Whether the operand in lanes is reused along an axis (any axis, if all operands have lanes).
    """
    with_lanes = [m for m in nest.input_maps if any(lanes in e.symbols for e in m)]
    return any(not any(axis in e.symbols for e in m) for m in with_lanes)


def _widens(nest: NestOp) -> bool:
    """Whether the operands are integers narrower than their sums."""
    types = [v.type for v in (*nest.inputs, nest.results[0])]
    widths = [byte_width(t.element) for t in types if isinstance(t, TensorType)]
    return min(widths) < widths[-1] and not is_float(types[-1].element)  # type: ignore[union-attr]


def _width(
    extent: Expr, machine: Machine, nest: NestOp, group: int, uses: int | None
) -> int:
    """Lanes of a register tile: the choice of two to five vectors that wastes least of the extent.

    Of equal choices the narrowest wins; if operands are widened, the widest, because each is then
    used more often. An operand that is used only once or twice comes from memory, so it is read in
    pieces as long as the registers for sums allow.
    """
    result = nest.results[0].type
    assert isinstance(result, TensorType)
    per_vector = machine.lanes if byte_width(result.element) <= 4 else machine.lanes // 2
    size = extent.constant
    if size is None:
        return 2 * per_vector
    if size <= 2 * per_vector:
        return max(size, 1)
    once = group == 1 or has_group_instruction(nest, machine)
    choices = (4, 3, 2) if _widens(nest) and once else (2, 3, 4, 5)
    padded = {v: -(-size // (v * per_vector)) * v for v in range(2, SUMS + 1)}
    if uses is not None and uses * 2 < SUMS and group == 1 and not _widens(nest):
        most = WASTE * min(padded.values())
        choices = [v for v in range(SUMS // max(1, uses), 1, -1) if padded[v] <= most] or choices
        return min(choices[0] * per_vector, size)
    return min(min(choices, key=lambda v: padded[v]) * per_vector, size)


def _fitted(width: int, extent: Expr, nest: NestOp, machine: Machine) -> int:
    """The width, or the next one that divides panels which are packed for another machine.

    If there is only one panel, every width reads it.
    """
    if machine.packed_for is None:
        return width
    packed = tiling_of(nest, machine.packed_for)
    if packed is None or is_read_by(packed.width, width, extent):
        return width
    vectors = [k * machine.lanes for k in range(WIDEST, 0, -1)]
    return next((v for v in vectors if packed.width % v == 0), width)


def is_read_by(panel: int, width: int, extent: Expr) -> bool:
    """Whether tiles of a width read panels: there is one panel, or each has whole tiles."""
    size = extent.constant
    return panel % width == 0 or (size is not None and size <= panel)


def _rows(
    names: Sequence[Symbol], extents: Mapping[Symbol, Expr], budget: int, few: int
) -> tuple[tuple[Symbol, int], ...]:
    """Fill the register budget from the innermost axis outwards, in even tiles."""
    rows: list[tuple[Symbol, int]] = []
    for name in reversed(names):
        if budget < 2:
            break
        size = extents[name].constant
        tile = min(budget, few) if size is None else even(size, budget)
        rows.insert(0, (name, tile))
        budget //= tile
        if size is None or tile < size:
            break
    return tuple(rows)


def _reduce_order(nest: NestOp) -> tuple[Symbol, ...]:
    """Reduce axes; innermost is one along which an operand lies in memory, or else the nearest in
    memory of those that are long, so that caches are read in order, or else the longest.

    Of the axes that move a window along memory, it is the longest: positions, rather than taps.
    """
    names = [a.name for a in nest.reduce_axes]
    sizes = {a: extent.constant or 1 << 60 for a, extent in extents_of(nest.axes).items()}
    lasts = ([a for a in sizes if a in m[-1].symbols] for m in nest.input_maps
             if m and not has_calls(m[-1:]))
    along = {max(axes, key=lambda a: sizes[a]) for axes in lasts if axes}
    inner = [n for n in names if n in along and sizes[n] != 1]
    long = memory_order(nest, [n for n in names if sizes[n] >= LONG])
    last = inner[0] if inner else long[-1] if long else max(names, key=lambda n: sizes[n])
    return (*(n for n in names if n != last), last)


def lane_tile(extent: Expr, machine: Machine) -> int:
    """Four vectors, or the whole axis if that is shorter."""
    size = extent.constant
    return 4 * machine.lanes if size is None else max(1, min(size, 4 * machine.lanes))
