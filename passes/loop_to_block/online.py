"""Sums that are rescaled while the maximum that they subtract grows (see `passes.loop.online`).

    for each tile of j:   n = max(m, reduce max x)
                          l, y *= exp(m - n)
                          p = exp(x - n);  l += reduce add p;  y += dot p, v;  m = n

As long as all of a row is -inf, so is its maximum: then 0 is subtracted instead, for exp(-inf) to
be 0 and not exp(-inf + inf). A row that stays so ends with sums of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from xdsl.dialects import arith, math
from xdsl.ir import Block, Operation, SSAValue

from dialects.loop import NestOp
from dialects.types import TileType
from passes.loop_to_block.compute import map_tiles, scalar_constant
from passes.loop_to_block.state import Tile

if TYPE_CHECKING:
    from passes.loop_to_block.tiles import Tiles

Function = type[math.ExpOp] | type[math.Exp2Op]


def follow(tiles: Tiles, nest: NestOp, before: Tile) -> None:
    """Let open sums follow an accumulator that was `before`, if they are online on it."""
    result = nest.results[0]
    followers = [n for n, running in tiles.online.items()
                 if running.maximum is result and n in tiles.open]
    if not followers:
        return
    tiles.source = nest
    now = tiles.open[nest]
    tiles.scopes[-1].results[result] = _map(tiles, [now], now, _zero_for_nothing)
    factors: dict[Function, Tile] = {}
    for follower in followers:
        function = tiles.online[follower].function
        if function not in factors:
            factors[function] = _map(tiles, [before, now], now, _change(function))
        total = tiles.open[follower]
        tiles.open[follower] = _map(tiles, [total, factors[function]], total, _scaled)


def _map(
    tiles: Tiles, inputs: Sequence[Tile], like: Tile,
    body: Callable[[Block, Sequence[SSAValue]], Operation],
) -> Tile:
    """A tile of the kind of another one; the last operation of the body gives its elements."""
    def build(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        last = body(block, arguments)
        block.add_op(last)
        return [last.results[0]]

    assert isinstance(like.value.type, TileType)
    op = tiles.add(map_tiles(inputs, like.axes, [like.value.type], build))
    return Tile(op.results[0], like.axes)


def _zero_for_nothing(block: Block, arguments: Sequence[SSAValue]) -> Operation:
    """m, or 0 where m is -inf."""
    [m] = arguments
    lowest, zero = (scalar_constant(v, m.type) for v in (-np.inf, 0.0))
    nothing = arith.CmpfOp(m, lowest.results[0], "oeq")
    block.add_ops([lowest, zero, nothing])
    return arith.SelectOp(nothing.result, zero.results[0], m)


def _change(function: Function) -> Callable[[Block, Sequence[SSAValue]], Operation]:
    """exp(m - n), which is 1 where both are -inf, too."""
    def body(block: Block, arguments: Sequence[SSAValue]) -> Operation:
        before, now = arguments
        one = scalar_constant(1.0, now.type)
        same = arith.CmpfOp(before, now, "oeq")
        difference = arith.SubfOp(before, now)
        factor = function(difference.result)
        block.add_ops([one, same, difference, factor])
        return arith.SelectOp(same.result, one.results[0], factor.result)

    return body


def _scaled(block: Block, arguments: Sequence[SSAValue]) -> Operation:
    del block
    total, factor = arguments
    return arith.MulfOp(total, factor)
