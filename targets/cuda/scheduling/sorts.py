"""Schedule rules of the CUDA target for kernels that sort rows.

A row of keys is one tile, and short rows share a tile. Each stage of a sort compares the elements
of a thread, of a warp, or of all warps. The first kind costs least, so a thread holds several: many
where other programs fill the machine, few where a program is to end soon.
"""

from __future__ import annotations

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Level, Schedule
from dialects.symbolic.size_products import product
from passes.analyses.loop.runs import common_rows
from targets.cuda.machine import WARP, machine_of
from targets.cuda.scheduling.memory_bound import height_of
from targets.cuda.scheduling.tiles import finish, floor_power, power
from targets.options import TargetOptions

HELD, MOST_WARPS = 8, 4
"""The elements of each thread, and the most warps of a program, where there are few programs."""
MOST_HELD = 32
"""The elements of each thread where there are many. Stages among more warps go through shared
memory. Where it was measured, 4 million keys take 47 us in tiles of 1,024 with 1 warp, 71 with 2
and 81 with 4; 87, 139 and 142 us in those of 2,048 with 2, 4 and 8; 154, 247 and 219 us in those of
4,096 with 4, 8 and 16. To merge four runs takes 80 us."""
FULL = 16
"""So many warps keep a multiprocessor busy."""

LEAST = 512
"""The elements of a program, if there are enough short rows."""


def sorted_bytes() -> int:
    """The bytes of the longest row of 32-bit keys that a program sorts."""
    return 4 * HELD * WARP * MOST_WARPS


def sorting_nest(kernel: KernelOp) -> NestOp | None:
    """The nest of a kernel that sorts; None if there is none."""
    return next((n for n in kernel.nests if n.combiner_names == ["sort"]), None)


def schedule_sort(kernel: KernelOp, nest: NestOp, options: TargetOptions) -> Schedule:
    """Rows in parallel, each in a tile."""
    [sorted_] = nest.reduce_axes
    width = 1 << max(0, (sorted_.extent.constant or 1) - 1).bit_length()
    rows = [a for a in common_rows(kernel) if a != sorted_.name]
    height = height_of(kernel, rows, width, (LEAST, 1), options)
    levels = [Level("grid", a) for a in rows[:-1]]
    levels += [Level("grid", a, power(kernel.axes[a], height)) for a in rows[-1:]]
    levels += [Level("loop", a) for a in kernel.axes if a not in rows and a != sorted_.name]
    levels.append(Level("whole", sorted_.name, width))
    programs = product(
        kernel.axes[x.axis].ceildiv(x.tile) for x in levels if x.kind == "grid").constant
    elements = width * floor_power(height)
    warps = max(1, min(MOST_WARPS, elements // (HELD * WARP)))
    full = FULL * machine_of(options.features).multiprocessors
    while programs is not None and elements < MOST_HELD * WARP * warps and (
            programs * warps >= 2 * full):
        warps //= 2
    return finish(kernel, levels, tails="mask", warps=warps)
