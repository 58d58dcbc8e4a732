"""Schedules of recurrences: several states advance together, each in scalar registers.

    grid i0 (rows), loop i1 tile 8 (states), loop i2 (points)

A step of a recurrence waits for the step before: for a descent of a tree that means two loads and a
comparison. Independent states hide this latency. A gather would be no faster, because processors
load the lanes of a gather one by one.
"""

from __future__ import annotations

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Level, Schedule
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.runs import common_rows, contiguous_axes
from targets.cpu.machine import Machine
from targets.cpu.scheduling.rows import even


def schedule_recurrence(kernel: KernelOp, machine: Machine) -> Schedule:
    """The schedule of a kernel with a recurrence, and of reductions over its last states."""
    nest = next(n for n in kernel.nests if n.is_recurrence)
    rows = _by_data(nest, common_rows(kernel))
    states = [a.name for a in nest.parallel_axes if a.name not in rows]
    points = [a.name for n in kernel.nests if n.is_recurrence for a in n.reduce_axes]
    others = [a for a in kernel.axes if a not in (*rows, *states, *points)]
    tiles = _tiles(kernel, [*rows, *states], machine)
    levels = [Level("grid", a) for a in rows[:-1]]
    if rows:
        levels += _last_rows(rows[-1], tiles[rows[-1]], machine)
    levels += _others(kernel, others)
    levels += [Level("loop", a, tiles[a]) for a in states]
    return Schedule((*levels, *(Level("loop", a) for a in points)))


def _by_data(nest: NestOp, rows: list[Symbol]) -> list[Symbol]:
    """Rows that choose where a recurrence begins come first: they share most of what is read."""
    chosen = {s for e in nest.input_maps[0] for s in e.symbols}
    return sorted(rows, key=lambda a: a not in chosen)


def _tiles(kernel: KernelOp, axes: list[Symbol], machine: Machine) -> dict[Symbol, int]:
    """How many positions of each axis advance together; those of inner axes first."""
    left, tiles = machine.costs.recurrences.states, dict[Symbol, int]()
    for axis in reversed(axes):
        size = kernel.axes[axis].constant
        tiles[axis] = left if size is None else max(even(size, left), 1)
        left //= tiles[axis]
    return tiles


def _last_rows(axis: Symbol, tile: int, machine: Machine) -> list[Level]:
    if tile == 1:
        return [Level("grid", axis)]
    return [Level("grid", axis, machine.costs.recurrences.rows), Level("loop", axis, tile)]


def _others(kernel: KernelOp, axes: list[Symbol]) -> list[Level]:
    """Axes along which a reduction of last states has several results; one of them in lanes."""
    lanes = next((a for a in contiguous_axes(kernel) if a in axes), None)
    return [Level("whole", a, kernel.axes[a].constant or 1, lanes=a == lanes) for a in axes]
