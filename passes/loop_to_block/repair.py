"""Products by `block.dot` whose terms count only where a factor is read inside its tensor.

    select(i - j >= 0, x[i - j] * w[j], 0)     x[...] has the pad 0
    ->  total = dot(x, w)                      adds 0 * w outside: 0, or NaN if w is infinite or NaN
        for _ in 0 .. any(total is NaN):       no trip, or one
          total = the sum as it is written, element by element

The second sum is exact wherever the first one is NaN, and nothing runs it for finite numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Attribute, Block, SSAValue

from dialects.block import ForOp, FullOp, ReduceOp, YieldOp
from dialects.loop import Axis, NestOp
from dialects.strata.types import TileType, i32, tile
from dialects.symbolic.expr import Expr
from passes.loop_to_block.compute import is_guarded_dot, map_tiles
from passes.loop_to_block.place import Scope
from passes.loop_to_block.state import Tile
from passes.loop_to_block.tiles import Tiles


def repair(tiles: Tiles, nest: NestOp) -> None:
    """Sum the open accumulator of a product again, where it holds NaN."""
    if not is_guarded_dot(nest) or not tiles.uses_dot(nest):
        return
    tiles.source = nest
    total = tiles.open[nest]
    loop, outer = _open_loop(tiles, nest, tiles.symbols.gathered(_has_nan(tiles, total))), (
        tiles.block)
    tiles.block = loop.body.block
    _start(tiles, nest)
    _sum(tiles, nest, nest.reduce_axes)
    _close_loop(tiles, nest, loop, outer)


def _has_nan(tiles: Tiles, total: Tile) -> Tile:
    """1 if a tile holds NaN, else 0."""
    type_ = total.value.type
    assert isinstance(type_, TileType)

    def is_nan(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        compare = arith.CmpfOp(arguments[0], arguments[0], "une")
        number = arith.ExtUIOp(compare.result, i32)
        block.add_ops([compare, number])
        return number.results

    flags: Attribute = tile(i32, [n for n in type_.shape])
    assert isinstance(flags, TileType)
    found = tiles.add(map_tiles([total], total.axes, [flags], is_nan)).results[0]
    for dim in reversed(range(len(total.axes))):
        found = tiles.add(ReduceOp.of("max", found, dim)).results[0]

    def as_index(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        cast = arith.IndexCastOp(arguments[0], IndexType())
        block.add_op(cast)
        return cast.results

    type_ = tile(IndexType(), [])
    return Tile(tiles.add(map_tiles([Tile(found, ())], (), [type_], as_index)).results[0], ())


def _start(tiles: Tiles, nest: NestOp) -> None:
    """Begin the sum again, at 0."""
    total = tiles.open[nest]
    assert isinstance(total.value.type, TileType)
    zero = tiles.add(FullOp.of(0.0, total.value.type)).results[0]
    tiles.open[nest] = Tile(zero, total.axes)


def _sum(tiles: Tiles, nest: NestOp, axes: Sequence[Axis]) -> None:
    """Add the terms of all positions of some axes, one after another."""
    if not axes:
        total = tiles.open[nest]
        tiles.open[nest] = tiles.combined(nest, list(total.axes), total)
        return
    name, extent, before = axes[0].name, axes[0].extent, tiles.states[axes[0].name]
    loop, outer = _open_loop(tiles, nest, extent), tiles.block
    loop.counter.name_hint = name.name
    counter = tiles.symbols.index(loop.counter, extent)
    tiles.states[name] = replace(before, origin=counter, tile=1, masked=False)
    tiles.block = loop.body.block
    _sum(tiles, nest, axes[1:])
    _close_loop(tiles, nest, loop, outer)
    tiles.states[name] = before


def _open_loop(tiles: Tiles, nest: NestOp, upper: Expr) -> ForOp:
    """A loop from 0 that carries the sum, whose argument is the open accumulator."""
    [end], indices, _ = tiles.symbols.refer([upper], [])
    total = tiles.open[nest]
    loop = ForOp.of(0, end, 1, indices, [total.value])
    tiles.open[nest] = Tile(loop.body.block.args[1], total.axes)
    tiles.scopes.append(Scope())
    return loop


def _close_loop(tiles: Tiles, nest: NestOp, loop: ForOp, outer: Block) -> None:
    total = tiles.open[nest]
    tiles.scopes.pop()
    tiles.block.add_op(YieldOp.of(total.value))
    tiles.block = outer
    tiles.open[nest] = Tile(tiles.add(loop).results[0], total.axes)
