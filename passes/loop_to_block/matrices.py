"""Sums of products in matrix registers, and the memory in which they are read afterwards.

    schedule<grid i1 tile 32 lanes, loop i0 tile 32 matrix, loop i2 tile 32 matrix, loop i0 tile 4>
    ->  block.for %i0 = 0 to 128 step 32 parallel {
          %c = block.for %i2 = 0 to 768 step 32 (...) { block.dot ... : tile<(32x32)xf32> }
          %s = block.scratch : f32[32, 32]
          block.store %c, %s[t0, t1]
          block.for %r = %i0 to %i0 + 32 step 4 parallel {
            %v = block.load %s[%r - %i0 + t0, t1] : tile<4x[32]xf32> ...

Nothing but a sum of products is computed in matrix registers. While it is summed up, its rows are
those of the level `matrix`; what is made of it walks them by further levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from dialects.block import ScratchOp, StoreOp
from dialects.expr import Expr
from dialects.loop import NestOp
from dialects.schedule import Schedule
from dialects.symbol import Symbol
from dialects.types import BufferType, SizesAttr, TileType
from passes.loop.nests import Read
from passes.loop_to_block.access import load
from passes.loop_to_block.compute import is_dot
from passes.loop_to_block.state import Tile, tiled

if TYPE_CHECKING:
    from passes.loop_to_block.tiles import Tiles


@dataclass(frozen=True)
class Sums:
    """Memory that holds a finished tile of sums: along which axes, and where they start there."""

    memory: SSAValue
    axes: tuple[Symbol, ...]
    origins: tuple[Expr, ...]

    def read(self, value: SSAValue) -> Read:
        """Where the sums at any place of the axes are."""
        return Read(value, tuple(
            Expr.symbol(a) - o for a, o in zip(self.axes, self.origins, strict=True)))


def lies_in_matrices(nest: NestOp, schedule: Schedule) -> bool:
    """Whether a nest is summed up in matrix registers."""
    return is_dot(nest) and any(a.name in schedule.matrix for a in nest.reduce_axes)


def keep_sums(tiles: Tiles, value: SSAValue, tile: Tile) -> None:
    """Bring the finished tile of a value to memory."""
    type_ = tile.value.type
    assert isinstance(type_, TileType)
    memory = tiles.add(ScratchOp.of(BufferType(type_.element, SizesAttr.of(type_.shape))))
    places = [Expr.place(d) for d in range(type_.rank)]
    tiles.add(StoreOp.of(tile.value, memory.results[0], places, []))
    origins = [tiles.states[a].origin for a in tile.axes]
    tiles.sums[value] = Sums(
        memory.results[0], tile.axes, tuple(o for o in origins if o is not None))


def sum_here(tiles: Tiles, value: SSAValue) -> Tile:
    """The part of a finished tile at the place where operations are being added."""
    known = tiles.find(value)
    if known is None:
        sums = tiles.sums[value]
        dims = tiled(sums.axes, tiles.states, tiles.order)
        op, known = load(sums.memory, sums.read(value), dims, tiles.states, tiles.symbols,
                         tiles.layout, 0)
        tiles.scopes[-1].results[value] = known
        tiles.add(op)
    return known
