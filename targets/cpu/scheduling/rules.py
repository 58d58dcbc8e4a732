"""Schedule rules of the CPU target: which axis fills vector lanes, which tiles, which loops.

The first rule that fits decides: contraction, recurrence, scatter, reduction, elementwise. Tile
sizes follow from the kernel's own sizes and the machine's registers. No rule refers to an operator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import gcd
from operator import mul

from dialects.loop import KernelOp, NestOp, extents_of
from dialects.strata.schedule import Level, Schedule
from dialects.strata.types import TensorType, byte_width
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction, is_sort
from passes.analyses.loop.reuse import repeated_values
from passes.analyses.loop.runs import LONG, common_rows, contiguous_axes, running_axis
from passes.rewrites.loop.nests import gathered_inputs, is_copy
from targets.cpu.machine import Machine
from targets.cpu.scheduling.columns import column_tile
from targets.cpu.scheduling.groups import adds_after, grouped_copy, is_grouped
from targets.cpu.scheduling.matrices import matrix_levels
from targets.cpu.scheduling.recurrences import schedule_recurrence
from targets.cpu.scheduling.rows import even, summed_lanes, vector_lanes
from targets.cpu.scheduling.tilings import Tiling, is_row, lane_tile, tiling_of
from targets.cpu.scheduling.traffic import walks_rows_first

CHUNK_ROWS = 256
"""About how many rows of a long matrix product belong to one program."""
CHUNK_ELEMENTS = 4096
"""Elements of a long elementwise axis that belong to one program."""
KEPT_WORK = 8
"""Operations per element from which a value is kept for a later loop, rather than recomputed. That
costs a store and a load, and space in the caches."""
SHORT_ROW, LONG_ROW = 4, 16
"""Row lengths in vectors: up to SHORT_ROW the end of a reduction takes as long as the reduction.
Beyond LONG_ROW it matters how many rows are read from memory in parallel."""
LEAST_PROGRAMS = 64
"""The fewest programs that there should be before one program takes several rows."""
SCANNED_ROWS = 4
"""Rows that are scanned along memory at once: each step waits for the one before, in scalars."""
TAPS, TAP_VECTORS = 9, 8
"""The most terms of a sum, or other reduction, that are written out, as those of a window of 3x3:
loops around so few vectors, and tests of what lies in the image, take as long as they. Their lanes
are then up to so many vectors of an axis that these hold whole."""
SCATTER_ELEMENTS = 1024
"""Elements per program of a long row that is scattered whole."""


def schedule_kernel(kernel: KernelOp, machine: Machine) -> Schedule:
    """The schedule of a kernel."""
    for nest in kernel.nests:
        if is_contraction(nest) and (lanes := vector_lanes(nest)) is not None:
            return _reduction(kernel, machine, lanes)
        if is_contraction(nest) and (tiling := tiling_of(nest, machine)) is not None:
            return (_window(kernel, nest, tiling, machine) if tiling.is_window
                    else _contraction(kernel, nest, tiling, machine))
        if is_contraction(nest) and (lanes := summed_lanes(nest)) is not None:
            return _reduction(kernel, machine, lanes)
    if any(n.is_recurrence for n in kernel.nests):
        return schedule_recurrence(kernel, machine)
    if any(n.is_scatter and n.reduce_axes for n in kernel.nests):
        return _scatter(kernel, machine)
    if any(map(is_sort, kernel.nests)):
        return _sort(kernel)
    if any(n.reduce_axes for n in kernel.nests):
        return _reduction(kernel, machine)
    return _elementwise(kernel, machine)


# ---------------------------------------------------------------------- contractions
def _contraction(
    kernel: KernelOp, nest: NestOp, tiling: Tiling, machine: Machine
) -> Schedule:
    batch = [a for a in tiling.outer if not is_row(nest, a, tiling.lanes)]
    others = [a for a in tiling.outer if a not in batch]
    levels = [Level("grid", a) for a in batch]
    if tiling.matrices is None:
        levels += _vector_levels(nest, tiling, batch, others, machine)
    else:
        levels += matrix_levels(
            nest, tiling.lanes, tiling.matrices, tiling.reduce, others, machine)
    return _complete(kernel, levels, (("tails", "each"),) if tiling.each else ())


def _vector_levels(
    nest: NestOp, tiling: Tiling, batch: Sequence[Symbol], others: Sequence[Symbol],
    machine: Machine,
) -> list[Level]:
    """The levels of a contraction except batches, with sums in vector registers."""
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
    levels += _sums(nest, tiling, machine)
    return levels


def _window(kernel: KernelOp, nest: NestOp, tiling: Tiling, machine: Machine) -> Schedule:
    """Blocks of neighbouring results, visited in memory order: along the lanes first."""
    levels = [Level("grid", a) for a in tiling.outer]
    levels += [Level("grid", name, tile) for name, tile in tiling.rows[:1]]
    levels += [Level("loop", name, tile) for name, tile in tiling.rows]
    levels.append(Level("loop", tiling.lanes, tiling.width, lanes=True))
    levels += _sums(nest, tiling, machine)
    return _complete(kernel, levels)


def _sums(nest: NestOp, tiling: Tiling, machine: Machine) -> list[Level]:
    """The levels of a contraction's reduce axes."""
    levels: list[Level] = []
    for name in tiling.reduce:
        last = name == tiling.reduce[-1]
        size = extents_of(nest.axes)[name].constant
        group = tiling.group if last and is_grouped(nest, name, tiling.group) else 1
        # LLVM adds up the products of a body before their sum, and each takes a register
        steps = min(machine.unrolled, 2) if adds_after(nest, machine) else machine.unrolled
        unroll = _unroll(size, tiling.is_window, last, steps)
        levels.append(Level("loop", name, group, unroll, group=group > 1))
    return levels


def _complete(
    kernel: KernelOp, levels: Sequence[Level], options: tuple[tuple[str, int | str], ...] = ()
) -> Schedule:
    """The levels, and a loop over each axis that they do not name."""
    placed = {x.axis for x in levels}
    others = (Level("loop", a) for a in kernel.axes if a not in placed)
    return Schedule((*levels, *others), options)


def _chunk(size: int | None, tile: int) -> int | None:
    """Rows of one program, if a long axis is split among several; even parts, if possible."""
    if size is None or size <= CHUNK_ROWS:
        return None
    steps, most = size // tile if size % tile == 0 else 0, max(1, CHUNK_ROWS // tile)
    for count in range(most, 0, -1):
        if steps and steps % count == 0 and count * tile >= CHUNK_ROWS // 4:
            return count * tile
    return most * tile if size > 2 * CHUNK_ROWS else None


def _unroll(size: int | None, whole: bool, innermost: bool, steps: int) -> int:
    """By how much to unroll a reduce axis: fully for a window, else partly for the innermost."""
    if not (whole or innermost):
        return 1
    return steps if size is None or (size > steps and not whole) else max(1, size)


# ---------------------------------------------------------------------- everything else
def _reduction(kernel: KernelOp, machine: Machine, lanes: Symbol | None = None) -> Schedule:
    """Rows in parallel, a few per program. In lanes is the given axis, or else the contiguous one
    that is not scanned. Where an input lies along another axis, a step reads a square of both."""
    given, scanned = lanes, {a.name for n in kernel.nests if n.is_scan for a in n.reduce_axes}
    lanes = lanes or next((a for a in contiguous_axes(kernel) if a not in scanned), None)
    reduce = {a.name for n in kernel.nests for a in n.reduce_axes}
    rows = common_rows(kernel)
    extents = kernel.axes
    turned = None if scanned or given else _turned(kernel, lanes, [
        a for a in extents if a in rows or a == lanes or _sums_whole_tiles(kernel, a, lanes)],
        machine)
    width = machine.lanes if turned else lane_tile(extents[lanes], machine) if lanes else 1
    taps = dict[Symbol, int]() if scanned or turned or lanes not in rows else _taps(kernel, rows)
    if taps and lanes and (extents[lanes].constant or 0) <= TAP_VECTORS * machine.lanes:
        width = extents[lanes].constant or width
    levels = [Level("grid", a) for a in rows if a != lanes]
    inner = [a for a in extents if a not in rows and a != lanes]
    if lanes in rows and not turned and not taps:
        width = column_tile(kernel, lanes, inner, machine)
    if turned in rows:
        levels = [x for x in levels if x.axis != turned]
        levels.append(Level("grid", turned, machine.lanes))
    elif levels and lanes and lanes not in rows:
        levels[-1] = replace(levels[-1], tile=_row_tile(kernel, levels[-1].axis, lanes, machine))
    if levels and scanned and not lanes:
        count = extents[levels[-1].axis].constant or SCANNED_ROWS
        levels[-1] = replace(levels[-1], tile=min(count, SCANNED_ROWS))
    if lanes in rows:
        levels.append(Level("grid", lanes, width, lanes=True))
    walked = {a.name for n in kernel.nests if n.is_scan for a in n.axes}
    inner.sort(key=lambda a: (a not in walked, a in reduce))  # what reads a scan is inside it
    levels += [Level("loop", a, machine.lanes if a == turned else 1, taps.get(a, 1))
               for a in inner]
    if lanes and lanes not in rows:
        levels.append(Level("loop", lanes, width, lanes=True))
    return Schedule(tuple(levels), (*_keep(kernel, levels, machine), *_stream(kernel, machine)))


def _taps(kernel: KernelOp, rows: Collection[Symbol]) -> Mapping[Symbol, int]:
    """How many steps of each axis that is walked in a program are written out: all, if they are
    few, else none."""
    walked = {a: size.constant for a, size in kernel.axes.items() if a not in rows}
    count = product(kernel.axes[a] for a in walked).constant
    return {a: size for a, size in walked.items() if size} if 1 < (count or 0) <= TAPS else {}


def _sort(kernel: KernelOp) -> Schedule:
    """Rows in parallel, each whole."""
    rows = common_rows(kernel)
    whole = [Level("whole", a, size.constant or 1) for a, size in kernel.axes.items()
             if a not in rows]
    return Schedule((*(Level("grid", a) for a in rows), *whole))


def _sums_whole_tiles(kernel: KernelOp, axis: Symbol, lanes: Symbol | None) -> bool:
    """Whether all reductions that walk an axis sum over it, and over no lanes: totals then have no
    dim of its tiles."""
    summed = [{a.name for a in n.reduce_axes} for n in kernel.nests
              if n.reduce_axes and any(a.name == axis for a in n.axes)]
    return all(axis in names and lanes not in names for names in summed)


def _row_tile(kernel: KernelOp, row: Symbol, lanes: Symbol, machine: Machine) -> int:
    """Rows that a program reduces at once, to overlap the latency at the end of each reduction.

    Short rows allow more. The number is a power of two that divides the rows and leaves enough
    programs. Rows that read the same elements are always reduced together.
    """
    count, length = kernel.axes[row].constant, kernel.axes[lanes].constant
    vectors = -(-lane_tile(kernel.axes[lanes], machine) // machine.lanes)
    if count and _read_the_same(kernel, row, lanes):
        return gcd(count, max(1, machine.vector_registers // 2 // vectors))
    if count is None or length is None:
        return 1
    is_short = length <= SHORT_ROW * machine.lanes
    budget = machine.vector_registers // (2 if is_short else 4) // vectors
    if _stream(kernel, machine) and (length > LONG_ROW * machine.lanes or length % machine.lanes):
        budget = min(budget, machine.far_rows)
    tile = 1
    while 2 * tile <= budget and count % (2 * tile) == 0 and count >= 2 * tile * LEAST_PROGRAMS:
        tile *= 2
    return tile


def _read_the_same(kernel: KernelOp, row: Symbol, lanes: Symbol) -> bool:
    """Whether nothing that lies along the lanes depends on the row."""
    walked = [m for n in kernel.nests if n.reduce_axes for m in n.input_maps
              if any(lanes in e.symbols for e in m)]
    return bool(walked) and not any(row in e.symbols for m in walked for e in m)


def _keep(
    kernel: KernelOp, levels: Sequence[Level], machine: Machine
) -> tuple[tuple[str, int | str], ...]:
    """Keep costly values of a program if they fit in the L2 cache."""
    tiles = {x.axis: Expr.of(x.tile) for x in levels if x.kind == "grid"}
    part = product(tiles.get(a, extent) for a, extent in kernel.axes.items()).constant
    kept = repeated_values(kernel, KEPT_WORK)
    if not kept or (part or 0) * 4 * len(kept) > machine.caches[1] // 2:
        return ()
    return (("keep", KEPT_WORK),)


def _stream(kernel: KernelOp, machine: Machine) -> tuple[tuple[str, int | str], ...]:
    """Store large results past the caches (non-temporal stores), since they would not stay there.
    """
    types = [v.type for v in kernel.yielded]
    sizes = [product(t.shape).constant or 0 for t in types if isinstance(t, TensorType)]
    widths = [byte_width(t.element) for t in types if isinstance(t, TensorType)]
    total, least = sum(map(mul, sizes, widths)), machine.streamed_bytes
    return (("stream", 1),) if least is not None and total >= least else ()


def _scatter(kernel: KernelOp, machine: Machine) -> Schedule:
    """Updates in sequence; within an update, kept axes in parallel, with the contiguous one in
    lanes."""
    extents, rows = kernel.axes, common_rows(kernel)
    lanes = next((a for a in contiguous_axes(kernel) if a in rows), None)
    levels = [Level("grid", a) for a in rows if a != lanes]
    if lanes is not None:
        size = extents[lanes].constant
        if size is None or size > 2 * SCATTER_ELEMENTS:
            levels.append(Level("grid", lanes, SCATTER_ELEMENTS))
    levels += [Level("loop", a) for a in extents if a not in rows]
    if lanes is not None:
        levels.append(Level("loop", lanes, lane_tile(extents[lanes], machine), lanes=True))
    return Schedule(tuple(levels))


def _elementwise(kernel: KernelOp, machine: Machine) -> Schedule:
    if (grouped := grouped_copy(kernel, machine)) is not None:
        return grouped
    lanes = _lanes(kernel)
    rows = common_rows(kernel)
    extents = kernel.axes
    copies = all(map(is_copy, kernel.nests))  # which have registers for squares that are not full
    turned = _turned(kernel, lanes, rows, machine, machine.lanes // 2 + 1 if copies else None)
    if lanes and turned and _is_ragged(extents[lanes], extents[turned], machine):
        lanes, turned = turned, lanes
    square = _square_rows(extents[turned], machine) if turned else 1
    levels = [Level("grid", a, square if a == turned else 1) for a in rows if a != lanes]
    if lanes is not None and turned is None:
        levels = _several_rows(kernel, levels, lanes, machine)
    levels += [Level("loop", a) for a in extents if a != lanes and a not in rows]
    if lanes is None:
        return Schedule(tuple(levels))
    width = machine.lanes if turned else lane_tile(extents[lanes], machine)
    size = extents[lanes].constant
    if lanes in rows and (size is None or size > 2 * CHUNK_ELEMENTS):
        levels.append(Level("grid", lanes, CHUNK_ELEMENTS))
    levels.append(Level("loop", lanes, width, lanes=True))
    return Schedule(tuple(levels), _stream(kernel, machine))


def _several_rows(
    kernel: KernelOp, levels: list[Level], lanes: Symbol, machine: Machine
) -> list[Level]:
    """Programs that each write several short rows which follow each other in memory. To find its
    place takes a program, by divisions, as long as many vectors of a row."""
    length, row = kernel.axes[lanes].constant, levels[-1].axis if len(levels) > 1 else None
    count = None if row is None else kernel.axes[row].constant
    if not length or length > LONG_ROW * machine.lanes or row is None or not count:
        return levels
    stored = [m for n in kernel.nests for v, m in zip(n.results, n.output_maps, strict=True)
              if v in kernel.yielded]
    if any([e.as_symbol for e in m[-2:]] != [row, lanes] for m in stored):
        return levels
    others = product(kernel.axes[x.axis] for x in levels[:-1]).constant
    tile = even(count, CHUNK_ELEMENTS // length)
    while tile > 1 and others is not None and others * -(-count // tile) < LEAST_PROGRAMS:
        tile = even(count, tile // 2)
    if tile == count:
        return [*levels[:-1], Level("loop", row)]
    return [*levels[:-1], Level("grid", row, tile), *([Level("loop", row)] if tile > 1 else [])]


def _lanes(kernel: KernelOp) -> Symbol | None:
    """The axis that is contiguous in most references. Where elements are gathered, it is that of
    the results, if it is long: the places that are gathered are read once for many elements."""
    along = contiguous_axes(kernel)
    if any(gathered_inputs(m) for nest in kernel.nests for m in nest.input_maps):
        stored = {a for nest in kernel.nests if not {*kernel.yielded}.isdisjoint(nest.results)
                  for m in nest.output_maps for a in running_axis(m, nest.axes)}
        long = [a for a in along if a in stored and (kernel.axes[a].constant or LONG) >= LONG]
        along = long or along
    return next(iter(along), None)


def _square_rows(extent: Expr, machine: Machine) -> int:
    """How much of an axis that is read in squares a step reads: a vector, or all of a short axis,
    such as the taps of a filter, of which a second step would read but one, or a first one most."""
    size = extent.constant
    if size is None or size > 2 * machine.lanes:
        return machine.lanes
    rest = size % machine.lanes
    return size if rest == 1 or 2 * rest > machine.lanes else machine.lanes


def _is_ragged(extent: Expr, other: Expr, machine: Machine) -> bool:
    """Whether the lanes of squares are better along the other axis, since this one is about as long
    as a vector."""
    size, most = extent.constant, 2 * machine.lanes
    return size is not None and size < most <= (other.constant or 0) and size % machine.lanes > 0


def _turned(
    kernel: KernelOp, lanes: Symbol | None, axes: Sequence[Symbol], machine: Machine,
    least: int | None = None,
) -> Symbol | None:
    """One of some axes that is contiguous in an input but strided along the lanes, which are one of
    them, too, as in a transpose.

    A square of both axes is loaded along memory and transposed in registers. `least`: the fewest
    elements that the axis has; None: those of a vector.
    """
    extents = kernel.axes
    long = [a for a in axes if (extents[a].constant or 0) >= (least or machine.lanes)]
    if lanes not in long:
        return None
    for nest in kernel.nests:
        for map_ in nest.input_maps:
            crossed = any(lanes in e.symbols for e in map_[:-1])
            along = [a for a in running_axis(map_, nest.axes) if a != lanes and a in long]
            if crossed and along and lanes not in map_[-1].symbols:
                return along[0]
    return None
