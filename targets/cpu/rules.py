"""Schedule rules of the CPU target: which axis fills vector lanes, which tiles, which loops.

Ordered rules, the first that fits decides: contraction, scatter, reduction, elementwise. Tile sizes
come from the kernel's own sizes and the machine's registers; nothing here knows an operator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import mul

from dialects.expr import Expr, product
from dialects.loop import KernelOp, NestOp, extents_of
from dialects.schedule import Level, Schedule, ScheduleAttr
from dialects.types import TensorType, byte_width, is_float
from passes.loop.nests import gathered_inputs, has_calls
from passes.loop.outline import is_contraction
from passes.loop.pack_operands import Panel
from passes.loop.reuse import repeated_values
from passes.loop.runs import common_rows, contiguous_axes, result_order, running_axis
from targets.cpu.groups import grouped_copy, grouping_of, has_group_instruction, is_grouped
from targets.cpu.machine import Machine
from targets.cpu.matrices import MatrixTiles, matrix_levels, matrix_tiles
from targets.cpu.rows import (
    CACHE_WAYS,
    competes,
    even,
    evicts,
    is_short,
    is_window,
    summed_lanes,
    tiled_rows,
    window_rows,
)
from targets.cpu.traffic import walks_rows_first

PACK = "pack"
"""The option of a schedule that has the operand in lanes packed although it is contiguous."""
SPARE_REGISTERS = 4
"""Vector registers kept for operands and broadcasts beside the accumulators."""
WIDENING_REGISTERS = 8
"""The same where operands are short integers, which need a register to be widened in."""
DYNAMIC_ROWS = 6
"""Rows of a register tile when their number is only known at run time: short tails."""
SUMS = 8
"""Registers of sums that keep the multipliers busy; a tile of few rows has wide ones."""
WASTE = 1.05
"""How many more columns than there are such wide tiles may have."""
CHUNK_ROWS = 256
"""About so many rows of a long matrix product belong to one program."""
CHUNK_ELEMENTS = 4096
"""Elements of a long elementwise axis that belong to one program."""
KEPT_WORK = 8
"""Operations per element from which on a value is kept for a later loop: a store and a load, and
what they take from the caches."""
SHORT_ROW = 16
"""Vectors of a row up to which what ends a reduction counts as much as the reduction."""
LEAST_PROGRAMS = 64
"""Programs that there should be before one takes several rows."""
SCATTER_ELEMENTS = 1024
"""Elements of a long row that is scattered whole that belong to one program."""


def schedule_kernel(kernel: KernelOp, machine: Machine) -> Schedule:
    """The schedule of a kernel."""
    for nest in kernel.nests:
        if is_contraction(nest) and (tiling := tiling_of(nest, machine)) is not None:
            return (_window(kernel, nest, tiling) if tiling.is_window
                    else _contraction(kernel, nest, tiling, machine))
        if is_contraction(nest) and (lanes := summed_lanes(nest)) is not None:
            return _reduction(kernel, machine, lanes)
    if any(n.is_scatter and n.reduce_axes for n in kernel.nests):
        return _scatter(kernel, machine)
    if any(n.reduce_axes for n in kernel.nests):
        return _reduction(kernel, machine)
    return _elementwise(kernel, machine)


def panels(
    nest: NestOp, constants: Collection[int], machine: Machine,
    schedule: ScheduleAttr | None = None,
) -> Mapping[int, Panel | None]:
    """Which inputs of a contraction to pack, and how; None: leave it, even if it is padded.

    `constants`: the inputs known now. `schedule`: what the kernel has already, if it was tuned.
    """
    tiling = (tiling_of(nest, machine) if schedule is None
              else _scheduled(schedule.data, nest, machine))
    if tiling is None:
        return _summed_panels(nest, constants, machine)
    packs = bool(schedule is not None and schedule.data.option(PACK, 0))
    found: dict[int, Panel | None] = {}
    for position, map_ in enumerate(nest.input_maps):
        if nest.pad_values[position] is not None:
            if is_short(nest) and any(tiling.lanes in e.symbols for e in map_):
                found[position] = None  # read so seldom that a copy with a border would not pay
        elif _wants_panel(nest, position, tiling, packs or position in constants, machine):
            found[position] = Panel(
                tiling.lanes, tiling.width, tuple(tiling.reduce), tiling.group)
    return found


def _summed_panels(
    nest: NestOp, constants: Collection[int], machine: Machine
) -> Mapping[int, Panel | None]:
    """Constants whose summed axis is to run along memory, as it does in the other factor."""
    lanes = summed_lanes(nest)
    if lanes is None:
        return {}
    extents = extents_of(nest.axes)
    inner = tuple(a.name for a in nest.reduce_axes if a.name != lanes)
    panel = Panel(lanes, _lane_tile(extents[lanes], machine), inner)
    return {k: panel for k in constants if nest.pad_values[k] is None
            and running_axis(nest.input_maps[k], nest.axes) != [lanes]
            and any(e.as_symbol == lanes for e in nest.input_maps[k])}


def _wants_panel(
    nest: NestOp, position: int, tiling: Tiling, packs: bool, machine: Machine
) -> bool:
    """Whether the lanes axis indexes an operand in a way that panels improve.

    `packs`: also where only rows of it lie side by side then.
    """
    map_ = nest.input_maps[position]
    if tiling.group > 1:
        return not has_calls(map_) and any(tiling.lanes in e.symbols for e in map_)
    dims = [e for e in map_ if tiling.lanes in e.symbols]
    reduce = {a.name for a in nest.reduce_axes}
    if len(dims) != 1 or dims[0].symbols & reduce or gathered_inputs(map_):
        return False
    split = dims[0].linear([tiling.lanes])
    if split is None or split[0][tiling.lanes].constant is None or has_calls(map_):
        return False
    contiguous = split[0][tiling.lanes].constant == 1 and dims[0] == map_[-1]
    if not contiguous:
        return True
    extent = extents_of(nest.axes)[tiling.lanes].constant
    cut = extent is None or extent > tiling.width
    return cut and (packs or evicts(nest, position, tiling.lanes, machine.caches[1]))


# ---------------------------------------------------------------------- contractions
@dataclass(frozen=True)
class Tiling:
    """How a contraction is cut into register tiles."""

    lanes: str
    width: int
    rows: tuple[tuple[str, int], ...]
    """Unrolled axes, outermost first, with their tiles."""
    outer: tuple[str, ...]
    """Remaining parallel axes, outermost first."""
    reduce: tuple[str, ...]
    """Reduce axes, outermost first."""
    group: int
    """How many steps of the last of them an instruction takes at once."""
    is_window: bool = False
    """Whether the sums are short enough to be written out."""
    matrices: MatrixTiles | None = None
    """The tiles of matrix registers, if the sums lie there."""


def _scheduled(schedule: Schedule, nest: NestOp, machine: Machine) -> Tiling | None:
    """The tiling that a schedule says; None where its lanes are no parallel axis of the nest."""
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

    Lanes: the axis that runs along memory in the result. Rows: the parallel axes before it, as many
    as registers allow. The same answer before and after packing.
    """
    order = result_order(nest)
    if not order or summed_lanes(nest) is not None:
        return None
    lanes, extents = order[-1], extents_of(nest.axes)
    names = [a for a in order[:-1] if is_row(nest, a, lanes)]
    reduce, group = grouping_of(nest, lanes, machine) or (_reduce_order(nest), 1)
    matrices = None
    if group > 1:
        matrices = matrix_tiles(nest, lanes, names, reduce[-1], group, machine)
    if matrices is not None:
        width, rows, window = matrices.width, matrices.rows, False
    elif window := bool(names) and is_window(nest, lanes):
        width = min(extents[lanes].constant or machine.lanes, machine.lanes)
        rows = window_rows(names, extents)
    else:
        uses = product(extents[a] for a in names).constant
        width = _width(extents[lanes], machine, nest, group, uses)
        vectors = -(-width // machine.lanes)
        spare = _spare(nest, vectors, group, machine)
        most = CACHE_WAYS if competes(nest, lanes, names[-1:]) else machine.vector_registers
        budget = min(most, max(1, (machine.vector_registers - spare) // vectors))
        rows = _rows(names, extents, budget) or tiled_rows(nest, order[-2:-1], budget)
    chosen = {a for a, _ in rows}
    outer = tuple(a.name for a in nest.parallel_axes if a.name not in chosen | {lanes})
    return Tiling(lanes, width, rows, outer, reduce, group, window, matrices)


def _spare(nest: NestOp, vectors: int, group: int, machine: Machine) -> int:
    """Registers that hold no sums: a row of the panel and an element of the other operand."""
    if group > 1 and has_group_instruction(nest, machine):
        return vectors + 1
    return WIDENING_REGISTERS if _widens(nest) else SPARE_REGISTERS


def is_row(nest: NestOp, axis: str, lanes: str) -> bool:
    """Whether an axis reuses the operand that lies in lanes (or all have it: any axis will do)."""
    with_lanes = [m for m in nest.input_maps if any(lanes in e.symbols for e in m)]
    return any(not any(axis in e.symbols for e in m) for m in with_lanes)


def _widens(nest: NestOp) -> bool:
    """Whether integers are read that are shorter than their sums."""
    types = [v.type for v in (*nest.inputs, nest.results[0])]
    widths = [byte_width(t.element) for t in types if isinstance(t, TensorType)]
    return min(widths) < widths[-1] and not is_float(types[-1].element)  # type: ignore[union-attr]


def _width(
    extent: Expr, machine: Machine, nest: NestOp, group: int, uses: int | None
) -> int:
    """Lanes of a register tile: two to five vectors, whichever wastes least of the extent.

    Of equals the narrowest, but the widest where operands are widened, as each is then used more.
    What is used only once or twice comes from far memory in as long pieces as sums allow.
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


def _rows(
    names: Sequence[str], extents: Mapping[str, Expr], budget: int
) -> tuple[tuple[str, int], ...]:
    """Fill the register budget from the innermost axis outwards, in even tiles."""
    rows: list[tuple[str, int]] = []
    for name in reversed(names):
        if budget < 2:
            break
        size = extents[name].constant
        tile = min(budget, DYNAMIC_ROWS) if size is None else even(size, budget)
        rows.insert(0, (name, tile))
        budget //= tile
        if size is None or tile < size:
            break
    return tuple(rows)


def _reduce_order(nest: NestOp) -> tuple[str, ...]:
    """Reduce axes with the one innermost that runs along memory in an operand, or the longest."""
    names = [a.name for a in nest.reduce_axes]
    extents = extents_of(nest.axes)
    contiguous = {e.as_symbol for m in nest.input_maps for e in m[-1:]}
    inner = [n for n in names if n in contiguous and extents[n].constant != 1]
    last = inner[0] if inner else max(names, key=lambda n: extents[n].constant or 1 << 60)
    return (*(n for n in names if n != last), last)


def _contraction(
    kernel: KernelOp, nest: NestOp, tiling: Tiling, machine: Machine
) -> Schedule:
    batch = [a for a in tiling.outer if not is_row(nest, a, tiling.lanes)]
    others = [a for a in tiling.outer if a not in batch]
    levels = [Level("grid", a) for a in batch]
    levels += _vector_levels(nest, tiling, batch, others, machine) if (
        tiling.matrices is None) else matrix_levels(
        nest, tiling.lanes, tiling.matrices, tiling.reduce, others, machine)
    return _complete(kernel, levels)


def _vector_levels(
    nest: NestOp, tiling: Tiling, batch: Sequence[str], others: Sequence[str], machine: Machine
) -> list[Level]:
    """The levels of a contraction but those of batches, with sums in vector registers."""
    extents = extents_of(nest.axes)
    rows = [Level("grid", a) for a in others]
    for name, tile in tiling.rows:
        chunk = _chunk(extents[name].constant, tile) if not others else None
        if chunk is not None:
            rows.append(Level("grid", name, chunk))
    panel = Level("grid", tiling.lanes, tiling.width, lanes=True)
    parts = product(extents[x.axis].ceildiv(x.tile) for x in rows)
    rows_first = walks_rows_first(nest, panel, batch, parts, machine)
    levels = [*rows, panel] if rows_first else [panel, *rows]
    levels += [Level("loop", name, tile) for name, tile in tiling.rows]
    levels += _sums(nest, tiling)
    return levels


def _window(kernel: KernelOp, nest: NestOp, tiling: Tiling) -> Schedule:
    """Blocks of neighbours, walked as they lie in memory: along the lanes first."""
    levels = [Level("grid", a) for a in tiling.outer]
    levels += [Level("grid", name, tile) for name, tile in tiling.rows[:1]]
    levels += [Level("loop", name, tile) for name, tile in tiling.rows]
    levels.append(Level("loop", tiling.lanes, tiling.width, lanes=True))
    levels += _sums(nest, tiling)
    return _complete(kernel, levels)


def _sums(nest: NestOp, tiling: Tiling) -> list[Level]:
    """The reduce axes of a contraction."""
    levels: list[Level] = []
    for name in tiling.reduce:
        last = name == tiling.reduce[-1]
        unroll = _unroll(extents_of(nest.axes)[name].constant, tiling.is_window, last)
        group = tiling.group if last and is_grouped(nest, name, tiling.group) else 1
        levels.append(Level("loop", name, group, unroll, group=group > 1))
    return levels


def _complete(kernel: KernelOp, levels: Sequence[Level]) -> Schedule:
    """The levels, and loops over what they do not name."""
    placed = {x.axis for x in levels}
    return Schedule((*levels, *(Level("loop", a) for a in kernel.axes if a not in placed)))


def _chunk(size: int | None, tile: int) -> int | None:
    """Rows of one program, where a long axis takes several: even parts, if possible."""
    if size is None or size <= CHUNK_ROWS:
        return None
    steps, most = size // tile if size % tile == 0 else 0, max(1, CHUNK_ROWS // tile)
    for count in range(most, 0, -1):
        if steps and steps % count == 0 and count * tile >= CHUNK_ROWS // 4:
            return count * tile
    return most * tile if size > 2 * CHUNK_ROWS else None


def _unroll(size: int | None, whole: bool, innermost: bool) -> int:
    """How many steps of a reduce axis to write out: of a window all, else some of the innermost."""
    if not (whole or innermost):
        return 1
    return 4 if size is None or (size > 4 and not whole) else max(1, size)


# ---------------------------------------------------------------------- everything else
def _reduction(kernel: KernelOp, machine: Machine, lanes: str | None = None) -> Schedule:
    """Rows in parallel, a few per program; inside, in lanes the axis that runs along memory, or the
    one given."""
    lanes = lanes or next(iter(contiguous_axes(kernel)), None)
    reduce = {a.name for n in kernel.nests for a in n.reduce_axes}
    rows = common_rows(kernel)
    extents = kernel.axes
    width = _lane_tile(extents[lanes], machine) if lanes else 1
    levels = [Level("grid", a) for a in rows if a != lanes]
    if levels and lanes and lanes not in rows:
        levels[-1] = replace(levels[-1], tile=_row_tile(kernel, levels[-1].axis, lanes, machine))
    if lanes in rows:
        levels.append(Level("grid", lanes, width, lanes=True))
    inner = [a for a in extents if a not in rows and a != lanes]
    inner.sort(key=lambda a: a in reduce)
    levels += [Level("loop", a, 1) for a in inner]
    if lanes and lanes not in rows:
        levels.append(Level("loop", lanes, width, lanes=True))
    return Schedule(tuple(levels), (*_keep(kernel, levels, machine), *_stream(kernel, machine)))


def _row_tile(kernel: KernelOp, row: str, lanes: str, machine: Machine) -> int:
    """Rows that a program reduces at once, so that one waits less for what ends the other.

    More of them where rows are short; a power of two that leaves no rest, and enough programs.
    """
    count, length = kernel.axes[row].constant, kernel.axes[lanes].constant
    if count is None or length is None:
        return 1
    vectors = -(-_lane_tile(kernel.axes[lanes], machine) // machine.lanes)
    is_short = length <= SHORT_ROW * machine.lanes
    budget = machine.vector_registers // (2 if is_short else 4) // vectors
    tile = 1
    while 2 * tile <= budget and count % (2 * tile) == 0 and count >= 2 * tile * LEAST_PROGRAMS:
        tile *= 2
    return tile


def _keep(
    kernel: KernelOp, levels: Sequence[Level], machine: Machine
) -> tuple[tuple[str, int | str], ...]:
    """Keep costly values of a program where the cache of level 2 has room for them."""
    tiles = {x.axis: Expr.of(x.tile) for x in levels if x.kind == "grid"}
    part = product(tiles.get(a, extent) for a, extent in kernel.axes.items()).constant
    kept = repeated_values(kernel, KEPT_WORK)
    if not kept or (part or 0) * 4 * len(kept) > machine.caches[1] // 2:
        return ()
    return (("keep", KEPT_WORK),)


def _stream(kernel: KernelOp, machine: Machine) -> tuple[tuple[str, int | str], ...]:
    """Write large results past the caches, where they would not stay."""
    types = [v.type for v in kernel.yielded]
    sizes = [product(t.shape).constant or 0 for t in types if isinstance(t, TensorType)]
    widths = [byte_width(t.element) for t in types if isinstance(t, TensorType)]
    total, least = sum(map(mul, sizes, widths)), machine.streamed_bytes
    return (("stream", 1),) if least is not None and total >= least else ()


def _scatter(kernel: KernelOp, machine: Machine) -> Schedule:
    """One update after another; what is kept of an update in parallel, along memory in lanes."""
    extents, rows = kernel.axes, common_rows(kernel)
    lanes = next((a for a in contiguous_axes(kernel) if a in rows), None)
    levels = [Level("grid", a) for a in rows if a != lanes]
    if lanes is not None:
        size = extents[lanes].constant
        if size is None or size > 2 * SCATTER_ELEMENTS:
            levels.append(Level("grid", lanes, SCATTER_ELEMENTS))
    levels += [Level("loop", a) for a in extents if a not in rows]
    if lanes is not None:
        levels.append(Level("loop", lanes, _lane_tile(extents[lanes], machine), lanes=True))
    return Schedule(tuple(levels))


def _elementwise(kernel: KernelOp, machine: Machine) -> Schedule:
    if (grouped := grouped_copy(kernel, machine)) is not None:
        return grouped
    lanes = next(iter(contiguous_axes(kernel)), None)
    rows = common_rows(kernel)
    extents = kernel.axes
    turned = _turned(kernel, lanes, machine)
    levels = [Level("grid", a, machine.lanes if a == turned else 1) for a in rows if a != lanes]
    levels += [Level("loop", a) for a in extents if a != lanes and a not in rows]
    if lanes is None:
        return Schedule(tuple(levels))
    width = machine.lanes if turned else _lane_tile(extents[lanes], machine)
    size = extents[lanes].constant
    if lanes in rows and (size is None or size > 2 * CHUNK_ELEMENTS):
        levels.append(Level("grid", lanes, CHUNK_ELEMENTS))
    levels.append(Level("loop", lanes, width, lanes=True))
    return Schedule(tuple(levels), _stream(kernel, machine))


def _turned(kernel: KernelOp, lanes: str | None, machine: Machine) -> str | None:
    """An axis that runs along the memory of an input which the lanes cross: a transpose.

    A square of both is loaded along memory and transposed in registers.
    """
    extents = kernel.axes
    long = [a for a in common_rows(kernel) if (extents[a].constant or 0) >= machine.lanes]
    if lanes not in long:
        return None
    for nest in kernel.nests:
        for map_ in nest.input_maps:
            crossed = any(lanes in e.symbols for e in map_[:-1])
            along = [a for a in running_axis(map_, nest.axes) if a != lanes and a in long]
            if crossed and along and lanes not in map_[-1].symbols:
                return along[0]
    return None


def _lane_tile(extent: Expr, machine: Machine) -> int:
    """Four vectors, or the whole axis if it is shorter."""
    size = extent.constant
    return 4 * machine.lanes if size is None else max(1, min(size, 4 * machine.lanes))
