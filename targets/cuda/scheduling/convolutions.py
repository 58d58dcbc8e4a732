"""Schedule rules of the CUDA target for convolutions as implicit matrix products.

    nest (n, i, j, o, reduce c, p, q) ins(%x[n, i + p, j + q, c], %w[o, c, p, q])
    ->  nest (r, o, reduce k) ins(%x[r floordiv ..., ..., k mod C], %w'[0, k, o])

The rows are the result's positions and the columns its channels. The summed axis runs through the
data in memory order: over the window, and innermost over the channels. If a tile of that axis stays
inside one position of the window, the position is one number for the whole tile, and each row of
the tile is read with wide vector loads. Filters are packed in the same order, with the result's
channels contiguous. The exception is instructions that need 32-bit factors along the summed axis,
where each channel is packed separately.

In the gradient of a filter, the batch is summed, and the channels are rows. They lie last in
memory, as the columns do in the other factor, so the summed axis runs through the data in memory
order, and neither factor is packed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
from xdsl.ir import Attribute

from dialects.loop import Axis, KernelOp, NestOp
from dialects.strata.schedule import Level, Schedule
from dialects.strata.types import TensorType, byte_width, is_float
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.contract import Border, Packing, Panel
from passes.loop_to_block.compute import is_dot, is_guarded_dot
from passes.rewrites.loop.axis_fusion import can_fuse, fuse_axes
from passes.rewrites.loop.nests import carry, replace_nest, result_types
from targets.cuda.machine import machine_of
from targets.cuda.scheduling.products.parts import fastest_parts, parts_of
from targets.cuda.scheduling.products.rules import schedule_product
from targets.cuda.scheduling.products.tiles import SIZES, tiles
from targets.cuda.scheduling.products.time import Product, ProductTile
from targets.cuda.scheduling.roles import Roles, epilogue_bytes, reads_vectors
from targets.cuda.scheduling.tiles import finish, width_of
from targets.options import TargetOptions

OPEN = 16
"""The value that stands for an unknown size."""
FEW, WORD = 8, 4
"""Fewer channels than FEW are padded to a multiple of WORD."""
LEAST = 64
"""The fewest channels of one part of a split sum."""


# ---------------------------------------------------------------------- which kernels
def is_convolution(nest: NestOp) -> bool:
    """Whether a nest is a convolution of floats, rather than a plain matrix product."""
    return convolution_roles(nest) is not None


def convolution_roles(nest: NestOp) -> Roles | None:
    """Rows are the axes of the data alone, columns those of the filter; None for other nests."""
    data = data_of(nest)
    if data is None:
        return None
    walked, filtered = (set[Symbol]().union(*(e.symbols for e in nest.input_maps[k]))
                        for k in (data, 1 - data))
    parallel = [a.name for a in nest.parallel_axes]
    roles = Roles(tuple(a for a in parallel if a in walked & filtered),
                  tuple(a for a in parallel if a not in filtered),
                  tuple(a for a in parallel if a not in walked),
                  tuple(a.name for a in nest.reduce_axes))
    return roles if roles.rows and roles.columns else None


def data_of(nest: NestOp) -> int | None:
    """The factor that has a dim indexed with a stride, or by its own and summed axes together."""
    result = nest.results[0].type
    assert isinstance(result, TensorType)
    if not (is_dot(nest) or is_guarded_dot(nest)) or not is_float(result.element) or (
            byte_width(result.element) > 4):
        return None
    walked = [set[Symbol]().union(*(e.symbols for e in m)) for m in nest.input_maps]
    summed, own = {a.name for a in nest.reduce_axes}, walked[0] ^ walked[1]
    found = [k for k, map_ in enumerate(nest.input_maps)
             if any(e.symbols & own and (e.symbols & summed or _is_strided(e)) for e in map_)]
    return found[0] if len(found) == 1 else None


def _is_strided(expr: Expr) -> bool:
    """Whether the expression is one axis times a stride of at least 2."""
    return len(expr.symbols) == 1 and any(abs(c) > 1 for monomial, c in expr.terms if monomial)


def joined_groups(
    inputs: int, outputs: int, count: int, element: Attribute, options: TargetOptions
) -> int:
    """How many groups make a tile's channels whole: products with zeros among them cost nothing.
    """
    if not is_float(element) or byte_width(element) > 4 or inputs == outputs == 1:
        return 1
    narrow = byte_width(element) <= 2 or options.precision == "tf32"
    least = machine_of(options.features).fitted.joined_channels if narrow else SIZES[0]
    return next((n for n in range(1, count + 1) if count % n == 0
                 and least <= n * inputs <= 2 * least and n * inputs % SIZES[0] == 0
                 and n * outputs <= 2 * least), 1)


def joins_phases(
    zeros: int | None, kernels: int, element: Attribute, options: TargetOptions
) -> bool:
    """Whether multiplying zeros takes less time than the kernels that it saves. Of an unknown
    number, as many are assumed as take longer."""
    machine = machine_of(options.features)
    facts = machine.fitted.products
    narrow = byte_width(element) <= 2 or options.precision == "tf32"
    rate = facts.efficiency * machine.tensor_rate if narrow else (
        facts.fma_efficiency * machine.fma_rate)
    saved = (kernels - 1) * (facts.start + machine.fitted.parts.adding)
    return zeros is not None and 2 * zeros <= saved * rate * 1e12


# ---------------------------------------------------------------------- axes and memory
def prepare_convolution(kernel: KernelOp, nest: NestOp) -> None:
    """Fuse the rows, the columns, and the summed axes: window outside, padded channels inside."""
    nest = _whole_words(nest)
    roles, data = convolution_roles(nest), data_of(nest)
    assert roles is not None and data is not None
    channels = {a for a in _innermost(nest, data, roles) if kernel.axes[a].constant is not None}
    place = {s: d for d, e in enumerate(nest.input_maps[data]) for s in e.symbols}
    for names in (roles.rows, roles.columns, roles.reduce):
        names = sorted(names, key=lambda a: (a in channels, place.get(a, -1)))
        if can_fuse(kernel, names):
            fuse_axes(kernel, names)


def _innermost(nest: NestOp, data: int, roles: Roles) -> set[Symbol]:
    """The rows or the summed axes that are to be contiguous in the data."""
    map_ = nest.input_maps[data]
    if _rows_run(nest):
        return {s for d in _dims_of(nest, data, roles.rows) for s in map_[d].symbols}
    return _channel_axes(map_, roles)


def _rows_run(nest: NestOp) -> bool:
    """Whether rows and columns, rather than summed axes, are contiguous in the two factors, or are
    to be: in a gradient, most of what is summed are positions, and rows are channels."""
    roles, data = convolution_roles(nest), data_of(nest)
    assert roles is not None and data is not None
    last = [nest.input_maps[k][-1].symbols for k in (data, 1 - data)]
    if all(found and found <= {*own} for found, own in zip(
            last, (roles.rows, roles.columns), strict=True)):
        return True
    rows, summed = (prod(_size(nest, data, d) for d in _dims_of(nest, data, axes))
                    for axes in (roles.rows, roles.reduce))
    sizes = _sizes(nest)
    places, taps = (prod(sizes[a] for a in axes) // own for axes, own in (
        (roles.rows, rows), (roles.reduce, summed)))
    is_gradient = places < taps and rows >= min(summed, SIZES[0])
    return is_gradient and bool(last[0] & {*roles.rows})


def _dims_of(nest: NestOp, position: int, axes: Sequence[Symbol]) -> list[int]:
    """The dims of an input that, besides groups, only these axes index."""
    roles = convolution_roles(nest)
    assert roles is not None
    own = [e.symbols - {*roles.batch} for e in nest.input_maps[position]]
    return [d for d, symbols in enumerate(own) if symbols and symbols <= {*axes}]


def _size(nest: NestOp, position: int, dim: int) -> int:
    """The size of an input's dim."""
    type_ = nest.inputs[position].type
    assert isinstance(type_, TensorType)
    return type_.shape[dim].constant or OPEN


def _channel_axes(map_: Sequence[Expr], roles: Roles) -> set[Symbol]:
    """Summed axes in dims of the data that no row indexes."""
    return {s for e in map_ if not e.symbols & {*roles.rows} for s in e.symbols & {*roles.reduce}}


def _whole_words(nest: NestOp) -> NestOp:
    """The nest with its few channels padded with zeros to whole words, if they fill none."""
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
    """To how many channels to pad; 0: leave them."""
    few = channels is not None and 1 < channels < FEW
    return -(-channels // WORD) * WORD if few and channels % WORD else 0  # type: ignore[operator]


def convolution_panels(
    kernel: KernelOp, nest: NestOp, options: TargetOptions
) -> Mapping[int, Packing] | None:
    """Pack the filter, whoever produced it; and the data only where channels are not contiguous."""
    roles, data = convolution_roles(nest), data_of(nest)
    if roles is None or data is None or not _is_plain(roles):
        return None
    if _rows_run(nest):
        return {data: _dims_last(nest, data, roles.rows, not is_guarded_dot(nest)),
                1 - data: _dims_last(nest, 1 - data, roles.columns)}
    [column], [summed] = roles.columns, roles.reduce
    packed = nest.input_maps[1 - data][-1].symbols <= {column}
    tile = Panel(column, _panel_width(kernel, nest, roles, options), (summed,))
    return {data: _channels_last(nest, data, roles), 1 - data: None if packed else tile}


def _channels_last(nest: NestOp, data: int, roles: Roles) -> Border | None:
    """The data's dims in order, with channels, padded if need be, last; None if they already are.
    """
    summed = frozenset(roles.reduce)
    map_ = nest.input_maps[data]
    channels = [d for d, e in enumerate(map_) if e.symbols - {*roles.batch} == summed]
    type_ = nest.inputs[data].type
    assert isinstance(type_, TensorType)
    if not channels or (channels == [len(map_) - 1] and _padded(
            type_.shape[-1].constant) == 0):
        return None
    order = (*(d for d in range(len(map_)) if d not in channels), *channels)
    return Border(order, padded=not is_guarded_dot(nest))  # whose reads outside must be seen


def _dims_last(
    nest: NestOp, position: int, axes: Sequence[Symbol], padded: bool = False
) -> Border | None:
    """An input's dims in order, with those that only some axes index last; None if they are."""
    own, rank = _dims_of(nest, position, axes), len(nest.input_maps[position])
    order = (*(d for d in range(rank) if d not in own), *own)
    return None if order == tuple(range(rank)) else Border(order, padded)


def _panel_width(
    kernel: KernelOp, nest: NestOp, roles: Roles, options: TargetOptions
) -> int:
    """All columns, rounded up to whole tiles; or 1."""
    extent = kernel.axes[roles.columns[0]].constant
    if extent is None or (width_of(nest.inputs[0]) == 4 and options.precision == "tf32"):
        return 1
    schedule = kernel.schedule.data if kernel.schedule else _schedule(kernel, nest, roles, options)
    level = schedule.level(roles.columns[0])
    tile = 1 if level is None else level.tile
    return -(-extent // tile) * tile


def _is_plain(roles: Roles) -> bool:
    """Whether every role has exactly one axis."""
    return all(len(x) == 1 for x in (roles.rows, roles.columns, roles.reduce))


def schedule_convolution(kernel: KernelOp, nest: NestOp, options: TargetOptions) -> Schedule:
    """Tiles of rows by columns with the summed axis in steps; a product's schedule if axes could
    not be fused."""
    roles = convolution_roles(nest)
    if roles is None or not _is_plain(roles):
        return schedule_product(kernel, nest, options)
    return _schedule(kernel, nest, roles, options)


def _schedule(
    kernel: KernelOp, nest: NestOp, roles: Roles, options: TargetOptions
) -> Schedule:
    product = replace(_product(nest, roles, options),
                      epilogue_bytes=epilogue_bytes(kernel, nest, roles),
                      vectors=reads_vectors(kernel, nest, roles))
    tile = tiles(product, machine_of(options.features))[0]
    return tiled_product(kernel, roles, tile, options)


def tiled_product(
    kernel: KernelOp, roles: Roles, tile: ProductTile, options: TargetOptions
) -> Schedule:
    """The schedule for a tile; the last step is peeled, so that the others need no masks."""
    [rows], [columns], [summed] = roles.rows, roles.columns, roles.reduce
    groups = _groups(kernel, roles)
    levels = [*(Level("grid", b) for b in roles.batch if b not in groups),
              Level("grid", rows, tile.rows), *(Level("grid", g) for g in groups),
              Level("grid", columns, tile.columns), Level("loop", summed, tile.depth)]
    return finish(kernel, levels, dot=1, tails="peel", warps=tile.warps, stages=tile.stages,
                  precision=options.precision)


def _groups(kernel: KernelOp, roles: Roles) -> list[Symbol]:
    """The batch axes that are groups of channels: programs of all groups read the same lines."""
    nest = next(n for n in kernel.nests if n.is_reduction)
    return [b for b in roles.batch if any(
        b in e.symbols and e.symbols & {*roles.columns} for e in nest.output_maps[0])]


def _product(nest: NestOp, roles: Roles, options: TargetOptions) -> Product:
    narrow = max(map(width_of, nest.inputs)) <= 2 or options.precision == "tf32"
    return replace(factors_of(nest, roles, narrow), run=_channels(nest, roles))


def factors_of(nest: NestOp, roles: Roles, narrow: bool) -> Product:
    """The facts that a product's tiles depend on, if only its results are stored."""
    sizes = _sizes(nest)
    batch, rows, columns, depth = (prod(sizes[a] for a in axes) for axes in (
        roles.batch, roles.rows, roles.columns, roles.reduce))
    width = max(map(width_of, nest.inputs))
    return Product(batch, rows, columns, depth, width, width_of(nest.results[0]), depth, narrow)


def _sizes(nest: NestOp) -> dict[Symbol, int]:
    return {a.name: int(a.extent.evaluate(dict.fromkeys(a.extent.symbols, OPEN)))
            for a in nest.axes}


def _channels(nest: NestOp, roles: Roles) -> int:
    """How far the summed axis runs through the channels of one position of the window."""
    data, sizes = data_of(nest), _sizes(nest)
    assert data is not None
    map_ = nest.input_maps[data]
    if _rows_run(nest):
        return prod(sizes[a] for a in roles.reduce)
    if len(roles.reduce) != 1:
        return prod(sizes[a] for a in _channel_axes(map_, roles))
    summed = roles.reduce[0]
    last = map_[-1].substitute(dict.fromkeys(roles.batch, 0))
    if last.symbols != frozenset([summed]):
        return 1
    positions = np.arange(sizes[summed])
    beyond = np.flatnonzero(last.evaluate({summed: positions}) != positions)
    return int(beyond[0]) if len(beyond) else sizes[summed]


# ---------------------------------------------------------------------- split sums
def convolution_parts(nest: NestOp, options: TargetOptions) -> tuple[Symbol, int] | None:
    """The channels' axis and into how many parts to split it, if the grid would be too small.

    None: one sum is as fast, or the nest is already such a part.
    """
    roles, data = convolution_roles(nest), data_of(nest)
    if roles is None or data is None or any(a.extent.constant is None for a in nest.axes):
        return None
    channels = _channel_axes(nest.input_maps[data], roles)
    machine, whole = machine_of(options.features), _product(nest, roles, options)
    if roles.batch or (len(channels) != 1 and not _rows_run(nest)):
        return None
    if _rows_run(nest):
        sizes = _sizes(nest)
        axes = {n: a for a in reversed(roles.reduce) for n in divisors(sizes[a])
                if whole.depth // n >= LEAST}
        count = fastest_parts(whole, machine, axes)
        return (axes[count], count) if count > 1 else None
    count = parts_of(whole, machine, LEAST)
    return (channels.pop(), count) if count > 1 else None


def divisors(length: int) -> list[int]:
    return [n for n in range(2, length + 1) if length % n == 0]
