"""Schedule rules of the CUDA target for kernels that memory bounds: reductions, elementwise."""

from __future__ import annotations

from collections.abc import Sequence

from dialects.expr import product
from dialects.loop import KernelOp, NestOp
from dialects.schedule import Level, Schedule
from passes.loop.runs import common_rows, contiguous_axes, memory_order
from targets.base import TargetOptions
from targets.cuda.machine import machine_of
from targets.cuda.tiles import finish, floor_power, power

ELEMENTS = 1024
"""Elements of one program of an elementwise kernel."""
MAX_WHOLE = 8192
"""The longest axis that one program holds whole."""
HELD, LEAST_HELD = 32, 4
"""Elements of held rows in each thread, where there are many rows: enough words on their way, and
no registers spill. And what a thread has at least, where rows are short."""
MAX_HEIGHT, OPEN_HEIGHT = 16, 4
"""The most rows that one program computes, but very short ones, and how many where their number is
not known."""
PROGRAMS = 8
"""Programs per multiprocessor that short rows are to be divided into."""
WARP = 32
STEP = 1024
"""Elements of a longer axis that one trip of a reduction takes."""


def walked_alike(kernel: KernelOp) -> list[list[str]]:
    """The axes beside the rows that every nest sums over, walks in parallel, or lacks, together.

    In the order in which they run through the memory of a reduction's input.
    """
    rows = set(common_rows(kernel))
    alike: dict[tuple[bool | None, ...], list[str]] = {}
    for name in kernel.axes:
        kinds = tuple(next((a.reduce for a in n.axes if a.name == name), None)
                      for n in kernel.nests)
        if name not in rows:
            alike.setdefault(kinds, []).append(name)
    return [memory_order(next(n for n, kind in zip(kernel.nests, kinds, strict=True) if kind),
                         names)
            for kinds, names in alike.items() if len(names) > 1 and True in kinds]


def reduction(kernel: KernelOp, options: TargetOptions) -> Schedule:
    """Rows in parallel. An axis along memory is held whole, or walked in long steps."""
    extents = kernel.axes
    rows = common_rows(kernel)
    inner = [a for a in extents if a not in rows]
    along = contiguous_axes(kernel)
    if rows and not _sums_along_memory(kernel, inner) and (not along or along[0] in rows):
        return _strided_reduction(kernel, rows, inner, along)
    placed = _inner_levels(kernel, inner)
    tiles = [x for x in placed if x.tile > 1]
    width = max((x.tile for x in tiles), default=1)
    whole = all(x.kind == "whole" for x in tiles)
    height = _height(kernel, rows, width, options) if whole else 1
    warps = max(4, min(16, width * height // (HELD * WARP))) if whole else 8
    levels = [Level("grid", a) for a in rows[:-1]]
    levels += [Level("grid", a, power(extents[a], height)) for a in rows[-1:]]
    return finish(kernel, [*levels, *placed], tails="mask", warps=warps)


def _height(
    kernel: KernelOp, rows: Sequence[str], width: int, options: TargetOptions
) -> int:
    """How many short rows a program of 4 warps computes: as many as leave every multiprocessor
    programs enough."""
    count = product(kernel.axes[a] for a in rows).constant
    most, least = (4 * WARP * elements // width for elements in (HELD, LEAST_HELD))
    if count is None:
        return floor_power(min(OPEN_HEIGHT, most))
    wanted = count // (PROGRAMS * machine_of(options.features).multiprocessors)
    return floor_power(min(max(min(wanted, MAX_HEIGHT), least), most))


def _sums_along_memory(kernel: KernelOp, inner: Sequence[str]) -> bool:
    """Whether a reduction's input ends in a dim that summed axes, fused by division, walk alone."""
    ends = [m[-1].symbols for n in kernel.nests if n.is_reduction for m in n.input_maps if m]
    return any(symbols and symbols <= {*inner} for symbols in ends)


def _inner_levels(kernel: KernelOp, inner: Sequence[str]) -> list[Level]:
    """Of the axes that a nest has beside rows, the last has a tile: whole, or long steps."""
    levels: dict[str, Level] = {}
    for name in reversed(inner):
        others = {a.name for n in kernel.nests for a in n.axes if _has(n, name)}
        size = kernel.axes[name].constant
        if any(x.axis in others and x.tile > 1 for x in levels.values()):
            levels[name] = Level("loop", name)
        elif size is not None and size <= MAX_WHOLE:
            levels[name] = Level("whole", name, power(kernel.axes[name], MAX_WHOLE))
        else:
            levels[name] = Level("loop", name, STEP)
    return [levels[name] for name in inner]


def _has(nest: NestOp, name: str) -> bool:
    return any(a.name == name for a in nest.axes)


def _strided_reduction(
    kernel: KernelOp, rows: Sequence[str], inner: Sequence[str], along: Sequence[str]
) -> Schedule:
    """Sums across memory: neighbouring rows side by side, the summed axis in short steps."""
    extents = kernel.axes
    column = along[0] if along else rows[-1]
    levels = [Level("grid", a) for a in rows if a != column]
    levels.append(Level("grid", column, power(extents[column], 64)))
    levels += [Level("loop", a) for a in inner[:-1]]
    levels += [Level("loop", a, power(extents[a], 16)) for a in inner[-1:]]
    return finish(kernel, levels, tails="mask", warps=4)


def elementwise(kernel: KernelOp) -> Schedule:
    """Tiles along memory; of two directions, when inputs and results run along different axes.

    A scatter's other axes are loops inside.
    """
    extents = kernel.axes
    rows = common_rows(kernel)
    along = [a for a in contiguous_axes(kernel) if a in rows][:2] or rows[-1:]
    tiles: dict[str, int] = {}
    if len(along) == 2:
        tiles = {a: power(extents[a], 32) for a in along}
    elif along:
        tiles = {along[0]: power(extents[along[0]], ELEMENTS)}
    for name in reversed(rows):
        room = ELEMENTS
        for size in tiles.values():
            room //= size
        if room > 1 and name not in tiles:
            tiles[name] = power(extents[name], room)
    levels = [Level("grid", a, tiles.get(a, 1)) for a in rows]
    return finish(kernel, levels, tails="mask", warps=4)
