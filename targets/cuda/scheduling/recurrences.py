"""Schedules of recurrences: each thread carries the state of one element, or of a few.

    grid i0 (rows) tile 8, loop i1 tile 32 (states), loop i2 (points)

A program walks several rows if a row has few states, so that its warps have work.
"""

from __future__ import annotations

from dialects.loop import KernelOp
from dialects.strata.schedule import Level, Schedule
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.runs import common_rows
from targets.cuda.machine import WARP
from targets.cuda.scheduling.tiles import finish, power

WARPS = 4
ELEMENTS = 1024
"""The most elements of a tile, if reductions have several results for each last state."""


def schedule_recurrence(kernel: KernelOp) -> Schedule:
    """The schedule of a kernel with a recurrence, and of reductions over its last states."""
    extents, rows = kernel.axes, common_rows(kernel)
    nest = next(n for n in kernel.nests if n.is_recurrence)
    states = [a.name for a in nest.parallel_axes if a.name not in rows]
    points = [a.name for n in kernel.nests if n.is_recurrence for a in n.reduce_axes]
    others = [a for a in extents if a not in (*rows, *states, *points)]
    levels, results = list[Level](), 1
    for axis in others:
        levels.append(Level("whole", axis, power(extents[axis], ELEMENTS)))
        results *= levels[-1].tile
    tiles = _tiles(kernel, [*rows, *states], min(WARPS * WARP, ELEMENTS // results))
    return finish(kernel, [
        *(Level("grid", a, tiles[a]) for a in rows), *levels,
        *(Level("loop", a, tiles[a]) for a in states),
        *(Level("loop", a) for a in points)], tails="mask", warps=WARPS)


def _tiles(kernel: KernelOp, axes: list[Symbol], most: int) -> dict[Symbol, int]:
    """Tiles of at most `most` elements together; those of inner axes are chosen first."""
    tiles = dict[Symbol, int]()
    for axis in reversed(axes):
        tiles[axis] = power(kernel.axes[axis], max(most, 1))
        most //= tiles[axis]
    return tiles
