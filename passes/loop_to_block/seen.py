"""Loops over scores walk only what the program's rows see (see `passes.analyses.loop.seen`).

    %f = the first place that a row of the program sees, %l = one after the last
    block.for %j = 14*(%f floordiv 14) to min(%l, 1022) step 14 ...   the loop that computes scores
    block.for %k = %f to %l step 2 ...                                 those that read them again

Where another kernel has found both (`loop.seen`), the program loads them instead.

The first loop keeps its whole tiles and walks what is left of the axis behind them in any case, so
that it needs no other code. Later loops read what it has stored, so they begin at a seen place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.ir import Block, SSAValue

from dialects.block import ReduceOp
from dialects.loop import KernelOp, NestOp, SeenOp
from dialects.strata.schedule import Level, Schedule
from dialects.strata.types import TileType, i32, tile
from dialects.symbolic.expr import Expr, maximum, minimum
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.seen import Seen, seen_scores
from passes.loop_to_block.access import load
from passes.loop_to_block.compute import map_tiles
from passes.loop_to_block.state import AxisState, Segment, Symbols, Tile
from passes.loop_to_block.tiles import Tiles
from passes.rewrites.loop.nests import Read
from passes.rewrites.loop.seen_places import AXIS, add_places


def skipping(kernel: KernelOp, schedule: Schedule) -> tuple[KernelOp, Schedule, SeenPlaces]:
    """The kernel and its schedule with the search for what rows see; as they are, if no loop can
    leave anything out or the rows lie in more than one tile of a program."""
    for op in kernel.body.block.ops:
        if isinstance(op, SeenOp):
            return kernel, schedule, SeenPlaces({op.axis_name}, (), op)
    seen = seen_scores(kernel) if schedule.lanes is not None and not schedule.matrix else None
    if seen is None or not _is_worth_it(seen, schedule):
        return kernel, schedule, SeenPlaces(frozenset(), ())
    kernel = kernel.clone()
    seen = seen_scores(kernel)
    assert seen is not None
    count = sum(x.kind == "grid" for x in schedule.levels)
    step = next(x.tile for x in schedule.levels if x.axis == seen.axis)
    levels = (*schedule.levels[:count], Level("loop", AXIS, step), *schedule.levels[count:])
    places = SeenPlaces(seen.walked, add_places(kernel, seen))
    return kernel, replace(schedule, levels=levels), places


def _is_worth_it(seen: Seen, schedule: Schedule) -> bool:
    """Whether programs divide all rows, and walk the scores in loops of several trips."""
    walks = [x for x in schedule.levels if x.axis in seen.walked]
    rows = {a.name: a.extent for a in seen.scores.axes}
    length = rows.pop(seen.axis).constant
    first = next((x for x in walks if x.axis == seen.axis), None)
    grid = [x.axis for x in schedule.levels if x.kind == "grid"]
    begin = [x.kind for x in schedule.levels[:len(grid)]]
    return first is not None and {*begin} == {"grid"} and {*rows} <= {*grid} and all(
        x.kind == "loop" for x in walks) and (length is None or length > 2 * first.tile)


class SeenPlaces:
    """Where the rows of the current program see something, once `search` has been walked.

    `walked`: the axes of loops that leave out the rest; none, if nothing is to be left out.
    """

    def __init__(
        self, walked: Collection[Symbol], search: Sequence[NestOp], given: SeenOp | None = None
    ):
        self.walked, self.search, self.given = walked, search, given
        self.bounds: tuple[Expr, Expr] | None = None

    def find(self, tiles: Tiles) -> None:
        """Reduce the rows' places to the first one and one after the last; if no row sees anything,
        to the first place alone."""
        found = [_over_rows(tiles, nest) for nest in self.search]

        def begin(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
            one = arith.ConstantOp(IntegerAttr(1, i32))
            end = arith.MaxSIOp(arguments[1], one.result)
            before = arith.SubiOp(end.result, one.result)
            least = arith.MinSIOp(arguments[0], before.result)
            indices = [arith.IndexCastOp(v, IndexType()) for v in (least.result, end.result)]
            block.add_ops([one, end, before, least, *indices])
            return [op.result for op in indices]

        type_ = tile(IndexType(), [])
        op = tiles.add(map_tiles(found, (), [type_, type_], begin))
        first, last = (tiles.symbols.gathered(Tile(r, ())) for r in op.results)
        self.bounds = first, last

    def within(self, axis: Symbol, part: Segment) -> Segment:
        """What rows see of a part of an axis, in whole steps; it begins at a multiple of them."""
        if axis not in self.walked or self.bounds is None:
            return part
        begin, end, step, masked = part
        first, last = self.bounds
        return (maximum(first // step, begin // step) * step,
                minimum(last.ceildiv(step), end.ceildiv(step)) * step, step, masked)

    def again(
        self, tiles: Tiles, axis: Symbol, run: Sequence[NestOp], private: Collection[SSAValue]
    ) -> AxisState:
        """What a loop has to walk: of scores that an earlier loop stored, the seen ones."""
        self._load(tiles, axis)
        state = tiles.states[axis]
        if not self._is_whole(axis, state) or not self._reads_again(run, private):
            return state
        assert self.bounds is not None
        begin, end = self.bounds
        upper = minimum(end, state.upper)
        return AxisState(maximum(begin, 0), upper, upper)

    def parts(
        self, axis: Symbol, state: AxisState, parts: Sequence[Segment]
    ) -> list[Segment]:
        """The segments of the loop that computes scores: whole tiles, from the first to the last
        that holds something that is seen, and then the rest of the axis."""
        if not self._is_whole(axis, state) or not parts:
            return [*parts]
        assert self.bounds is not None
        (_, _, step, masked), *rest = parts
        begin, end = self.bounds
        count = state.upper.ceildiv(step) if masked else state.upper // step
        end = minimum(end.ceildiv(step), count)
        return [(maximum(begin // step, 0) * step, end * step, step, masked), *rest]

    def _load(self, tiles: Tiles, axis: Symbol) -> None:
        """Load what another kernel has found, at the first loop over an axis."""
        if self.given is None or axis not in self.walked or self.bounds is not None:
            return
        tiles.source = self.given
        place = tuple(self.given.at.data)
        loads = [load(tiles.buffers[value], Read(value, place, None), [], tiles.states,
                      tiles.symbols, tiles.layout, 0) for value in self.given.operands]

        def begin(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
            indices = [arith.IndexCastOp(v, IndexType()) for v in arguments]
            block.add_ops(indices)
            return [op.result for op in indices]

        for op, _ in loads:
            tiles.add(op)
        type_ = tile(IndexType(), [])
        op = tiles.add(map_tiles([found for _, found in loads], (), [type_, type_], begin))
        first, last = (tiles.symbols.gathered(Tile(r, ())) for r in op.results)
        self.bounds = first, last

    def _is_whole(self, axis: Symbol, state: AxisState) -> bool:
        """Whether a loop over scores still has to walk all of its axis."""
        return axis in self.walked and self.bounds is not None and (
            state.origin is None and state.lower == Expr.of(0) and state.upper == state.end)

    def _reads_again(self, run: Sequence[NestOp], private: Collection[SSAValue]) -> bool:
        """Whether nests read what an earlier loop over scores has stored."""
        todo, seen = [*run], {*run}
        for nest in todo:
            for value in nest.inputs:
                maker = value.owner
                if not isinstance(maker, NestOp) or maker in seen:
                    continue
                if value in private:
                    if any(a.name in self.walked for a in maker.axes):
                        return True
                elif not maker.reduce_axes:
                    seen.add(maker)
                    todo.append(maker)
        return False


def is_counted(symbols: Symbols, bounds: Segment) -> bool:
    """Whether data decide where a loop begins, and its bounds are whole tiles."""
    lower, upper, step, _ = bounds
    return not symbols.tiles.keys().isdisjoint(lower.symbols) and not (
        (lower % step).terms or (upper % step).terms)


def _over_rows(tiles: Tiles, nest: NestOp) -> Tile:
    """The least or the greatest place of all rows of the program."""
    tiles.source = nest
    found = tiles.find(nest.results[0])
    assert found is not None
    value = found.value
    assert isinstance(value.type, TileType)
    for dim in reversed(range(len(found.axes))):
        value = tiles.add(ReduceOp.of(nest.combiner_names[0], value, dim)).results[0]
    return Tile(value, ())
