"""Reads and results of nests as loads and stores of tiles.

An axis at origin o with tile T becomes `o + t<d>` if it is dim d of the tile, and `o` if its tile
has one element. A buffer dim is checked if its index may leave the buffer, either because the read
is padded or because a tile reaches beyond the end of its axis. Sometimes a position beyond the end
of an axis is still inside the buffer, where other axes or another kernel write. A store's index is
then moved out of the buffer, so that the check masks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from dialects.block import LoadOp, StoreOp
from dialects.records import dataclass
from dialects.strata.types import BufferType
from dialects.symbolic.expr import Expr, maximum, minimum
from dialects.symbolic.ranges import is_at_most, is_nonnegative, lower_bound, upper_bound
from dialects.symbolic.symbol import Kind, Symbol
from passes.loop_to_block.state import AxisState, Layout, Symbols, Tile
from passes.rewrites.loop.nests import Read, gathered_inputs


@dataclass(frozen=True)
class Place:
    """Where a tile lies: per buffer dim an expression over `@` symbols and `t<d>`; checks."""

    exprs: tuple[Expr, ...]
    checks: tuple[int, ...]


def place(
    map_: Sequence[Expr], shape: Sequence[Expr], dims: Sequence[Symbol],
    states: Mapping[Symbol, AxisState], symbols: Symbols, padded: bool,
) -> Place:
    """The place of a tile whose dims are the given axes."""
    values = {a: _position(a, dims, s) for a, s in states.items() if s.origin is not None}
    tiles = {Symbol.place(d): states[a].tile for d, a in enumerate(dims)}
    ranges = symbols.extents | {name: Expr.of(n) for name, n in tiles.items()}
    exprs = [symbols.simplify(e.substitute(values), ranges) for e in map_]
    checks = [d for d, (before, expr) in enumerate(zip(map_, exprs, strict=True))
              if (padded or any(states[s].masked for s in before.symbols if s in states))
              and not symbols.stays_inside(expr, shape[d], tiles)]
    return Place(tuple(exprs), tuple(checks))


def _position(axis: Symbol, dims: Sequence[Symbol], state: AxisState) -> Expr:
    assert state.origin is not None
    return state.origin + Expr.place(dims.index(axis)) if axis in dims else state.origin


def load(
    buffer: SSAValue, read: Read, dims: Sequence[Symbol], states: Mapping[Symbol, AxisState],
    symbols: Symbols, layout: Layout, pad: float | bool,
) -> tuple[LoadOp, Tile]:
    """Load the elements that a read needs, as a tile whose dims are `dims`."""
    assert isinstance(buffer.type, BufferType)
    at = place(read.map, buffer.type.shape, dims, states, symbols, read.pad is not None)
    type_ = layout.tile_type(buffer.type.element, dims, states)
    exprs, values, index_dims = symbols.refer(at.exprs, dims)
    op = LoadOp.of(buffer, exprs, values, type_, checks=at.checks, index_dims=index_dims,
                   pad=read.pad if read.pad is not None else pad)
    return op, Tile(op.result, tuple(dims))


def store(
    tile: Tile, buffer: SSAValue, map_: Sequence[Expr], states: Mapping[Symbol, AxisState],
    symbols: Symbols,
) -> StoreOp:
    """Store a tile where a result map places it."""
    assert isinstance(buffer.type, BufferType)
    shape = buffer.type.shape
    inside = _without_masked(map_, shape, tile.axes, states)
    at = place(inside, shape, tile.axes, states, symbols, False)
    exprs, values, index_dims = symbols.refer(at.exprs, tile.axes)
    return StoreOp.of(tile.value, buffer, exprs, values, checks=at.checks, index_dims=index_dims)


def leaves(
    map_: Sequence[Expr], shape: Sequence[Expr], axis: Symbol, states: Mapping[Symbol, AxisState]
) -> bool:
    """Whether every position from the end of an axis on lies outside of the tensor."""
    ranges = {a: s.end + (s.tile if s.masked else 0) for a, s in states.items()}
    ranges[axis] = Expr.of(states[axis].tile)
    end = states[axis].end + Expr.symbol(axis)
    known = states.keys() - {a for a, s in states.items() if _varies(s.end)}
    return axis in known and any(
        _is_outside(e.substitute({axis: end}), size, ranges)
        for e, size in zip(map_, shape, strict=True)
        if axis in e.symbols and not _varies(e) and e.symbols & states.keys() <= known)


def _varies(expr: Expr) -> bool:
    """Whether an expression uses index values or gathered inputs, whose range is unknown."""
    return any(s.kind is Kind.COUNTER for s in expr.symbols) or bool(gathered_inputs([expr]))


def _is_outside(expr: Expr, size: Expr, ranges: Mapping[Symbol, Expr]) -> bool:
    low, high = lower_bound(expr, ranges), upper_bound(expr, ranges)
    return (low is not None and is_at_most(size, low)) or (
        high is not None and is_nonnegative(-high - 1))


def _without_masked(
    map_: Sequence[Expr], shape: Sequence[Expr], axes: Sequence[Symbol],
    states: Mapping[Symbol, AxisState],
) -> list[Expr]:
    """The map, with every position beyond an axis's end moved out of the buffer.

    The map names all axes of the tile, or says by gathered inputs where their elements go.
    """
    moved = list(map_)
    named = {s for e in map_ for s in e.symbols if s in states}
    for axis in sorted(a for a in named.union(axes) if states[a].masked):
        if not leaves(map_, shape, axis, states):
            d = next(d for d, e in enumerate(map_) if (
                axis in e.symbols if axis in named else _varies(e)))
            beyond = maximum(Expr.symbol(axis) - states[axis].end + 1, 0)
            moved[d] = moved[d] + shape[d] * minimum(beyond, 1)
    return moved

