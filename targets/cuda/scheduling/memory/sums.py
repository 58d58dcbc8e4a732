"""The schedule of a kernel that adds a few partial sums, and computes an epilogue on the result.

    %s = nest (i: 16, j: 4096, reduce p: 4) ins(%x[p, i, j])    %y = nest (i, j) ins(%s[i, j]) {...}

Neighbouring lanes compute neighbouring results, and each lane holds all parts of its own results.
Lanes exchange nothing, and every load is wide.
"""

from __future__ import annotations

from math import prod

from dialects.loop import KernelOp
from dialects.strata.schedule import Level, Schedule
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.runs import common_rows, contiguous_axes
from targets.cuda.machine import WARP, machine_of
from targets.cuda.scheduling.tiles import finish, power
from targets.options import TargetOptions

MOST_PARTS = 32
"""The most parts for which this schedule is used."""
HELD = 64
"""The most elements of one step that a lane holds in registers; each step waits for memory."""
LANE = 4
"""Results per lane: one 16-byte load of f32."""
BUSY = 2
"""With fewer programs for each multiprocessor, lanes hold fewer results."""


def sum_of_parts(kernel: KernelOp, options: TargetOptions) -> Schedule | None:
    """The schedule of such a kernel; None for any other."""
    rows, extents = common_rows(kernel), kernel.axes
    summed = [a for a in extents if a not in rows]
    along = contiguous_axes(kernel)[:1]
    few = len(summed) == 1 and (extents[summed[0]].constant or MOST_PARTS + 1) <= MOST_PARTS
    if not few or not along or along[0] not in rows:
        return None
    warps = _warps(kernel, rows, along[0], options)
    tile = min(warps * WARP * LANE, power(extents[along[0]], warps * WARP * LANE))
    while tile > WARP and _programs(kernel, rows, along[0], tile) < BUSY * machine_of(
            options.features).multiprocessors and extents[along[0]].constant is not None:
        tile //= 2
    [parts] = summed
    together = power(extents[parts], min(MOST_PARTS, HELD * warps * WARP // tile))
    kind = "whole" if together == power(extents[parts], MOST_PARTS) else "loop"
    return finish(kernel, [*(Level("grid", a) for a in rows if a != along[0]),
                           Level("grid", along[0], tile), Level(kind, parts, together)],
                  tails="mask", warps=warps)


def _warps(kernel: KernelOp, rows: list[Symbol], along: Symbol, options: TargetOptions) -> int:
    """The most warps that still leave a program for every multiprocessor."""
    if kernel.axes[along].constant is None:
        return 4
    programs = machine_of(options.features).multiprocessors
    return next((w for w in (4, 2)
                 if _programs(kernel, rows, along, w * WARP * LANE) >= programs), 1)


def _programs(kernel: KernelOp, rows: list[Symbol], along: Symbol, tile: int) -> int:
    """The programs whose tiles are whole. Open sizes other than `along` count as one."""
    others = prod(kernel.axes[name].constant or 1 for name in rows if name != along)
    return others * ((kernel.axes[along].constant or 0) // tile)
