"""Schedule rules of the CUDA target for depthwise convolutions: strips of rows.

    nest (n, i, j, c, reduce p, q) ins(%x[n, i + p, j + q, c], %w[c, p, q]) outs(add ...)
    ->  nest (n, i, e, reduce p, q) ins(%x[n, i + p, e floordiv C + q, e mod C], %w'[p, q, e mod C])

The windows of neighbouring rows overlap. A program therefore computes several rows, and reads each
row of the data once for every column of the window. Columns and channels are one axis, whichever
run along memory: with channels last, tiles allow aligned vector loads for any number of channels;
with columns last, tiles are full even where rows are short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Level, Schedule
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.contract import Border
from passes.rewrites.loop.axis_fusion import can_fuse, fuse_axes
from targets.cuda.machine import WARP, machine_of
from targets.cuda.scheduling.roles import symbols_of
from targets.cuda.scheduling.tiles import finish
from targets.options import TargetOptions

ROWS, READ = 7, 13
"""The most rows of a strip, and of the data read for it; more would need too many registers."""
WRITTEN_OUT = 5
"""The widest window whose columns are unrolled; with more, registers spill."""
TILES = (512, 256, 128)
"""Columns times channels of a program, four per thread; smaller to get more programs."""
EACH = 4


@dataclass(frozen=True)
class Strips:
    """The axes of such a nest: rows, and the summed axis that moves windows along them; columns,
    and channels. `data`: the position of the data among the inputs. `last`: columns or channels,
    whichever are contiguous in the data."""

    data: int
    rows: Symbol
    taps: Symbol
    columns: Symbol
    channels: Symbol
    last: Symbol


# ---------------------------------------------------------------------- which kernels
def strips_of(nest: NestOp) -> Strips | None:
    """The axes of a depthwise convolution, whether columns and channels are fused or not."""
    parallel, summed = ({a.name for a in axes} for axes in (nest.parallel_axes, nest.reduce_axes))
    data = [k for k, m in enumerate(nest.input_maps) if parallel <= symbols_of(m)]
    if len(nest.inputs) != 2 or len(data) != 1 or nest.combiner_names != ["add"] or nest.is_scan:
        return None
    map_, filtered = nest.input_maps[data[0]], symbols_of(nest.input_maps[1 - data[0]])
    windows = [e for e in map_ if e.symbols & parallel and e.symbols & summed]
    if len(windows) != 2 or len(filtered & parallel) != 1 or not filtered <= parallel | summed or (
            any(len(w.symbols & parallel) != 1 or len(w.symbols & summed) != 1 for w in windows)):
        return None
    (rows,), (columns,) = (w.symbols & parallel for w in windows)
    (taps,), (across,) = (w.symbols & summed for w in windows)
    [channels], last = filtered & parallel, {*map_[-1].symbols} & parallel
    if last not in ({columns}, {channels}) or rows in (columns, channels) or taps == across:
        return None
    return Strips(data[0], rows, taps, columns, channels, min(last))


def strips_nest(kernel: KernelOp) -> NestOp | None:
    """The nest of a kernel that is computed in strips, with axes already fused. It determines the
    rest of the kernel's schedule."""
    nest = _sum_of(kernel)
    found = strips_of(nest) if nest is not None else None
    return nest if found is not None and found.columns == found.channels else None


def _sum_of(kernel: KernelOp) -> NestOp | None:
    """The only sum of a kernel of static sizes whose other nests iterate over its results."""
    summing = [n for n in kernel.nests if n.is_reduction]
    if len(summing) != 1 or len(kernel.nests) < len(list(kernel.body.block.ops)) - 1:
        return None
    [nest], parallel = summing, {a.name for a in summing[0].parallel_axes}
    alike = all({a.name for a in n.axes} == parallel for n in kernel.nests if n is not nest)
    whole = all(not n.into and len(n.results) == 1 for n in kernel.nests)
    known = all(e.constant is not None for e in kernel.axes.values())
    return nest if alike and whole and known else None


def _ends_in(kernel: KernelOp, axis: Symbol) -> bool:
    """Whether an axis is the last dim of everything that a kernel stores."""
    return all(isinstance(v.owner, NestOp) and v.owner.stored_at(v)[-1].as_symbol == axis
               for v in kernel.yielded)


# ---------------------------------------------------------------------- axes and memory
def prepare_strips(kernel: KernelOp) -> bool:
    """Fuse columns and channels. Returns whether the kernel is computed in strips."""
    nest = _sum_of(kernel)
    found = strips_of(nest) if nest is not None else None
    if nest is None or found is None or found.columns == found.channels:
        return found is not None
    names = sorted((found.columns, found.channels), key=lambda a: a == found.last)
    if not _ends_in(kernel, found.last) or not can_fuse(kernel, names):
        return False
    fuse_axes(kernel, names)
    return True


def strip_panels(nest: NestOp) -> Mapping[int, Border | None]:
    """The filter's packing makes channels contiguous where they are in the data, which keeps its
    layout."""
    found = strips_of(nest)
    assert found is not None
    if not _channels_run(nest, found):
        return {found.data: None, 1 - found.data: None}
    map_ = nest.input_maps[1 - found.data]
    channel = [d for d, e in enumerate(map_) if found.channels in e.symbols]
    others = [d for d in range(len(map_)) if d not in channel]
    packed = channel == [len(map_) - 1]
    return {found.data: None, 1 - found.data: None if packed else Border((*others, *channel))}


def _channels_run(nest: NestOp, found: Strips) -> bool:
    """Whether channels, rather than columns, are contiguous in the data."""
    return not nest.input_maps[found.data][-1].symbols & {a.name for a in nest.reduce_axes}


# ---------------------------------------------------------------------- schedules
def schedule_strips(kernel: KernelOp, nest: NestOp, options: TargetOptions) -> Schedule:
    """The highest strips, of the widest tiles, that still give enough programs."""
    found = strips_of(nest)
    assert found is not None
    machine = machine_of(options.features)
    wanted = machine.fitted.strip_programs * machine.multiprocessors
    shapes = [(rows, tile) for tile in TILES for rows in _rows(nest, found)]
    rows, tile = next((s for s in shapes if _programs(nest, found, *s) >= wanted), shapes[-1])
    others = [a.name for a in nest.parallel_axes if a.name not in (found.rows, found.columns)]
    taps = {a.name: _length(a.extent) for a in nest.reduce_axes}
    across = [(a, n) for a, n in taps.items() if a != found.taps]
    levels = [*(Level("grid", a) for a in others), Level("grid", found.rows, rows, rows),
              Level("grid", found.columns, tile),
              *(Level("loop", a, 1, n if n <= WRITTEN_OUT else 1) for a, n in across),
              Level("loop", found.taps, 1, taps[found.taps])]
    return finish(kernel, levels, tails="mask", warps=tile // (EACH * WARP))


def _rows(nest: NestOp, found: Strips) -> Sequence[int]:
    """How many rows strips may have, the most first."""
    [window] = [e for e in nest.input_maps[found.data] if found.taps in e.symbols]
    extents = {a.name: _length(a.extent) for a in nest.axes}

    def read(rows: int) -> int:
        ends = [window.evaluate({found.rows: r, found.taps: t})
                for r in (0, rows - 1) for t in (0, extents[found.taps] - 1)]
        return int(max(ends) - min(ends)) + 1

    return [n for n in range(ROWS, 0, -1)
            if extents[found.rows] % n == 0 and (n == 1 or read(n) <= READ)]


def _length(extent: Expr) -> int:
    assert extent.constant is not None
    return extent.constant


def _programs(nest: NestOp, found: Strips, rows: int, tile: int) -> int:
    tiles = {found.rows: rows, found.columns: tile}
    return prod(-(-_length(a.extent) // tiles.get(a.name, 1)) for a in nest.parallel_axes)
