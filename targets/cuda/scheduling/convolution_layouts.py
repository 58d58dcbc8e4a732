"""The axes of a convolution's kernel, and how its operands lie in memory.

Lanes load whole words only where rows of memory begin at multiples of a word, and where masks end
there. Tensor cores are so fast that a copy with padded rows pays for itself. So channels that are
summed are padded with zeros in the sum (`_whole_words`), and the rows of a gradient, which are not
summed, in memory alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dialects.loop import Axis, KernelOp, NestOp, extents_of
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import upper_bound
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.contract import Border, Packing, Panel
from passes.loop_to_block.compute import is_guarded_dot
from passes.rewrites.loop.axis_fusion import can_fuse, fuse_axes
from passes.rewrites.loop.nests import carry, divided, replace_nest, result_types
from targets.cuda.machine import machine_of
from targets.cuda.scheduling.convolution_roles import (
    channel_axes,
    dims_of,
    innermost,
    is_narrow,
    rows_run,
    size_of,
    taps_apart,
    tiled_roles,
    windowed,
    word_of,
)
from targets.cuda.scheduling.convolutions import (
    STEPS,
    filled_up,
    is_plain,
    rounded,
    scheduled,
    windowed_product,
)
from targets.cuda.scheduling.roles import Roles
from targets.cuda.scheduling.tiles import width_of
from targets.options import TargetOptions

FEW, QUAD = 8, 4
"""Fewer channels than FEW are padded to a multiple of QUAD."""


# ---------------------------------------------------------------------- axes
def prepare_convolution(kernel: KernelOp, nest: NestOp, options: TargetOptions) -> None:
    """Fuse the rows, the columns, and the summed axes: window outside, padded channels inside."""
    nest = _whole_words(nest, options)
    outer = _in_chunks(nest, options)
    nest = next(n for n in kernel.nests if n.is_reduction)
    data, roles = windowed(nest)
    inner = innermost(nest) - outer
    channels = {a for a in inner if kernel.axes[a].constant is not None}
    place = {s: d for d, e in enumerate(nest.input_maps[data]) for s in e.symbols}
    rows = [roles.rows]
    if taps_apart(nest, options):
        rows = [tuple(a for a in roles.rows if (a in inner) == inside) for inside in (False, True)]
    for names in (*rows, roles.columns, roles.reduce):
        names = sorted(names, key=lambda a: (a not in outer, a in channels, place.get(a, -1)))
        if can_fuse(kernel, names):
            fuse_axes(kernel, names)


def _whole_words(nest: NestOp, options: TargetOptions) -> NestOp:
    """The nest with its channels padded with zeros to whole words, if they fill none, and to whole
    steps where that takes less time."""
    data, roles = windowed(nest)
    word = word_of(nest, data) if is_narrow(nest, options) else 0
    extents = extents_of(nest.axes)
    channels = channel_axes(nest)
    if roles.batch or rows_run(nest):
        return nest
    padded = {a: _padded(nest, extents[a].constant, word, options) for a in channels}
    if not any(padded.values()):
        return nest
    axes = [Axis(a.name, Expr.of(padded[a.name]), a.reduce) if padded.get(a.name) else a
            for a in nest.axes]
    new = carry(nest, NestOp.of(
        axes, list(nest.inputs), nest.input_maps, result_types(nest), nest.output_maps,
        combiners=nest.combiner_names, pads=[0.0, 0.0], body=nest.body.clone()))
    replace_nest(nest, new)
    return new


def _padded(nest: NestOp, channels: int | None, word: int, options: TargetOptions) -> int:
    """To how many channels to pad; 0: leave them. A word of 0 elements: single channels are loaded
    as fast."""
    if channels is None or channels == 1:
        return 0
    if channels < FEW:
        return rounded(channels, QUAD) if channels % QUAD else 0
    if not word or any(a.extent.constant is None for a in nest.axes):
        return rounded(channels, word) if word and channels % word else 0
    machine, whole = machine_of(options.features), windowed_product(
        nest, windowed(nest)[1], options)
    chosen = filled_up(whole, machine, word).run
    return chosen if chosen != channels else 0


def _in_chunks(nest: NestOp, options: TargetOptions) -> set[Symbol]:
    """Cut the channels into chunks of a step, and return their axis; nothing where it does not pay.

    All programs sum the chunks of channels in the same order, and all taps of one chunk before the
    next one. What they read at a time then fits into the L2 cache if the data does not.
    """
    data, roles = windowed(nest)
    channels = [*channel_axes(nest)]
    size = extents_of(nest.axes)[channels[0]].constant if len(channels) == 1 else None
    step = next((s for s in STEPS if size and size > s and size % s == 0), 0)
    if not step or roles.batch or rows_run(nest) or not is_narrow(nest, options) or (
            len(roles.reduce) == 1 or _bytes(nest, data) <= _near(options)):
        return set()
    axis = next(a for a in nest.axes if a.name == channels[0])
    replace_nest(nest, divided(nest, axis, (size or 0) // step))
    return {axis.name}


def _bytes(nest: NestOp, position: int) -> int:
    """The bytes of an input; 0 if unknown."""
    type_ = nest.inputs[position].type
    assert isinstance(type_, TensorType)
    return (product(type_.shape).constant or 0) * width_of(nest.inputs[position])


def _near(options: TargetOptions) -> int:
    """The bytes that stay in the L2 cache while all programs read them."""
    return machine_of(options.features).cache // 4


# ---------------------------------------------------------------------- memory
def convolution_panels(
    kernel: KernelOp, nest: NestOp, options: TargetOptions
) -> Mapping[int, Packing] | None:
    """Pack the filter, whoever produced it; and the data only where channels are not contiguous, or
    rows of memory not whole words."""
    roles = tiled_roles(nest)
    if roles is None or not is_plain(roles):
        return None
    data, all_roles = windowed(nest)
    if rows_run(nest):
        other = None if _positions_run(nest, 1 - data, options) else _dims_last(
            nest, 1 - data, all_roles.columns, options)
        return {data: _dims_last(nest, data, roles.rows, options, not is_guarded_dot(nest)),
                1 - data: other}
    [column], [summed] = roles.columns, roles.reduce
    other = nest.input_maps[1 - data]
    packed = other[-1].symbols <= {column} and _is_whole(nest, 1 - data, len(other) - 1, options)
    tile = Panel(column, _panel_width(kernel, nest, roles, options), (summed,))
    return {data: _channels_last(nest, data, roles), 1 - data: None if packed else tile}


def _channels_last(nest: NestOp, data: int, roles: Roles) -> Border | None:
    """The data's dims in order, with channels, padded if need be, last; None if they already are,
    in whole words, which are compared with their end at once."""
    summed = frozenset(roles.reduce)
    map_ = nest.input_maps[data]
    channels = [d for d, e in enumerate(map_) if e.symbols - {*roles.batch} == summed]
    last = channels == [len(map_) - 1]
    if not channels or (last and (
            not _exceeds(nest, data, channels[0])
            or size_of(nest, data, channels[0]) % word_of(nest, data) == 0)):
        return None
    order = (*(d for d in range(len(map_)) if d not in channels), *channels)
    return Border(order, padded=not is_guarded_dot(nest))  # whose reads outside must be seen


def _exceeds(nest: NestOp, position: int, dim: int) -> bool:
    """Whether the nest reads an input beyond the end of a dim."""
    type_ = nest.inputs[position].type
    assert isinstance(type_, TensorType)
    last = upper_bound(nest.input_maps[position][dim], extents_of(nest.axes))
    beyond = None if last is None else (last - type_.shape[dim]).constant
    return beyond is not None and beyond >= 0


def _dims_last(
    nest: NestOp, position: int, axes: Sequence[Symbol], options: TargetOptions,
    padded: bool = False,
) -> Border | None:
    """An input's dims in order, with those that only some axes index last, and whole words; None if
    they are."""
    own, rank = dims_of(nest, position, axes), len(nest.input_maps[position])
    order = (*(d for d in range(rank) if d not in own), *own)
    whole = _is_whole(nest, position, order[-1], options)
    if whole and order == tuple(range(rank)):
        return None
    return Border(order, padded, 1 if whole else word_of(nest, position))


def _positions_run(nest: NestOp, position: int, options: TargetOptions) -> bool:
    """Whether words hold all positions along memory, so that a step of the sum is read in words.
    Instructions for wider elements take such factors only."""
    *_, last = nest.input_maps[position]
    summed = {a.name for a in nest.reduce_axes}
    return bool(last.symbols) and last.symbols <= summed and (
        width_of(nest.inputs[position]) <= 2) and _is_whole(
            nest, position, len(nest.input_maps[position]) - 1, options)


def _is_whole(nest: NestOp, position: int, dim: int, options: TargetOptions) -> bool:
    """Whether words hold all elements along a dim that is last in memory, or need not."""
    return not is_narrow(nest, options) or size_of(nest, position, dim) % word_of(
        nest, position) == 0


def _panel_width(
    kernel: KernelOp, nest: NestOp, roles: Roles, options: TargetOptions
) -> int:
    """All columns, rounded up to whole tiles; or 1."""
    extent = kernel.axes[roles.columns[0]].constant
    if extent is None or (width_of(nest.inputs[0]) == 4 and options.precision == "tf32"):
        return 1
    schedule = kernel.schedule.data if kernel.schedule else scheduled(kernel, nest, roles, options)
    level = schedule.level(roles.columns[0])
    tile = 1 if level is None else level.tile
    return -(-extent // tile) * tile
