"""The order of a schedule's loops: each nest's parallel axes go outside of its reduce axes.

    %m = loop.nest (i0, i4, reduce i1)      loop i1, loop i4   -->   loop i4, loop i1

An axis may be a parallel axis in one nest of a kernel and a reduce axis in another. A rule that
only looks at one of them may therefore place loops where the other has no accumulator yet.
"""

from __future__ import annotations

from dataclasses import replace

from dialects.loop import KernelOp
from dialects.strata.schedule import Level, Schedule
from dialects.symbolic.symbol import Symbol


def with_sums_inside(kernel: KernelOp, schedule: Schedule) -> Schedule:
    """The schedule with its loops in an order that suits all nests, as close as possible to the
    given order. It is unchanged if it already has such an order, or if there is none.
    """
    outside = _outside(kernel, schedule)
    grid = [x for x in schedule.levels if x.kind == "grid"]
    left = [x for x in schedule.levels if x.kind != "grid"]
    ordered: list[Level] = []
    while left:
        waiting = {x.axis for x in left}
        ready = next((k for k, x in enumerate(left)
                      if x.kind != "loop" or not outside.get(x.axis, set()) & waiting), None)
        if ready is None:
            return schedule
        ordered.append(left.pop(ready))
    return replace(schedule, levels=(*grid, *ordered))


def _outside(kernel: KernelOp, schedule: Schedule) -> dict[Symbol, set[Symbol]]:
    """Per reduce axis, the axes whose loops must be outside of its own."""
    found: dict[Symbol, set[Symbol]] = {}
    for nest in kernel.nests:
        if nest.is_scatter:
            continue
        summed = {a.name for a in nest.reduce_axes}
        in_matrices = schedule.matrix if summed & schedule.matrix else frozenset[Symbol]()
        for axis in summed:
            parallel = {a.name for a in nest.parallel_axes}
            found.setdefault(axis, set()).update(parallel - in_matrices)
    return found
