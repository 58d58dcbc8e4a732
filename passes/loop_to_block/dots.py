"""Sums of products as `block.dot`: acc[m..., n] += a[m..., k] * b[k, n]."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, SSAValue

from dialects.block import DotOp, element_type
from dialects.loop import NestOp
from dialects.strata import types as t
from dialects.strata.schedule_options import DOT, PRECISION
from dialects.strata.types import TileType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.loop_to_block.access import load
from passes.loop_to_block.compute import (
    map_tiles,
    select_identity,
    unsigned_factors,
)
from passes.loop_to_block.state import Tile, tiled
from passes.loop_to_block.tiles import Tiles
from passes.rewrites.loop.nests import Read, axes_of_input, data_inputs, gathered_inputs, reads_of


def add_dot(tiles: Tiles, nest: NestOp) -> None:
    """Add a product to the open accumulator of a nest; the operand without the dim n becomes a."""
    tile, reads = tiles.open[nest], reads_of(nest)
    *rows, column = tile.axes
    (k,) = tiled((a.name for a in nest.reduce_axes), tiles.states, tiles.order)
    order = sorted(data_inputs(nest), key=lambda i: column in axes_of_input(nest, i))
    unclean = _unclean(tiles, nest, k, reads)
    factors = [_factor(tiles, nest, i, dims)
               for i, dims in zip(order, ((*rows, k), (k, column)), strict=True)]
    a, b = (_zero_beyond(tiles, factor, k) if i in unclean else factor
            for i, factor in zip(order, factors, strict=True))
    asked = tiles.schedule.option(PRECISION)
    precision = asked if asked in ("tf32", "tf32x3") else "ieee"
    tiles.source = nest
    unsigned = sorted(map(order.index, unsigned_factors(nest)))
    op = DotOp.of(a.value, b.value, tile.value, precision, unsigned)
    tiles.open[nest] = Tile(tiles.add(op).results[0], tile.axes)


def load_factors(tiles: Tiles, nests: Sequence[NestOp], axis: Symbol, walked: set[Symbol]) -> None:
    """Hoist loads for products out of a loop over `axis`. These are factors that use none of the
    axes still to be walked, and indices that say where factors are. The summed axis is the last
    dim."""
    for nest in nests:
        summed = {a.name for a in nest.reduce_axes}
        if not (tiles.schedule.option(DOT) and tiles.uses_dot(nest)):
            continue
        if axis in summed:
            _load_indices(tiles, nest, walked)
            continue
        for i, read in enumerate(reads_of(nest)):
            axes = {s for e in read.map for s in e.symbols if s in tiles.states}
            if read.value in tiles.buffers and summed <= axes and not axes & walked:
                dims = tiled(axes, tiles.states, tiles.order)
                dims.sort(key=summed.__contains__)
                tiles.scopes[-1].factors[nest, i] = _load(tiles, nest, read, dims)


def _load_indices(tiles: Tiles, nest: NestOp, walked: set[Symbol]) -> None:
    """Load the indices of factors that are the same in every step."""
    for i in sorted(set(range(len(nest.inputs))) - {*data_inputs(nest)}):
        if not axes_of_input(nest, i) & walked:
            tiles.scopes[-1].factors[nest, i] = _index(tiles, nest, i)


def _unclean(tiles: Tiles, nest: NestOp, k: Symbol, reads: Sequence[Read]) -> list[int]:
    """The factors that must be 0 beyond the end of the summed axis, but are not yet.

    For integers it is enough if one factor is 0; for floats the other one may be NaN or infinite.
    """
    if not tiles.states[k].masked or k in tiles.ended:
        return []
    found = [i for i in data_inputs(nest) if reads[i].pad or (
        reads[i].value not in tiles.buffers) or not tiles.leaves(reads[i], k)]
    return found if t.is_float(nest.yielded[0].type) else found[1:]


def _factor(tiles: Tiles, nest: NestOp, number: int, dims: Sequence[Symbol]) -> Tile:
    """A factor with these dims: loaded before, computed by another nest, or loaded now."""
    read = reads_of(nest)[number]
    loaded = _loaded(tiles, nest, number)
    if loaded is not None and loaded.axes == tuple(dims):
        return loaded
    made = tiles.made_here(read)
    return _operand(tiles, nest, read, dims) if made is None else _spread(tiles, nest, made, dims)


def _operand(tiles: Tiles, nest: NestOp, read: Read, dims: Sequence[Symbol]) -> Tile:
    """A factor that is loaded now, or that another product of the same step has loaded."""
    if not tiles.schedule.option(DOT) or gathered_inputs(read.map):
        return _load(tiles, nest, read, dims)
    known = tiles.scopes[-1].operands
    if read.key() not in known:
        known[read.key()] = _load(tiles, nest, read, dims)
    return _spread(tiles, nest, known[read.key()], dims)


def _loaded(tiles: Tiles, nest: NestOp, number: int) -> Tile | None:
    """An input that was loaded before a loop."""
    return next((s.factors[nest, number] for s in reversed(tiles.scopes)
                 if (nest, number) in s.factors), None)


def _load(tiles: Tiles, nest: NestOp, read: Read, dims: Sequence[Symbol]) -> Tile:
    moved = Read(read.value, _gathered(tiles, nest, read), read.pad)
    tiles.source = nest
    op, tile = load(tiles.buffers[read.value], moved, dims, tiles.states, tiles.symbols,
                    tiles.layout_of(nest), 0)
    tiles.add(op)
    return tile


def _gathered(tiles: Tiles, nest: NestOp, read: Read) -> tuple[Expr, ...]:
    """Where a factor is read, with tiles of indices as symbols."""
    symbols = {Symbol.gathered(k): tiles.symbols.gathered(_index(tiles, nest, k))
               for k in sorted(gathered_inputs(read.map))}
    return tuple(e.substitute(symbols) for e in read.map)


def _index(tiles: Tiles, nest: NestOp, number: int) -> Tile:
    """An index input: loaded before, computed by another nest, or loaded now."""
    read = reads_of(nest)[number]
    found = _loaded(tiles, nest, number) or tiles.made_here(read)
    dims = tiled(axes_of_input(nest, number), tiles.states, tiles.order)
    return _load(tiles, nest, read, dims) if found is None else found


def _spread(tiles: Tiles, nest: NestOp, tile: Tile, dims: Sequence[Symbol]) -> Tile:
    """The tile of a nest's result with other dims: reordered, or broadcast along new ones."""
    if tile.axes == tuple(dims):
        return tile
    tiles.source = nest
    element = element_type(tile.value)
    type_ = tiles.layout_of(nest).tile_type(element, dims, tiles.states)
    op = tiles.add(map_tiles([tile], dims, [type_], lambda _, arguments: arguments))
    return Tile(op.results[0], tuple(dims))


def _zero_beyond(tiles: Tiles, tile: Tile, axis: Symbol) -> Tile:
    """The tile with zeros beyond the end of an axis."""
    def build(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        return [select_identity(block, arguments[1], arguments[0], "add")]

    type_ = tile.value.type
    assert isinstance(type_, TileType)
    op = tiles.add(map_tiles([tile, tiles.mask(axis)], tile.axes, [type_], build))
    return Tile(op.results[0], tile.axes)
