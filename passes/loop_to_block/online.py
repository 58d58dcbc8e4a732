"""Online sums: rescaled whenever the maximum that they subtract grows.

    for each tile of j:   n = max(m, reduce max x)
                          l, y *= exp(m - n)
                          p = exp(x - n);  l += reduce add p;  y += dot p, v;  m = n

`passes.analyses.loop.online` finds these nests. The maximum starts at the lowest finite number, so
that exp(x - n) is 0 and not NaN as long as all of a row is -inf. A row that is all -inf ends with
sums of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue

from dialects.loop import NestOp
from dialects.strata.types import TileType, dtype_of
from dialects.symbolic.expr import Expr, maximum, minimum
from dialects.symbolic.ranges import is_at_most, is_nonnegative, lower_bound, upper_bound
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.limits import Limit, extremes
from passes.analyses.loop.online import argument_read, elementwise_maker
from passes.loop_to_block.compute import identity, map_tiles
from passes.loop_to_block.state import AxisState, Tile
from passes.loop_to_block.tiles import Tiles
from passes.rewrites.loop.nests import Read, reads_of

Function = type[math.ExpOp] | type[math.Exp2Op]


def follow(tiles: Tiles, nest: NestOp, before: Tile, now: Tile) -> None:
    """Rescale the open sums that are online on a maximum, for which they have `before` so far."""
    result = nest.results[0]
    followers = [n for n, running in tiles.online.items()
                 if running.maximum is result and n in tiles.open]
    if not followers:
        return
    tiles.source = nest
    tiles.scopes[-1].results[result] = now
    factors: dict[Function, Tile] = {}
    for follower in followers:
        function = tiles.online[follower].function
        if function not in factors:
            factors[function] = _map(tiles, [before, now], before, _change(function))
        total = tiles.open[follower]
        tiles.open[follower] = _map(tiles, [total, factors[function]], total, _scaled)


def _map(
    tiles: Tiles, inputs: Sequence[Tile], like: Tile,
    body: Callable[[Block, Sequence[SSAValue]], Operation],
) -> Tile:
    """A tile of the same type as `like`; the last operation of the body computes its elements."""
    def build(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        last = body(block, arguments)
        block.add_op(last)
        return [last.results[0]]

    assert isinstance(like.value.type, TileType)
    op = tiles.add(map_tiles(inputs, like.axes, [like.value.type], build))
    return Tile(op.results[0], like.axes)


def _change(function: Function) -> Callable[[Block, Sequence[SSAValue]], Operation]:
    """exp(m - n)."""
    def body(block: Block, arguments: Sequence[SSAValue]) -> Operation:
        difference = arith.SubfOp(arguments[0], arguments[1])
        block.add_op(difference)
        return function(difference.result)

    return body


def _scaled(block: Block, arguments: Sequence[SSAValue]) -> Operation:
    total, factor = arguments
    return arith.MulfOp(total, factor)


def start(tiles: Tiles, nest: NestOp, element: Attribute) -> float | bool:
    """The initial value of an accumulator."""
    if tiles.is_followed(nest):
        return -float(np.finfo(dtype_of(element)).max)
    return identity(nest.combiner_names[0], element)


def row_maximum(tiles: Tiles, nest: NestOp, kept: Sequence[Symbol]) -> Tile | None:
    """The maximum of x*c over a tile for a constant c > 0, computed as the maximum of x, times c.

    None if the nest has no such form. `kept`: the dims that are not reduced.
    """
    if not tiles.is_followed(nest) or any(tiles.states[a.name].masked for a in nest.reduce_axes):
        return None
    found = _scaled_input(tiles, nest)
    if found is None:
        return None
    read, factor = found
    total = tiles.reduce_dims(nest, tiles.read(nest, read, []), kept)

    def body(block: Block, arguments: Sequence[SSAValue]) -> Operation:
        constant = factor.clone()
        block.add_op(constant)
        return arith.MulfOp(arguments[0], constant.result)

    return _map(tiles, [total], total, body)


def _scaled_input(tiles: Tiles, nest: NestOp) -> tuple[Read, arith.ConstantOp] | None:
    """(x, c) if a nest reduces a value that another one computes as x*c, for c > 0."""
    made = elementwise_maker(reads_of(nest)[0]) if len(nest.inputs) == 1 else None
    if made is None or nest.yielded[0] is not nest.body.block.args[0]:
        return None
    maker, value = made
    while isinstance(value.owner, Operation) and value.owner in tiles.decided:
        value = tiles.decided[value.owner]
    product = value.owner
    if not isinstance(product, arith.MulfOp) or not isinstance(product.lhs.owner, Block):
        return None
    factor = product.rhs.owner
    if not isinstance(factor, arith.ConstantOp) or not isinstance(factor.value, FloatAttr):
        return None
    positive = 0 < factor.value.value.data < np.inf
    return (argument_read(maker, product.lhs), factor) if positive else None


def first_step(tiles: Tiles, limit: Limit, state: AxisState, step: int) -> Expr:
    """Where the first of the current rows begins, rounded down to whole steps."""
    bounds = None if limit.begin is None else extremes(limit.begin, _rows(tiles, limit.begin))
    if bounds is None:
        return state.lower
    begin = state.lower + (bounds[0] - state.lower) // step * step
    return _not_before(tiles, tiles.symbols.simplify(begin, tiles.symbols.extents), state.lower)


def reach(
    tiles: Tiles, limit: Limit, state: AxisState, begin: Expr, step: int
) -> tuple[Expr, Expr]:
    """How far all of the current rows reach, in whole steps from `begin`; how far the longest does.
    """
    if limit.end is None:
        return begin, state.upper
    first, last = extremes(limit.end, _rows(tiles, limit.end)) or (begin, state.upper)
    sure = begin + (_smaller(tiles, first, state.upper) - begin) // step * step
    sure = tiles.symbols.simplify(sure, tiles.symbols.extents)
    return _not_before(tiles, sure, begin), _smaller(tiles, last, state.upper)


def ends_inside(limit: Limit, extents: Mapping[Symbol, Expr]) -> bool:
    """Whether no row reaches beyond the end of its axis, so that comparing with the row's end is
    enough."""
    beyond = None if limit.end is None else upper_bound(
        limit.end - extents[limit.axis], {a: e for a, e in extents.items() if a != limit.axis})
    return beyond is not None and is_nonnegative(-beyond)


def first_part(tiles: Tiles, limit: Limit, state: AxisState, step: int) -> Expr | None:
    """How far the current tile reads the first parts of factors alone, in whole steps; None if that
    differs between its elements."""
    assert limit.end is not None
    rows = _rows(tiles, limit.end)
    if any(size != 1 for _, _, size in rows) or (
            limit.symbols & tiles.states.keys() != {name for name, _, _ in rows}):
        return None
    end = limit.end.substitute({name: start for name, start, _ in rows})
    sure = state.lower + (_smaller(tiles, end, state.upper) - state.lower) // step * step
    return _not_before(tiles, tiles.symbols.simplify(sure, tiles.symbols.extents), state.lower)


def _rows(tiles: Tiles, bound: Expr) -> list[tuple[Symbol, Expr, int]]:
    """The axes of rows on which a bound depends, with the place of their tiles."""
    return [(a, s.origin, s.tile) for a, s in tiles.states.items()
            if s.origin is not None and a in bound.symbols]


def _not_before(tiles: Tiles, place: Expr, lower: Expr) -> Expr:
    """The place, or `lower` where it is smaller."""
    low = lower_bound(place - lower, tiles.symbols.extents)
    return place if low is not None and is_nonnegative(low) else maximum(place, lower)


def _smaller(tiles: Tiles, bound: Expr, upper: Expr) -> Expr:
    high = upper_bound(bound, tiles.symbols.extents)
    return bound if high is not None and is_at_most(high, upper) else minimum(bound, upper)
