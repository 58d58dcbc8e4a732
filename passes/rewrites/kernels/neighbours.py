"""Online sums of many running maxima: an axis in groups of neighbours, with a maximum for each.

    m, l over i1: 32000                    m and l are reduced to one number in each step
    ->  m, l over i1: 4000, i1_n: 8        x at 8*i1 + i1_n; only i1_n is reduced in each step

A thread that has all neighbours of a group waits for no other in a step. One exponential more in
each group rescales its sum; after the loop, those of the maxima of groups bring all sums to that of
the row. A schedule gives the size of groups (`neighbours`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dialects.loop import Axis, KernelOp
from dialects.strata.schedule import Level, Schedule
from dialects.strata.schedule_options import NEIGHBOURS
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.online import running_maximum
from passes.rewrites.loop.nests import substitute_axes


def grouped_axis(kernel: KernelOp, schedule: Schedule, size: int) -> Symbol | None:
    """The axis that loops walk in groups of `size` neighbours: the only one of all sums that follow
    a maximum. None if there is none, or groups do not divide it, a step of it, or what scans it."""
    sums = [n for n in kernel.nests if running_maximum(n) is not None]
    summed = {a.name: a.extent for n in sums for a in n.reduce_axes}
    if len(summed) != 1:
        return None
    [(axis, extent)] = summed.items()
    levels = [x for x in schedule.levels if x.axis == axis]
    whole = len(levels) == 1 and levels[0].kind == "loop" and levels[0].tile % size == 0 and (
        levels[0].tile > size and not (extent % size).terms)
    plain = not any(n.is_scan or n.is_scatter or n.is_recurrence for n in kernel.nests
                    if axis in {a.name for a in n.reduce_axes})
    return axis if whole and plain else None


def in_groups(kernel: KernelOp, schedule: Schedule) -> tuple[KernelOp, Schedule, Symbol | None]:
    """The kernel and its schedule, with the axis of its online sums in two, if the schedule asks
    for that; and the axis of groups."""
    size = schedule.option(NEIGHBOURS)
    axis = grouped_axis(kernel, schedule, size) if size > 1 else None
    if axis is None:
        return kernel, schedule, None
    kernel, inner = kernel.clone(), Symbol.axis(f"{axis.name}_n")
    place = Expr.symbol(axis) * size + Expr.symbol(inner)
    for nest in kernel.nests:
        if axis not in {a.name for a in nest.axes}:
            continue
        axes = [part for a in nest.axes for part in (
            [Axis(axis, a.extent // size, a.reduce), Axis(inner, Expr.of(size), a.reduce)]
            if a.name == axis else [a])]
        new = substitute_axes(nest, axes, {axis: place})
        kernel.body.block.insert_op_before(new, nest)
        for old, result in zip(nest.results, new.results, strict=True):
            old.replace_all_uses_with(result)
        kernel.body.block.erase_op(nest)
    return kernel, replace(schedule, levels=tuple(_levels(schedule, axis, inner, size))), axis


def _levels(schedule: Schedule, axis: Symbol, inner: Symbol, size: int) -> Iterator[Level]:
    for level in schedule.levels:
        if level.axis != axis:
            yield level
            continue
        yield replace(level, tile=level.tile // size)
        yield Level("whole", inner, size)
