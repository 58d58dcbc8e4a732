"""Sums of products as `block.dot`: acc[m..., n] += a[m..., k] * b[k, n]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.ir import Block, SSAValue

from dialects import types as t
from dialects.block import DotOp
from dialects.loop import NestOp
from dialects.types import TileType
from passes.loop.nests import Read, reads_of
from passes.loop_to_block.access import load
from passes.loop_to_block.compute import map_tiles, select_identity, unsigned_factors
from passes.loop_to_block.state import Tile, tiled

if TYPE_CHECKING:
    from passes.loop_to_block.tiles import Tiles


def add_dot(tiles: Tiles, nest: NestOp) -> None:
    """Add a product to the open accumulator of a nest: the operand that lacks n is a."""
    tile, reads = tiles.open[nest], reads_of(nest)
    *rows, column = tile.axes
    (k,) = tiled((a.name for a in nest.reduce_axes), tiles.states, tiles.order)
    order = sorted(range(2), key=lambda i: any(column in e.symbols for e in reads[i].map))
    unclean = _unclean(tiles, nest, k, reads)
    factors = [_operand(tiles, nest, reads[i], dims)
               for i, dims in zip(order, ((*rows, k), (k, column)), strict=True)]
    a, b = (_zero_beyond(tiles, factor, k) if i in unclean else factor
            for i, factor in zip(order, factors, strict=True))
    precision = "tf32" if tiles.schedule.option("precision", "f32") == "tf32" else "ieee"
    tiles.source = nest
    unsigned = sorted(map(order.index, unsigned_factors(nest)))
    op = DotOp.of(a.value, b.value, tile.value, precision, unsigned)
    tiles.open[nest] = Tile(tiles.add(op).results[0], tile.axes)


def _unclean(tiles: Tiles, nest: NestOp, k: str, reads: Sequence[Read]) -> list[int]:
    """The factors that need to be 0 beyond the end of the summed axis, and are not yet.

    Of integers it is enough that one is 0; of floats the other may be no number.
    """
    if not tiles.states[k].masked:
        return []
    found = [i for i, read in enumerate(reads) if read.pad or not tiles.leaves(read, k)]
    return found if t.is_float(nest.yielded[0].type) else found[1:]


def _operand(tiles: Tiles, nest: NestOp, read: Read, dims: Sequence[str]) -> Tile:
    tiles.source = nest
    op, tile = load(tiles.buffers[read.value], read, dims, tiles.states, tiles.symbols,
                    tiles.layout_of(nest), 0)
    tiles.add(op)
    return tile


def _zero_beyond(tiles: Tiles, tile: Tile, axis: str) -> Tile:
    """The tile with 0 beyond the end of an axis."""
    def build(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        return [select_identity(block, arguments[1], arguments[0], "add")]

    type_ = tile.value.type
    assert isinstance(type_, TileType)
    op = tiles.add(map_tiles([tile, tiles.mask(axis)], tile.axes, [type_], build))
    return Tile(op.results[0], tile.axes)
