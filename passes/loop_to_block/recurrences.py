"""Recurrences: loops that carry a state from one point to the next.

    %s = load %first[...]
    %last = for each point of j carry %s:    %t = map (%s, what the other inputs read at %s)
"""

from __future__ import annotations

from dialects.loop import NestOp
from dialects.strata.types import TensorType
from passes.loop_to_block.compute import map_tiles
from passes.loop_to_block.state import Tile, tiled
from passes.loop_to_block.tiles import Tiles
from passes.rewrites.loop.nests import reads_of


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
