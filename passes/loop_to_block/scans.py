"""Scans: the running result at each position of an axis, tile by tile.

    for each tile of j:   p = scan add x;  y = p + c  is stored;  c = c + reduce add x
"""

from __future__ import annotations

from dialects.block import ScanOp
from dialects.loop import NestOp
from passes.loop_to_block.state import Tile, tiled
from passes.loop_to_block.tiles import Tiles


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
