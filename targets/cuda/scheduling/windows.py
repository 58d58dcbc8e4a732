"""Schedule rules of the CUDA target for depthwise windows: each channel is reduced separately.

These are pooling, and convolutions in which every channel has a filter of its own:

    nest (n, i, j, c, reduce p, q) ins(%x[n, 2*i + p, 2*j + q, c]) outs(max ...[n, i, j, c])

Elements are reused so little that the caches suffice. Neighbouring threads compute neighbouring
channels, several each, with vector loads. A program computes neighbouring positions, whose windows
overlap. It loops over the window's positions, so that the offset of each is one number for the
whole tile.

Small windows without filters are computed as elementwise kernels are, whichever dim lies last: all
results are one axis, and the positions of the window are written out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Level, Schedule
from dialects.strata.types import TensorType, byte_width
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import upper_bound
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.runs import result_order
from passes.contract import Panel
from passes.rewrites.loop.axis_fusion import can_fuse, fuse_axes
from targets.cuda.machine import WARP, machine_of
from targets.cuda.scheduling.roles import stored_by
from targets.cuda.scheduling.tiles import finish, power
from targets.options import TargetOptions

ELEMENTS = 1024
"""Elements of one program."""
EACH, EACH_FILTERED = 8, 16
"""Elements per thread without filters, and with them, where each filter load serves more elements.
"""
CHANNELS, WORD = 64, 16
"""The most and the least channels of a tile, if there are that many."""
LONG = 32
"""Adjacent windows of this length are parts of a longer sum."""
BYTES = 16
"""The bytes that a lane loads at once."""
MOST_TAPS = 16
"""The most positions of a window that are written out."""
COLUMNS = 2
"""Neighbouring results of a lane of small windows that move along memory."""
WARPS, FEWEST = 4, 2
"""Warps of a program for small windows, and how many programs a multiprocessor gets at least."""
ENOUGH = 8
"""Tiles beyond this size are not worth positions beyond the end."""


def windowed_nest(kernel: KernelOp) -> NestOp | None:
    """The nest that reduces windows of channels, if it determines the rest of the kernel."""
    reducing = [n for n in kernel.nests if n.is_reduction]
    if len(reducing) != 1 or reducing[0].is_scan or reducing[0].is_recurrence or (
            tiled_axes(reducing[0]) is None):
        return None
    parallel = {a.name for a in reducing[0].parallel_axes}
    follow = all({a.name for a in n.axes} == parallel for n in kernel.nests if n not in reducing)
    return reducing[0] if follow else None


def tiled_axes(nest: NestOp) -> tuple[Symbol, Symbol] | None:
    """(position, channel): the parallel axis that windows move along, and the contiguous one."""
    parallel = {a.name for a in nest.parallel_axes}
    filters = [k for k, m in enumerate(nest.input_maps) if not parallel <= _symbols(m)]
    for k, map_ in enumerate(nest.input_maps):
        channel = map_[-1].as_symbol if map_ else None
        windows = [e for e in map_ if e.symbols & parallel and e.symbols - parallel]
        if any(_is_part(nest, e, only=len(windows) == 1) for e in windows):
            return None
        places = sorted(windows[-1].symbols & parallel) if windows else []
        if k not in filters and windows and channel in parallel and len(places) == 1:
            return (places[0], channel) if all(
                _filters(nest, f, channel) for f in filters) else None
    return None


def _is_part(nest: NestOp, place: Expr, only: bool) -> bool:
    """Whether the windows are long adjacent parts of an axis, as in split sums of columns.

    `only`: windows move along no other dim, so that other summed axes make the parts longer.
    """
    split = place.linear(a.name for a in nest.parallel_axes)
    if split is None or len(split[0]) != 1:
        return False
    summed = {a.name: a.extent for a in nest.reduce_axes}
    [step], last = split[0].values(), upper_bound(split[1], summed)
    adjacent = last is not None and last + 1 == step
    long = product(summed.values()) if only else step
    return adjacent and (long.constant or LONG) >= LONG


def _filters(nest: NestOp, position: int, channel: Symbol) -> bool:
    """Whether an input has one value per channel, for each position in the window or for all."""
    return _symbols(nest.input_maps[position]) <= {channel, *(a.name for a in nest.reduce_axes)}


def _symbols(map_: Sequence[Expr]) -> set[Symbol]:
    return set[Symbol]().union(*(e.symbols for e in map_))


# ---------------------------------------------------------------------- small windows
def small_windows(kernel: KernelOp) -> Sequence[NestOp]:
    """The nests that reduce small windows of the data alone, all at the same places, if they
    determine the rest of the kernel; their axes may be fused already. A maximum pool that also
    tells where its maxima lie has two."""
    reducing = [n for n in kernel.nests if n.is_reduction]
    parallel = {a.name for n in reducing[:1] for a in n.parallel_axes}
    alike = all({a.name for a in n.parallel_axes} == parallel for n in reducing) and all(
        {a.name for a in n.axes} == parallel for n in kernel.nests if n not in reducing)
    return reducing if parallel and alike and all(map(_is_small_window, reducing)) else ()


def _is_small_window(nest: NestOp) -> bool:
    parallel = {a.name for a in nest.parallel_axes}
    taps = product(a.extent for a in nest.reduce_axes).constant
    whole = len(nest.results) == 1 and not (nest.into or nest.is_scan or nest.is_recurrence)
    known = all(a.extent.constant is not None for a in nest.axes)  # so that accesses are proven
    moves = all(any(a.name in e.symbols and e.symbols & parallel for m in nest.input_maps
                    for e in m) for a in nest.reduce_axes)
    data = all(parallel <= _symbols(m) for m in nest.input_maps)
    fits = taps is not None and 1 < taps <= MOST_TAPS
    return whole and known and moves and data and fits


def prepare_small_windows(kernel: KernelOp, nests: Sequence[NestOp]) -> None:
    """Fuse the results, in the order in which they are stored, and the axes of the windows."""
    parallel = [a.name for a in nests[0].parallel_axes]
    stored = [a for a in result_order(stored_by(kernel, nests[0])) if a in parallel]
    rest = [name for name in parallel if name not in stored]
    summed = dict.fromkeys(tuple(a.name for a in n.reduce_axes) for n in nests)
    for names in ([*rest, *stored], *summed):
        if can_fuse(kernel, names):
            fuse_axes(kernel, names)


def schedule_small_windows(
    kernel: KernelOp, nests: Sequence[NestOp], options: TargetOptions
) -> Schedule:
    """Lanes load words of neighbouring channels; of columns, which windows move along, a lane
    computes a few, whose loads it issues together."""
    *others, flat = [a.name for a in nests[0].parallel_axes]
    each, count = _words(nests[0]), product(a.extent for a in nests[0].parallel_axes).constant
    least = FEWEST * machine_of(options.features).multiprocessors
    threads = WARPS * WARP
    while each > 1 and count is not None and count < least * each * threads:
        each //= 2
    summed = {a.name: a.extent.constant or 1 for n in nests for a in n.reduce_axes}
    levels = [*(Level("grid", a) for a in others), Level("grid", flat, each * threads),
              *(Level("loop", name, 1, taps) for name, taps in summed.items())]
    return finish(kernel, levels, tails="mask", warps=WARPS)


def _words(nest: NestOp) -> int:
    """How many neighbouring results of a lane read a word, or few if windows move along memory."""
    type_, summed = nest.inputs[0].type, {a.name for a in nest.reduce_axes}
    assert isinstance(type_, TensorType)
    if any(m and m[-1].symbols & summed for m in nest.input_maps):
        return COLUMNS
    size = type_.shape[-1].constant or 1
    return next(n for n in (BYTES // byte_width(type_.element), 4, 2, 1) if size % n == 0)


# ---------------------------------------------------------------------- others
def prepare_windows(kernel: KernelOp, nest: NestOp) -> None:
    """Fuse the axes of the window."""
    names = [a.name for a in nest.reduce_axes]
    if can_fuse(kernel, names):
        fuse_axes(kernel, names)


def window_panels(nest: NestOp) -> Mapping[int, Panel | None]:
    """The filter's packing makes channels contiguous; the data keeps its layout."""
    found, summed = tiled_axes(nest), tuple(a.name for a in nest.reduce_axes)
    assert found is not None
    [channel] = [a for a in nest.axes if a.name == found[1]]
    whole = channel.extent.ceildiv(_width(channel.extent)) * _width(channel.extent)
    own = {channel.name, *summed}
    filters = [k for k, map_ in enumerate(nest.input_maps)
               if _symbols(map_) == own and not map_[-1].symbols <= {channel.name}]
    return {k: Panel(channel.name, whole.constant, summed) if k in filters and whole.constant
            else None for k in range(len(nest.inputs))}


def schedule_windows(kernel: KernelOp, nest: NestOp, options: TargetOptions) -> Schedule:
    """Tiles of positions, of one or a few rows, by channels; smaller to get more programs."""
    extents, found = {a.name: a.extent for a in nest.parallel_axes}, tiled_axes(nest)
    assert found is not None
    position, channel = found
    rows = [a.name for a in nest.parallel_axes if a.name not in found]
    tiles = {channel: _width(extents[channel])}
    for axis in (position, *rows[-1:]):
        tiles[axis] = _fitting(extents[axis], ELEMENTS // prod(tiles.values()))
    for axis in (*rows[-1:], position):
        while tiles[axis] > 1 and _programs(extents, tiles) < 2 * machine_of(
                options.features).multiprocessors:
            tiles[axis] //= 2
    levels = [Level("grid", a, tiles.get(a, 1)) for a in (*rows, position, channel)]
    each = EACH_FILTERED if len(nest.inputs) > 1 else EACH
    warps = max(1, min(4, prod(tiles.values()) // (WARP * each)))
    return finish(kernel, levels, tails="mask", warps=warps)


def _width(extent: Expr) -> int:
    """How many contiguous channels a tile has."""
    return _fitting(extent, power(extent, CHANNELS), min(WORD, power(extent, WORD)))


def _fitting(extent: Expr, most: int, least: int = 1) -> int:
    """The largest tile among those that extend least beyond the end."""
    size = extent.constant
    tiles = [most >> k for k in range(most.bit_length()) if most >> k >= least]

    def order(tile: int) -> tuple[bool, int, bool, int]:
        beyond = -size % tile if size else 0
        return 6 * beyond > (size or 1), -min(tile, ENOUGH), 8 * beyond > (size or 1), -tile

    return min(tiles, key=order, default=1)


def _programs(extents: Mapping[Symbol, Expr], tiles: Mapping[Symbol, int]) -> int:
    """How many programs there are; an unknown size counts as a large one."""
    return prod(-(-(extent.constant or 1 << 14) // tiles.get(axis, 1))
                for axis, extent in extents.items())
