"""Schedule rules of the CUDA target for convolutions: products of rows read by windows, in strides.

    nest (n, i, j, o, reduce c, p, q) ins(%x[n, i + p, j + q, c], %w[o, c, p, q])
    ->  nest (r, o, reduce k) ins(%x[r floordiv ..., ..., k mod C], %w'[0, k, o])

Rows are the positions of the result, columns its channels. The summed axis runs through the data as
memory does: over the window, and innermost over the channels. Where a tile of it stays inside one
position of the window, that position is a number of the whole tile, and a row of the tile is read
in long words. Filters are packed in the same order, channels of the result side by side, or, where
instructions take 32-bit factors along the summed axis only, each channel by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, prod

import numpy as np

from dialects.expr import Expr
from dialects.loop import Axis, KernelOp, NestOp
from dialects.schedule import Level, Schedule
from dialects.types import TensorType, byte_width, is_float
from passes.loop.axis_fusion import can_fuse, fuse_axes
from passes.loop.nests import carry, replace_nest, result_types
from passes.loop.pack_operands import Border, Packing, Panel
from passes.loop_to_block.compute import is_dot
from targets.base import TargetOptions
from targets.cuda.machine import Machine, machine_of
from targets.cuda.products import DEPTH, MIN_DOT, Roles, schedule_product
from targets.cuda.tiles import finish, power, width_of

OPEN = 16
"""What an open size is taken to be."""
WARPGROUP_ROWS = 64
"""Rows that a group of 4 warps multiplies at once, where there are such products."""
OTHER_REGISTERS = 64
"""What a thread needs beside its sums."""
FEW, WORD = 8, 4
"""Fewer channels than this become whole words of so many."""


# ---------------------------------------------------------------------- which kernels
def is_convolution(nest: NestOp) -> bool:
    """Whether a nest sums products of floats, rows by columns, and reads no rows of a matrix."""
    return convolution_roles(nest) is not None


def convolution_roles(nest: NestOp) -> Roles | None:
    """Rows are the axes of the data alone, columns those of the filter; None for other nests."""
    data = data_of(nest)
    if data is None:
        return None
    walked, filtered = (set[str]().union(*(e.symbols for e in nest.input_maps[k]))
                        for k in (data, 1 - data))
    parallel = [a.name for a in nest.parallel_axes]
    roles = Roles(tuple(a for a in parallel if a in walked & filtered),
                  tuple(a for a in parallel if a not in filtered),
                  tuple(a for a in parallel if a not in walked),
                  tuple(a.name for a in nest.reduce_axes))
    return roles if roles.rows and roles.columns else None


def data_of(nest: NestOp) -> int | None:
    """The factor with a dim that axes of its own walk together with summed ones, or in strides."""
    result = nest.results[0].type
    assert isinstance(result, TensorType)
    if not is_dot(nest) or not is_float(result.element) or byte_width(result.element) > 4:
        return None
    walked = [set[str]().union(*(e.symbols for e in m)) for m in nest.input_maps]
    summed, own = {a.name for a in nest.reduce_axes}, walked[0] ^ walked[1]
    found = [k for k, map_ in enumerate(nest.input_maps)
             if any(e.symbols & own and (e.symbols & summed or _is_strided(e)) for e in map_)]
    return found[0] if len(found) == 1 else None


def _is_strided(expr: Expr) -> bool:
    """Whether an axis by itself walks every other place, or fewer."""
    return len(expr.symbols) == 1 and any(abs(c) > 1 for monomial, c in expr.terms if monomial)


# ---------------------------------------------------------------------- axes and memory
def prepare_convolution(kernel: KernelOp, nest: NestOp) -> None:
    """Fuse rows, columns, and the summed axes: the window, and inside the channels, in words."""
    nest = _whole_words(nest)
    roles, data = convolution_roles(nest), data_of(nest)
    assert roles is not None and data is not None
    channels = _channel_axes(nest.input_maps[data], roles)
    place = {s: d for d, e in enumerate(nest.input_maps[data]) for s in e.symbols}
    for names in (roles.rows, roles.columns, roles.reduce):
        names = sorted(names, key=lambda a: (a in channels, place.get(a, -1)))
        if can_fuse(kernel, names):
            fuse_axes(kernel, names)


def _channel_axes(map_: Sequence[Expr], roles: Roles) -> set[str]:
    """Summed axes of dims of the data that no row walks."""
    return {s for e in map_ if not e.symbols & {*roles.rows} for s in e.symbols & {*roles.reduce}}


def _whole_words(nest: NestOp) -> NestOp:
    """The nest with a few channels, of which no word is full, and more that are 0."""
    roles, data = convolution_roles(nest), data_of(nest)
    assert roles is not None and data is not None
    channels = _channel_axes(nest.input_maps[data], roles)
    axes = [Axis(a.name, Expr.of(_padded(a.extent.constant)), a.reduce)
            if a.name in channels and _padded(a.extent.constant) else a for a in nest.axes]
    if axes == list(nest.axes) or roles.batch:
        return nest
    new = carry(nest, NestOp.of(
        axes, list(nest.inputs), nest.input_maps, result_types(nest), nest.output_maps,
        combiners=nest.combiner_names, pads=[0.0, 0.0], body=nest.body.clone()))
    replace_nest(nest, new)
    return new


def _padded(channels: int | None) -> int:
    """How many channels there should be instead; 0 to leave them."""
    few = channels is not None and 1 < channels < FEW
    return -(-channels // WORD) * WORD if few and channels % WORD else 0  # type: ignore[operator]


def convolution_panels(
    kernel: KernelOp, nest: NestOp, options: TargetOptions
) -> Mapping[int, Packing] | None:
    """The filter is packed, whoever made it; the data only where channels lie apart."""
    roles, data = convolution_roles(nest), data_of(nest)
    if roles is None or data is None or not _is_plain(roles):
        return None
    [column], [summed] = roles.columns, roles.reduce
    packed = nest.input_maps[1 - data][-1].symbols <= {column}
    tile = Panel(column, _panel_width(kernel, nest, roles, options), (summed,))
    return {data: _channels_last(nest, data, roles), 1 - data: None if packed else tile}


def _channels_last(nest: NestOp, data: int, roles: Roles) -> Border | None:
    """The dims of the data in the order of its axes, if channels, padded ones at that, are last."""
    summed = frozenset(roles.reduce)
    map_ = nest.input_maps[data]
    channels = [d for d, e in enumerate(map_) if e.symbols - {*roles.batch} == summed]
    type_ = nest.inputs[data].type
    assert isinstance(type_, TensorType)
    if not channels or (channels == [len(map_) - 1] and _padded(
            type_.shape[-1].constant) == 0):
        return None
    return Border((*(d for d in range(len(map_)) if d not in channels), *channels))


def _panel_width(
    kernel: KernelOp, nest: NestOp, roles: Roles, options: TargetOptions
) -> int:
    """All columns, as many tiles of them as there are; or one."""
    extent = kernel.axes[roles.columns[0]].constant
    if extent is None or (width_of(nest.inputs[0]) == 4 and options.precision == "tf32"):
        return 1
    schedule = kernel.schedule.data if kernel.schedule else _schedule(kernel, nest, roles, options)
    level = schedule.level(roles.columns[0])
    tile = 1 if level is None else level.tile
    return -(-extent // tile) * tile


def _is_plain(roles: Roles) -> bool:
    """Whether the axes of each role are one."""
    return all(len(x) == 1 for x in (roles.rows, roles.columns, roles.reduce))


# ---------------------------------------------------------------------- tiles
@dataclass(frozen=True)
class Shape:
    """What a convolution multiplies: batches of rows by columns, summed over `depth`.

    `channels`: the run of the summed axis inside one position of the window. `width`: the bytes
    of a factor's element.
    """

    batch: int
    rows: int
    columns: int
    depth: int
    channels: int
    width: int
    narrow: bool
    """Whether tensor cores multiply the factors."""


@dataclass(frozen=True)
class Tile:
    """What one program computes, with how many warps, and how many steps ahead it loads."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


def schedule_convolution(kernel: KernelOp, nest: NestOp, options: TargetOptions) -> Schedule:
    """Tiles of rows by columns, the summed axis in steps; where axes stayed apart, a product's.

    The last step is apart if it is a part of one, so that no other has masks.
    """
    roles = convolution_roles(nest)
    if roles is None or not _is_plain(roles):
        return schedule_product(kernel, nest, options)
    return _schedule(kernel, nest, roles, options)


def _schedule(
    kernel: KernelOp, nest: NestOp, roles: Roles, options: TargetOptions
) -> Schedule:
    shape = _shape(kernel, nest, roles, options)
    best = min(_tiles(shape), key=lambda t: _cycles(shape, t, machine_of(options.features)))
    return _schedule_of(kernel, roles, best, options)


def _schedule_of(
    kernel: KernelOp, roles: Roles, tile: Tile, options: TargetOptions
) -> Schedule:
    [rows], [columns], [summed] = roles.rows, roles.columns, roles.reduce
    levels = [*(Level("grid", b) for b in roles.batch), Level("grid", rows, tile.rows),
              Level("grid", columns, tile.columns), Level("loop", summed, tile.depth)]
    return finish(kernel, levels, dot=1, tails="peel", warps=tile.warps, stages=tile.stages,
                  precision=options.precision)


def _shape(kernel: KernelOp, nest: NestOp, roles: Roles, options: TargetOptions) -> Shape:
    width = max(map(width_of, nest.inputs))
    sizes = {name: int(extent.evaluate(dict.fromkeys(extent.symbols, OPEN)))
             for name, extent in kernel.axes.items()}
    [rows], [columns], [summed] = roles.rows, roles.columns, roles.reduce
    return Shape(prod(sizes[a] for a in roles.batch), sizes[rows], sizes[columns], sizes[summed],
                 _channels(kernel, nest, roles), width,
                 narrow=width <= 2 or options.precision == "tf32")


def _channels(kernel: KernelOp, nest: NestOp, roles: Roles) -> int:
    """How far the summed axis runs along the data's memory."""
    data, [summed] = data_of(nest), roles.reduce
    depth = kernel.axes[summed].constant
    assert data is not None
    last = nest.input_maps[data][-1].substitute(dict.fromkeys(roles.batch, 0))
    if depth is None or last.symbols != frozenset([summed]):
        return 1
    positions = np.arange(depth)
    beyond = np.flatnonzero(last.evaluate({summed: positions}) != positions)
    return int(beyond[0]) if len(beyond) else depth


def _tiles(shape: Shape) -> Iterator[Tile]:
    """Tiles of which a step stays in one place of the window, if it can, and that registers hold.

    Of equally good ones the first is preferred.
    """
    line = DEPTH // shape.width
    longest = 2 * line if shape.narrow else line  # steps of FMA units are long as they are
    depths = [d for d in (line, 2 * line, line // 2, MIN_DOT)
              if shape.channels % d == 0 and d <= longest]
    sizes = [64, 128, 256, 32, 16]
    most = power(Expr.of(shape.rows), 256, MIN_DOT), power(Expr.of(shape.columns), 256, MIN_DOT)
    for rows, columns in product(sizes, sizes):
        warps = 8 if rows == 256 or rows * columns > 128 * 128 else 4
        if rows <= most[0] and columns <= most[1] and rows * columns <= 128 * 256:
            for depth, stages in product(depths or [line // 2], (3, 4) if shape.narrow else (2,)):
                yield Tile(rows, columns, depth, warps, stages)


def _cycles(shape: Shape, tile: Tile, machine: Machine) -> float:
    """About how long the machine takes.

    A program alone waits in each step for its data, products and others of its warps, one behind
    the other; programs together hide that, but share what multiplies and what brings data.
    """
    together = _together(shape, tile, machine)
    if not together:
        return inf
    programs = shape.batch * -(-shape.rows // tile.rows) * -(-shape.columns // tile.columns)
    steps = -(-shape.depth // tile.depth)
    products = tile.rows * tile.columns * tile.depth
    rate = machine.multiply_adds(shape.narrow)
    arrive = tile.rows * tile.depth * shape.width / machine.near_bytes
    whole = not machine.has_wgmma or tile.rows >= WARPGROUP_ROWS
    alone = products / (rate if whole else rate / 6) + arrive + machine.step
    shared = products / (rate if whole else rate / 2) + arrive + machine.step / 4
    rounds, rest = divmod(-(-programs // machine.multiprocessors), together)
    counts = [*[together] * rounds, *([rest] if rest else [])]
    return sum(steps * max(n * shared, alone) + machine.start for n in counts)


def _together(shape: Shape, tile: Tile, machine: Machine) -> int:
    """How many programs a multiprocessor holds; 0 if it cannot hold one."""
    shared = (tile.rows + tile.columns) * tile.depth * shape.width * tile.stages
    threads = 32 * tile.warps
    registers = tile.rows * tile.columns // threads + OTHER_REGISTERS
    fits = min(machine.shared // shared, machine.registers // (registers * threads))
    return fits if registers < 256 else 0
