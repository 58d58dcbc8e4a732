"""Sums of products in matrix registers, and the memory that they are read from afterwards.

    schedule<grid i1 tile 32 lanes, loop i0 tile 32 matrix, loop i2 tile 32 matrix, loop i0 tile 4>
    ->  block.for %i0 = 0 to 128 step 32 parallel {
          %c = block.for %i2 = 0 to 768 step 32 (...) { block.dot ... : tile<(32x32)xf32> }
          %s = block.scratch : f32[32, 32]
          block.store %c, %s[t0, t1]
          block.for %r = %i0 to %i0 + 32 step 4 parallel {
            %v = block.load %s[%r - %i0 + t0, t1] : tile<4x[32]xf32> ...

Only sums of products are computed in matrix registers. While they accumulate, their rows are those
of the `matrix` level; nests that use the finished sums walk the rows by further levels.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from dialects.block import ScratchOp, StoreOp
from dialects.strata.types import BufferType, SizesAttr, TileType
from dialects.symbolic.expr import Expr
from passes.loop_to_block.access import load
from passes.loop_to_block.place import Place
from passes.loop_to_block.state import Sums, Tile, tiled


def keep_sums(place: Place, value: SSAValue, tile: Tile) -> None:
    """Store the finished tile of a value in memory."""
    type_ = tile.value.type
    assert isinstance(type_, TileType)
    memory = place.add(ScratchOp.of(BufferType(type_.element, SizesAttr.of(type_.shape))))
    places = [Expr.place(d) for d in range(type_.rank)]
    place.add(StoreOp.of(tile.value, memory.results[0], places, []))
    origins = [place.states[a].origin for a in tile.axes]
    place.sums[value] = Sums(
        memory.results[0], tile.axes, tuple(o for o in origins if o is not None))


def sum_here(place: Place, value: SSAValue) -> Tile:
    """The part of a finished tile that belongs to the current point of the program."""
    known = place.find(value)
    if known is None:
        sums = place.sums[value]
        dims = tiled(sums.axes, place.states, place.order)
        op, known = load(sums.memory, sums.read(value), dims, place.states, place.symbols,
                         place.layout, 0)
        place.scopes[-1].results[value] = known
        place.add(op)
    return known
