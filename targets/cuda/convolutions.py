"""Schedule rules of the CUDA target for convolutions: products whose rows are read by windows.

    nest (n, i, j, o, reduce c, p, q) ins(%x[n, i + p, j + q, c], %w[o, c, p, q])
    ->  nest (r, o, reduce k) ins(%x[r floordiv ..., ..., k mod C], %w'[0, k, o])

Rows are the positions of the result, columns its channels. The summed axis runs through the data as
memory does: over the window, and innermost over the channels. Where a tile of it stays inside one
position of the window, that position is a number of the whole tile, and a row of the tile is read
in long words. Filters are packed in the same order, channels of the result side by side, or, where
instructions take 32-bit factors along the summed axis only, each channel by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import inf, prod

import numpy as np

from dialects.expr import Expr
from dialects.loop import KernelOp, NestOp
from dialects.schedule import Level, Schedule
from dialects.types import TensorType, byte_width, is_float
from passes.loop.axis_fusion import can_fuse, fuse_axes
from passes.loop.pack_operands import Panel
from passes.loop_to_block.compute import is_dot
from targets.base import TargetOptions
from targets.cuda.machine import Machine, machine_of
from targets.cuda.products import DEPTH, MIN_DOT, Roles, schedule_product
from targets.cuda.tiles import finish, power, width_of

OPEN_ROWS = 1 << 14
"""What a convolution of open sizes is taken to have."""


# ---------------------------------------------------------------------- which kernels
def is_convolution(nest: NestOp) -> bool:
    """Whether a nest sums products of floats, rows by columns, and reads the rows by windows."""
    return convolution_roles(nest) is not None


def convolution_roles(nest: NestOp) -> Roles | None:
    """Rows are the axes of the data alone, columns those of the filter; None without a window."""
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
    """The factor of which parallel and summed axes walk a dim together, if one is like that."""
    result = nest.results[0].type
    assert isinstance(result, TensorType)
    if not is_dot(nest) or not is_float(result.element) or byte_width(result.element) > 4:
        return None
    summed = {a.name for a in nest.reduce_axes}
    found = [k for k, map_ in enumerate(nest.input_maps)
             if any(e.symbols & summed and e.symbols - summed for e in map_)]
    return found[0] if len(found) == 1 else None


# ---------------------------------------------------------------------- axes and memory
def prepare_convolution(kernel: KernelOp, nest: NestOp) -> None:
    """Fuse rows, columns, and the summed axes, each in the order of the data's memory."""
    roles, data = convolution_roles(nest), data_of(nest)
    assert roles is not None and data is not None
    place = {s: d for d, e in enumerate(nest.input_maps[data]) for s in e.symbols}
    for names in (roles.rows, roles.columns, roles.reduce):
        names = sorted(names, key=lambda a: place.get(a, -1))
        if can_fuse(kernel, names):
            fuse_axes(kernel, names)


def convolution_panels(kernel: KernelOp, nest: NestOp, options: TargetOptions
                       ) -> Mapping[int, Panel | None] | None:
    """The filter is packed, whoever made it; the data is read where it lies."""
    roles, data = convolution_roles(nest), data_of(nest)
    if roles is None or data is None or not _is_plain(roles):
        return None
    [column], [summed] = roles.columns, roles.reduce
    tile = Panel(column, _panel_width(kernel, nest, roles, options), (summed,))
    return {data: None, 1 - data: tile}


def _panel_width(
    kernel: KernelOp, nest: NestOp, roles: Roles, options: TargetOptions
) -> int:
    """All columns, as many tiles of them as there are; or one."""
    extent = kernel.axes[roles.columns[0]].constant
    if extent is None or (width_of(nest.inputs[0]) == 4 and options.precision != "f32"):
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
    """Tiles of rows by columns, the summed axis in steps; where axes stayed apart, a product's."""
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
    return finish(kernel, levels, dot=1, tails="mask", warps=tile.warps, stages=tile.stages,
                  precision=options.precision)


def _shape(kernel: KernelOp, nest: NestOp, roles: Roles, options: TargetOptions) -> Shape:
    extents = {name: kernel.axes[name].constant for name in kernel.axes}
    width = max(map(width_of, nest.inputs))
    narrow = width <= 2 or options.precision != "f32"
    return Shape(
        prod(extents[a] or 1 for a in roles.batch), extents[roles.rows[0]] or OPEN_ROWS,
        extents[roles.columns[0]] or OPEN_ROWS, extents[roles.reduce[0]] or OPEN_ROWS,
        _channels(kernel, nest, roles), width, narrow)


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
    """Tiles that registers hold and instructions take; of equal ones the first is preferred."""
    depths = [d for d in (DEPTH // shape.width, DEPTH // shape.width // 2, MIN_DOT)
              if shape.channels % d == 0] or [DEPTH // shape.width // 2]
    for rows, columns, depth in product((128, 64, 256, 32, 16), (128, 64, 256, 32, 16), depths):
        most = power(Expr.of(shape.columns), 256, MIN_DOT)
        if columns <= most and rows <= power(Expr.of(shape.rows), 256, MIN_DOT):
            warps = 8 if rows * columns >= 128 * 128 else 4
            yield Tile(rows, columns, depth, warps, 4 if shape.narrow else 2)


def _cycles(shape: Shape, tile: Tile, machine: Machine) -> float:
    """About how long the machine takes."""
    factors = (tile.rows + tile.columns) * tile.depth * shape.width
    shared = factors * tile.stages
    if shared > machine.shared or tile.rows * tile.columns > 64 * 32 * tile.warps * 2:
        return inf
    programs = shape.batch * -(-shape.rows // tile.rows) * -(-shape.columns // tile.columns)
    steps = -(-shape.depth // tile.depth)
    together = max(1, min(machine.shared // shared, 16 // tile.warps))
    rate = machine.multiply_adds(shape.narrow)
    step = max(tile.rows * tile.columns * tile.depth / rate, factors / machine.near_bytes)
    per = -(-programs // machine.multiprocessors)
    waves = -(-per // together)
    return max(per * steps * step, waves * steps * machine.latency / (tile.stages - 1)) + (
        waves * 2 * machine.latency + per * tile.rows * tile.columns * shape.width
        / machine.near_bytes)
