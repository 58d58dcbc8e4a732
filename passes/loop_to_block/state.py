"""The current point of the program: origin and tile of each axis, and how names map to values.

Index expressions are built over symbols `@0`, `@1` ..., each standing for an SSA index value (a
program id, a loop counter) or a tile of gathered indices. `Symbols.refer` turns them into the
operand list and the `%k` symbols that block operations expect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple, TypeAlias

from xdsl.ir import Attribute, SSAValue

from dialects.loop import NestOp
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.strata.schedule import Level, Schedule
from dialects.strata.types import TileType
from dialects.symbolic.expr import Call, Expr, maximum, minimum
from dialects.symbolic.ranges import is_at_most, is_nonnegative, lower_bound, simplify, upper_bound
from dialects.symbolic.symbol import Kind, Symbol
from passes.analyses.loop.borders import bounds_inside
from passes.rewrites.loop.nests import Read, has_calls


@dataclass(frozen=True)
class AxisState:
    """An axis inside one scope. `origin` is where the current tile starts, and `tile` is its
    length. If `masked`, the tile may reach `end` and beyond, and positions from `end` on do not
    count. While further levels of the axis are still to come, `origin` is None, and the positions
    with lower <= axis < upper are left to walk."""

    lower: Expr
    upper: Expr
    end: Expr
    origin: Expr | None = None
    tile: int = 1
    masked: bool = False


class Tile(NamedTuple):
    """A tile, and the axis of each of its dims."""

    value: SSAValue
    axes: tuple[Symbol, ...]


class Layout(NamedTuple):
    """The axis that lies in vector lanes, and the axis whose groups share a lane; None if none."""

    lanes: Symbol | None
    group: Symbol | None
    matrix: bool = False
    """Whether tiles lie in matrix registers and therefore have no lanes."""

    def tile_type(
        self, element: Attribute, dims: Sequence[Symbol], states: Mapping[Symbol, AxisState]
    ) -> TileType:
        """The type of a tile whose dims are these axes."""
        lanes, group = (dims.index(a) if a in dims else None for a in (self.lanes, self.group))
        return t.tile(t.signless(element), [states[a].tile for a in dims], lanes, group,
                      self.matrix)


@dataclass
class Symbols:
    """The symbols in use, the values they stand for, and their ranges."""

    values: dict[Symbol, SSAValue] = field(default_factory=dict[Symbol, SSAValue])
    tiles: dict[Symbol, tuple[Symbol, ...]] = field(
        default_factory=dict[Symbol, tuple[Symbol, ...]])
    """For symbols of gathered index tiles: the axes of the tile's dims."""
    extents: dict[Symbol, Expr] = field(default_factory=dict[Symbol, Expr])
    """For index values: one more than the largest value. Gathered indices have no range."""
    steps: dict[Symbol, int] = field(default_factory=dict[Symbol, int])
    """For index values: the step of which they are multiples."""

    def index(self, value: SSAValue, extent: Expr, step: int = 1) -> Expr:
        """A symbol for an index value with 0 <= value < extent, a multiple of `step`."""
        name = Symbol.counter(f"@{len(self.values)}")
        self.values[name] = value
        self.extents[name] = extent
        self.steps[name] = step
        return Expr.symbol(name)

    def simplify(self, expr: Expr, ranges: Mapping[Symbol, Expr]) -> Expr:
        """Simplify divisions that ranges and steps decide: (@0 + t0) mod 4 == t0.

        Where steps allow, a remaining division is moved to the part that is the same for a whole
        tile.
        """
        steps = {s: self.steps[s] for s in expr.symbols if self.steps.get(s, 1) > 1}
        if not steps or not has_calls([expr]):
            return simplify(expr, ranges)
        counts = {s: ranges[s].ceildiv(step) for s, step in steps.items()}
        counted = expr.substitute({s: Expr.symbol(s) * step for s, step in steps.items()})
        simple = simplify(counted, {**ranges, **counts})
        called = Expr(tuple(term for term in simple.terms if has_calls([Expr((term,))])))
        found = (simple - called).linear(steps)
        plain = simplify(expr, ranges)
        if found is None or (_divides_mixed(called, steps.keys(), ranges.keys()) and not (
                _divided_places(called) < _divided_places(plain))):
            return plain
        factors, total = found
        for name, factor in factors.items():  # of the count: step*count is the value itself
            whole, rest = factor.divide(Expr.of(steps[name]))
            value = Expr.symbol(name)
            total = total + whole * value + rest * (value // steps[name])
        return total + called.substitute({s: Expr.symbol(s) // n for s, n in steps.items()})

    def rest(self, expr: Expr, divisor: int) -> Expr:
        """The remainder of a division, as far as steps decide it: the counter of an outer loop over
        tiles of 512 is a multiple of 2."""
        ranges = {s: self.extents[s] for s in expr.symbols if s in self.extents}
        return self.simplify(expr % divisor, ranges)

    def gathered(self, tile: Tile) -> Expr:
        """A symbol for the values of a tile of gathered indices."""
        name = Symbol.counter(f"@{len(self.values)}")
        self.values[name] = tile.value
        self.tiles[name] = tile.axes
        return Expr.symbol(name)

    def refer(
        self, exprs: Sequence[Expr], dims: Sequence[Symbol]
    ) -> tuple[list[Expr], list[SSAValue], list[list[int]]]:
        """Expressions over `%k` symbols, the operands these name, and their dims in `dims`."""
        order = {s: k for k, s in enumerate(self.values)}
        names = sorted({s for e in exprs for s in e.symbols if s in order}, key=lambda s: order[s])
        values: list[SSAValue] = []
        numbers: dict[Symbol, Expr] = {}
        places: list[list[int]] = []
        for name in names:
            value = self.values[name]
            if value not in values:
                values.append(value)
                places.append([dims.index(a) for a in self.tiles.get(name, ())])
            numbers[name] = Expr.operand(values.index(value))
        return [e.substitute(numbers) for e in exprs], values, places

    def is_at_most(self, expr: Expr, bound: Expr) -> bool:
        """Whether an expression certainly exceeds another one for no values of index symbols."""
        low = lower_bound(bound - expr, self.extents)
        return low is not None and is_nonnegative(low)

    def stays_inside(self, expr: Expr, size: Expr, tiles: Mapping[Symbol, int]) -> bool:
        """Whether 0 <= expr < size for all values of index symbols and tile positions."""
        if any(s in self.tiles for s in expr.symbols):
            return False
        ranges = self.extents | {t: Expr.of(n) for t, n in tiles.items()}
        low, high = lower_bound(expr, ranges), upper_bound(expr, ranges)
        return (low is not None and high is not None and is_nonnegative(low)
                and is_at_most(high, size - 1))


def _divides_mixed(expr: Expr, some: Collection[Symbol], ranged: Collection[Symbol]) -> bool:
    """Whether one division involves both some of the symbols and other symbols with ranges."""
    divided = [a.symbols & {*ranged} for m, _ in expr.terms for a in m
               if isinstance(a, Call)]
    return any(symbols & {*some} and symbols - {*some} for symbols in divided)


def _divided_places(expr: Expr) -> set[Symbol]:
    """The dims of a tile along which a division differs."""
    return {s for m, _ in expr.terms for a in m if isinstance(a, Call)
            for s in a.symbols if s.kind is Kind.PLACE}


def tiled(
    axes: Iterable[Symbol], states: Mapping[Symbol, AxisState], order: Sequence[Symbol]
) -> list[Symbol]:
    """The axes that are dims of a tile at this point, in the order of dims."""
    wanted = set(axes)
    return [a for a in order if a in wanted and states[a].tile > 1]


class Sums(NamedTuple):
    """Memory that holds a finished tile of sums: its axes, and the origin of each axis."""

    memory: SSAValue
    axes: tuple[Symbol, ...]
    origins: tuple[Expr, ...]

    def read(self, value: SSAValue) -> Read:
        """The read of the sums at any position of the axes."""
        return Read(value, tuple(
            Expr.symbol(a) - o for a, o in zip(self.axes, self.origins, strict=True)))


Segment: TypeAlias = "tuple[Expr, Expr, int, bool]"
"""A part of an axis that one loop walks: lower and upper bound, tile, whether it is masked."""
SMALL_TILE, PAIR = 4, 2
"""The tile sizes that first walk what full tiles leave of an axis of unknown length: SMALL_TILE for
a reduction, and PAIR for rows that share what they read."""


def segments(
    level: Level, state: AxisState, whole_tiles: bool, reduces: bool, tails: str, rare: bool
) -> list[Segment]:
    """The segments of an axis: full tiles, then the tail. The tail is one masked tile if
    accumulators have whole tiles, and smaller tiles otherwise; of one element, if the axis is
    walked for the tail of another one (`rare`), which need not have code of its own for pairs."""
    lower, upper, tile = state.lower, state.upper, level.tile
    length = upper - lower
    if not (length % tile).terms:
        return [(lower, upper, tile, False)] if length.terms else []
    if tails == "mask" or level.partial:
        return [(lower, upper, tile, True)]
    whole = lower + (length // tile) * tile
    if length.constant is None:
        full = (lower, upper - (tile - 1), tile, False)
        if level.matrix and not reduces:
            return [full, (whole, upper, -(-tile // 2), True)]
        if level.lanes or whole_tiles:
            return [full, (whole, upper, tile, True)]
        small = SMALL_TILE if reduces else PAIR
        if tile <= small or (rare and not reduces):
            return [full, (whole, upper, 1, False)]
        if not reduces and tails == "each":
            return [full, *_remainders(whole, upper, length % tile, tile)]
        some = (whole, upper - (small - 1), small, False)
        last = whole + (length % tile) // small * small if tile % small else (
            lower + length // small * small)
        return [full, some] if last == upper else [full, some, (last, upper, 1, False)]
    rest = length.constant % tile
    tail = (whole, upper, tile, True) if whole_tiles else (whole, upper, rest, False)
    return [(lower, whole, tile, False), tail] if length.constant >= tile else [tail]


def _remainders(whole: Expr, upper: Expr, rest: Expr, tile: int) -> Iterator[Segment]:
    """A segment for each number of rows that full tiles may leave. At most one of them is walked,
    in one tile: those of more rows end too early, and those of fewer start where it ends."""
    for rows in range(tile - 1, 0, -1):
        done = maximum(0, rest - rows)  # 0: no segment of more rows was walked
        lower = whole if rows == tile - 1 else minimum(upper, whole + tile * done)
        yield lower, upper - (rows - 1), rows, False


def counter_extent(bounds: Segment, extents: Mapping[Symbol, Expr]) -> Expr:
    """One more than the largest value of a loop's counter, in terms of size symbols."""
    lower, upper, tile, _ = bounds
    length = (upper - lower).constant
    if length is not None and lower.constant is not None:
        return lower + ((length - 1) // tile) * tile + 1
    return _without_counters(upper, extents)


def _without_counters(expr: Expr, extents: Mapping[Symbol, Expr]) -> Expr:
    """An upper bound of an expression, free of loop counters and program ids."""
    for monomial, _ in expr.terms:
        for atom in monomial:
            if isinstance(atom, Call) and atom.op == "min" and len(expr.terms) == 1:
                return _without_counters(atom.args[1] if any(
                    s.kind is Kind.COUNTER for s in atom.args[0].symbols) else atom.args[0],
                    extents)
    bound = upper_bound(expr, extents)
    return expr if bound is None else bound


def skips_border(schedule: Schedule, depth: int) -> bool:
    """Whether a level is the first loop over single positions of its axis, not unrolled, whose
    tiles are vectors: there a trip saves more than a comparison costs."""
    level = schedule.levels[depth]
    before = {x.axis for x in schedule.levels[:depth]}
    return bool(schedule.lanes) and level.tile == level.unroll == 1 and level.axis not in before


def without_border(
    nests: Sequence[NestOp], axis: Symbol, states: Mapping[Symbol, AxisState], symbols: Symbols
) -> AxisState:
    """What is left to walk of an axis over which nests sum, without the positions at which the
    tile at hand adds nothing but zeros."""
    state = states[axis]
    tiles = {a: (s.origin, s.tile) for a, s in states.items() if s.origin is not None}
    lower, upper = state.lower, state.upper
    for first, end in bounds_inside(nests[0], axis, tiles) if len(nests) == 1 else ():
        lower = lower if symbols.is_at_most(first, lower) else maximum(first, lower)
        upper = upper if symbols.is_at_most(upper, end) else minimum(end, upper)
    if symbols.is_at_most(upper, lower):  # all of them: loops never have negative lengths
        lower = upper = state.upper
    return replace(state, lower=lower, upper=upper)
