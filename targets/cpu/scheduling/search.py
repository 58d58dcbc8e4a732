"""Schedules that the tuner tries on the CPU: other register tiles, and variations of the best.

They belong to the space from which the rules choose. `candidates` is called again around the best
schedule found so far, so that single variations add up. All of them are legal; their cost is a
guess that only ranks them. Axes, levels and groups stay as the rules chose them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Level, Schedule
from dialects.strata.schedule_options import FlagOption, Value
from dialects.strata.types import TensorType, byte_width
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.private import private_values
from passes.analyses.loop.runs import common_rows
from targets.cpu.facts import CandidateCosts
from targets.cpu.machine import Machine
from targets.cpu.scheduling.options import PACK
from targets.cpu.scheduling.rows import even
from targets.cpu.scheduling.tilings import is_row

VERSION = 1
"""Version of the meaning and the set of schedules; winners of other versions are ignored."""
MOST_VECTORS = 6
"""The most vectors of a register tile along its lanes."""
MOST_UNROLLED = 16
"""The most steps of a sum that are unrolled."""
MOST_ROWS = 8
"""The most rows of a tile whose results are not accumulated in registers."""
FIRST_TILES = 12
"""How many register tiles come before anything else."""
PROGRAMS = 16
"""The fewest programs left for threads, unless the rules had fewer."""
CHUNKS = (32, 64, 128, 256, 512)
"""Numbers of rows of one program."""
OPEN_SIZE = 240
"""The assumed value of a size known only at run time."""


def candidates(kernel: KernelOp, around: Schedule, machine: Machine) -> Sequence[Schedule]:
    """Schedules other than `around`, each once, most promising first."""
    if any(x.matrix for x in around.levels):  # matrix registers leave no choice of tiles
        return [s for s in dict.fromkeys(_swapped(kernel, around)) if s != around]
    nest = None if private_values(kernel) else _contraction(kernel)
    tiles = [] if nest is None else list(_register_tiles(nest, around, machine))
    steps = _steps(kernel, nest, around, machine)
    ordered = [*tiles[:FIRST_TILES], *steps, *tiles[FIRST_TILES:]]
    least = min(_programs(kernel, around), PROGRAMS)
    return [s for s in dict.fromkeys(ordered) if s != around and _programs(kernel, s) >= least]


def _programs(kernel: KernelOp, schedule: Schedule) -> int:
    """How many programs there are; an unknown size counts as one tile."""
    tiles: dict[Symbol, int] = {}
    for level in schedule.levels:
        if level.kind == "grid":
            tiles[level.axis] = level.tile
    return prod(-(-(kernel.axes[a].constant or t) // t) for a, t in tiles.items())


def _contraction(kernel: KernelOp) -> NestOp | None:
    return next((n for n in kernel.nests if is_contraction(n)), None)


# ---------------------------------------------------------------------- register tiles
def _register_tiles(nest: NestOp, around: Schedule, machine: Machine) -> Iterator[Schedule]:
    """All widths and rows that fit the registers, ranked by a guess of their cost."""
    extents = {a.name: a.extent for a in nest.axes}
    if around.lanes not in extents or around.lanes in {a.name for a in nest.reduce_axes}:
        return
    rows = [a for a in _row_axes(nest, around) if extents[a].constant != 1][-2:]
    per_vector = _per_vector(nest, machine)
    found: list[tuple[float, Schedule]] = []
    for vectors, width in _widths(extents[around.lanes], per_vector):
        for tile in _row_tiles(rows, extents, (machine.vector_registers - vectors - 1) // vectors):
            tiles = {around.lanes: width, **tile}
            cost = _cost(tiles, vectors, extents, machine.costs.candidates)
            found.append((cost, _tiled(around, tiles)))
    yield from (s for _, s in sorted(found, key=lambda pair: pair[0]))


def _row_axes(nest: NestOp, schedule: Schedule) -> list[Symbol]:
    """Axes along which the operand in lanes is reused, in the order of their innermost levels."""
    lanes, parallel = schedule.lanes, {a.name for a in nest.parallel_axes}
    last_first = dict.fromkeys(x.axis for x in reversed(schedule.levels))
    return [a for a in reversed(last_first)
            if a in parallel and a != lanes and lanes is not None and is_row(nest, a, lanes)]


def _per_vector(nest: NestOp, machine: Machine) -> int:
    result = nest.results[0].type
    assert isinstance(result, TensorType)
    return machine.lanes if byte_width(result.element) <= 4 else machine.lanes // 2


def _widths(extent: Expr, per_vector: int) -> Iterator[tuple[int, int]]:
    """Numbers of vectors and of elements along the lanes."""
    size = extent.constant
    for vectors in range(1, MOST_VECTORS + 1):
        if size is None or vectors * per_vector < size:
            yield vectors, vectors * per_vector
        else:
            yield -(-size // per_vector), max(size, 1)
            return


def _row_tiles(
    axes: Sequence[Symbol], extents: Mapping[Symbol, Expr], budget: int
) -> Iterator[dict[Symbol, int]]:
    """Tiles of the last axes that take from half to all of the registers."""
    if not axes or budget < 1:
        yield dict.fromkeys(axes, 1)
        return
    *outer, inner = axes
    for first in (1, 2, 3, 4) if outer else (1,):
        most = budget // first
        if most < 1 or first > (extents[outer[0]].constant or first if outer else 1):
            continue
        size = extents[inner].constant
        tiles = {min(size or n, even(size, n) if size else n)
                 for n in range(max(1, most // 2), most + 1)}
        for tile in sorted(tiles, reverse=True):
            yield {**({outer[0]: first} if outer else {}), inner: tile}


def _cost(
    tiles: Mapping[Symbol, int], vectors: int, extents: Mapping[Symbol, Expr],
    costs: CandidateCosts,
) -> float:
    """Cycles per step of the sum for the whole result; a partial vector counts as a whole one."""
    (lanes, width), *others = tiles.items()
    rows = prod(tile for _, tile in others)
    loads = costs.load * (rows + vectors)
    step = max(costs.product * rows * vectors, loads, costs.latency) + costs.conflict * loads
    count = -(-(extents[lanes].constant or OPEN_SIZE) // width)
    return step * count * prod((extents[a].constant or OPEN_SIZE) / t for a, t in others)


def _tiled(schedule: Schedule, tiles: Mapping[Symbol, int]) -> Schedule:
    """The schedule with other innermost tiles of some axes; chunks stay multiples of the tiles."""
    levels = list(schedule.levels)
    for k, level in enumerate(levels):
        if level.axis in tiles:
            tile = tiles[level.axis]
            inner = _is_innermost(levels, k)
            levels[k] = replace(level, tile=tile if inner else _multiple(level.tile, tile))
    return replace(schedule, levels=tuple(levels))


def _multiple(size: int, tile: int) -> int:
    return max(1, round(size / tile)) * tile


def _is_innermost(levels: Sequence[Level], k: int) -> bool:
    return all(x.axis != levels[k].axis for x in levels[k + 1:])


# ---------------------------------------------------------------------- small variations
def _steps(
    kernel: KernelOp, nest: NestOp | None, around: Schedule, machine: Machine
) -> Iterator[Schedule]:
    """One thing changed: unrolling, chunks, order, packing, or the tile of one axis."""
    reduce = {a.name for n in kernel.nests for a in n.reduce_axes}
    yield from _unrolled(kernel, around, reduce)
    yield from _chunked(kernel, around)
    yield from _swapped(kernel, around)
    if nest is not None:
        yield replace(around, options=_with_flag(around, PACK))
    else:
        yield from _resized(kernel, around, reduce, machine)


def _with_flag(schedule: Schedule, flag: FlagOption) -> tuple[tuple[str, Value], ...]:
    """The options with a flag turned over."""
    others = tuple(pair for pair in schedule.options if pair[0] != flag.name)
    return others if schedule.option(flag) else (*others, (flag.name, 1))


def _unrolled(kernel: KernelOp, around: Schedule, reduce: set[Symbol]) -> Iterator[Schedule]:
    for k, level in enumerate(around.levels):
        if level.axis not in reduce or level.lanes or level.kind != "loop":
            continue
        size = kernel.axes[level.axis].constant
        most = MOST_UNROLLED if size is None else min(MOST_UNROLLED, -(-size // level.tile))
        for unroll in (2 * level.unroll, level.unroll // 2):
            if 1 <= unroll <= most:
                yield _with_level(around, k, replace(level, unroll=unroll))


def _chunked(kernel: KernelOp, around: Schedule) -> Iterator[Schedule]:
    """Programs with more or fewer rows: a loop's axis gets another level in the grid, or none."""
    rows = common_rows(kernel)
    for k, level in enumerate(around.levels):
        if level.axis not in rows or level.kind != "loop" or not _is_innermost(around.levels, k):
            continue
        size = kernel.axes[level.axis].constant
        bare = [x for j, x in enumerate(around.levels) if j == k or x.axis != level.axis]
        last = max((j for j, x in enumerate(bare) if x.kind == "grid"), default=-1)
        for chunk in dict.fromkeys(_multiple(c, level.tile) for c in (*CHUNKS, *_long(level))):
            if size is None or chunk < size:
                outer = Level("grid", level.axis, chunk)
                yield replace(around, levels=(*bare[:last + 1], outer, *bare[last + 1:]))
        yield replace(around, levels=tuple(bare))


def _long(level: Level) -> tuple[int, ...]:
    """Larger chunks, for an axis in lanes."""
    return tuple(CHUNKS[-1] << n for n in (1, 3, 5)) if level.lanes else ()


def _swapped(kernel: KernelOp, around: Schedule) -> Iterator[Schedule]:
    """Exchange neighbouring grid levels, and neighbouring loops of one sum."""
    levels = around.levels
    sums = [{a.name for a in n.reduce_axes} for n in kernel.nests]
    for k, (a, b) in enumerate(pairwise(levels)):
        summed = any({a.axis, b.axis} <= axes for axes in sums)
        summed &= not (a.group or b.group or a.lanes or b.lanes)
        if a.axis != b.axis and (a.kind == b.kind == "grid" or summed):
            yield replace(around, levels=(*levels[:k], b, a, *levels[k + 2:]))


def _resized(
    kernel: KernelOp, around: Schedule, reduce: set[Symbol], machine: Machine
) -> Iterator[Schedule]:
    """Twice or half the tile of an axis, where no sums are kept in registers."""
    for k, level in enumerate(around.levels):
        if not _is_innermost(around.levels, k) or (level.axis in reduce and not level.lanes):
            continue
        size = kernel.axes[level.axis].constant
        most = MOST_VECTORS * machine.lanes if level.lanes else MOST_ROWS
        for tile in (2 * level.tile, level.tile // 2):
            if 1 <= tile <= most and (size is None or tile <= size):
                yield _tiled(around, {level.axis: tile})


def _with_level(schedule: Schedule, k: int, level: Level) -> Schedule:
    return replace(schedule, levels=(*schedule.levels[:k], level, *schedule.levels[k + 1:]))

