"""Scans and recurrences, which carry a state along an axis.

    a scan:        for each tile of j:   p = scan add x;  y = p + c  is stored
                                         c = c + reduce add x
    a recurrence:  %s = load %first[...]
                   %last = for each point of j carry %s:
                       %t = map (%s, what the other inputs read at %s)
"""

from __future__ import annotations

from dialects.block import ScanOp
from dialects.loop import NestOp
from dialects.strata.types import TensorType
from passes.loop_to_block.compute import map_tiles
from passes.loop_to_block.state import Tile, tiled
from passes.loop_to_block.tiles import Tiles
from passes.rewrites.loop.nests import reads_of


def add_scan(tiles: Tiles, nest: NestOp) -> None:
    """One tile of a scan, continued from its accumulator if a loop walks the axis."""
    [axis], before = [a.name for a in nest.reduce_axes], tiles.open.get(nest)
    dims = tiled((a.name for a in nest.axes), tiles.states, tiles.order)
    if axis not in dims:
        found = after = tiles.combined(nest, dims, before)
    else:
        part = tiles.combined(nest, dims, None)
        op = tiles.add(ScanOp.of(nest.combiner_names[0], part.value, dims.index(axis)))
        found, after = Tile(op.results[0], tuple(dims)), part
        if before is not None:
            found = tiles.added(nest, found, before)
            after = tiles.added(nest, tiles.reduce_dims(nest, part), before)
    if before is not None:
        tiles.open[nest] = after
    tiles.publish(nest, nest.results[0], found)


def first_state(tiles: Tiles, nest: NestOp) -> Tile:
    """The state before the first point, as a tile over all tiled axes of the nest."""
    read = tiles.read(nest, reads_of(nest)[0], [])
    tiles.source = nest
    dims = tiled((a.name for a in nest.parallel_axes), tiles.states, tiles.order)
    if dims == list(read.axes):
        return read
    result = nest.results[0].type
    assert isinstance(result, TensorType)
    type_ = tiles.layout.tile_type(result.element, dims, tiles.states)
    op = tiles.add(map_tiles([read], dims, [type_], lambda block, arguments: arguments))
    return Tile(op.results[0], tuple(dims))
