"""The schedule of a depthwise filter's gradient whose channels run along memory.

    nest (c: 96, u: 7, v: 7, reduce n, i, j) ins(%x[n, i + u, j + v, c], %y[n, i, j, c])
    ->  a program sums a tile of all taps by 32 channels, position by position

Each channel is summed alone, so that there is no product for tensor cores. Neighbouring lanes read
neighbouring channels, and what a position of %y meets of %x is read once from memory: the windows
of neighbouring positions overlap, and stay in the cache.
"""

from __future__ import annotations

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Level, Schedule
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.rewrites.loop.axis_fusion import can_fuse, fuse_axes
from passes.rewrites.loop.nests import axes_of_input, data_inputs
from targets.cuda.scheduling.roles import has_windows
from targets.cuda.scheduling.tiles import finish, power

TAPS, TILE = 64, 2048
"""The most taps of a program, and the most sums, 16 for each thread."""
WARPS = 4


def channel_of(nest: NestOp) -> Symbol | None:
    """The axis of such a nest that runs along the memory of both factors; None for other nests."""
    factors = data_inputs(nest)
    if len(factors) != 2 or len(nest.inputs) != 2 or not has_windows(nest):
        return None
    last = {nest.input_maps[k][-1].as_symbol if nest.input_maps[k] else None for k in factors}
    known = all(a.extent.constant is not None for a in nest.axes)
    [channel] = last if len(last) == 1 else [None]
    parallel = {a.name for a in nest.parallel_axes}
    return channel if known and channel in parallel and taps_of(nest) else None


def taps_of(nest: NestOp) -> list[Symbol]:
    """The axes that index one factor alone, in windows; none if both factors have such axes."""
    used = [axes_of_input(nest, k) for k in data_inputs(nest)]
    own = [[a.name for a in nest.parallel_axes if a.name in u - v]
           for u, v in (used, used[::-1])]
    return [] if all(own) else own[0] or own[1]


def tap_nest(kernel: KernelOp) -> NestOp | None:
    """The nest of a kernel that determines this schedule."""
    nests = [n for n in kernel.nests if is_contraction(n)]
    return nests[0] if len(nests) == 1 and channel_of(nests[0]) is not None else None


def programs_of(nest: NestOp) -> int:
    """How many programs compute the results."""
    channel, taps = channel_of(nest), taps_of(nest)
    sizes = {a.name: a.extent.constant or 1 for a in nest.parallel_axes}
    found = 1
    for name, size in sizes.items():
        found *= 1 if name in taps else -(-size // _channels(nest)) if name == channel else size
    return found


def _channels(nest: NestOp) -> int:
    """The channels of a program."""
    taps = product(a.extent for a in nest.axes if a.name in taps_of(nest))
    return TILE // power(taps, TAPS)


def prepare_taps(kernel: KernelOp, nest: NestOp) -> None:
    """Fuse the taps."""
    names = taps_of(nest)
    if can_fuse(kernel, names):
        fuse_axes(kernel, names)


def schedule_taps(kernel: KernelOp, nest: NestOp) -> Schedule:
    """Tiles of all taps by some channels, with a loop over each axis of the sums."""
    extents, channel, taps = kernel.axes, channel_of(nest), taps_of(nest)
    assert channel is not None
    parts = [a.name for a in nest.parallel_axes if a.name not in (channel, *taps)]
    *others, last = taps
    levels = [Level("grid", a) for a in (*parts, *others)]
    levels += [Level("grid", last, power(extents[last], TAPS)),
               Level("grid", channel, power(extents[channel], _channels(nest)))]
    summed = sorted(nest.reduce_axes, key=lambda a: a.extent.constant or 1)
    levels += [Level("loop", a.name, 1) for a in summed]
    return finish(kernel, levels, tails="mask", warps=WARPS)
