"""Loops over scores walk only what the program's rows see (see `passes.analyses.loop.seen`).

    %f = the first place that a row of the program sees, %l = one after the last
    block.for %j = 14*(%f floordiv 14) to min(%l, 1022) step 14 ...   the loop that computes scores
    block.for %k = %f to %l step 2 ...                                 those that read them again

A program finds both by a search of the mask in a loop of its own (`add_search`), or loads what a
kernel has found for its block of rows before (`loop.visible`).

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
from dialects.loop import KernelOp, NestOp, VisibleOp
from dialects.strata.schedule import Level, Schedule
from dialects.strata.schedule_options import ONLINE, SEARCH
from dialects.strata.types import TileType, i32, tile
from dialects.symbolic.expr import Expr, maximum, minimum
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.online import running_maximum
from passes.analyses.loop.seen import Seen, seen_scores
from passes.loop_to_block.access import load
from passes.loop_to_block.compute import map_tiles
from passes.loop_to_block.state import AxisState, Segment, Symbols, Tile
from passes.loop_to_block.tiles import Tiles
from passes.rewrites.loop.nests import Read
from passes.rewrites.loop.seen_places import SEARCHED, add_search


def skipping(kernel: KernelOp, schedule: Schedule) -> tuple[KernelOp, Schedule, SeenPlaces]:
    """The kernel and its schedule with the search for what rows see; as they are, if another kernel
    has searched, no loop can leave anything out or the rows lie in more than one tile of a program.
    """
    for op in kernel.body.block.ops:
        if isinstance(op, VisibleOp):
            walked = {op.axis_name}
            online = _are_online(kernel, schedule, walked)
            return kernel, schedule, SeenPlaces(walked, (), op, online=online)
    asked, vectors = schedule.option(SEARCH), schedule.lanes is not None and not schedule.matrix
    seen = seen_scores(kernel) if asked or vectors else None
    if seen is None or not (
            _are_divided(seen, schedule) and (asked or seen.has_trips(schedule))):
        return kernel, schedule, SeenPlaces()
    kernel = kernel.clone()
    seen = seen_scores(kernel)
    assert seen is not None
    count = sum(x.kind == "grid" for x in schedule.levels)
    step = asked or next(x.tile for x in schedule.levels if x.axis == seen.axis)
    levels = (*schedule.levels[:count], Level("loop", SEARCHED, step), *schedule.levels[count:])
    alike = set[Symbol]() if vectors else {
        x.axis for x in schedule.levels if x.tile > 1} - seen.derivation.axes
    places = SeenPlaces(seen.walked, add_search(kernel, seen, alike),
                        online=_are_online(kernel, schedule, seen.walked))
    return kernel, replace(schedule, levels=levels), places


def _are_divided(seen: Seen, schedule: Schedule) -> bool:
    """Whether programs divide all rows, and then walk the scores in loops."""
    rows = {a.name for a in seen.scores.axes} - {seen.axis}
    grid = [x.axis for x in schedule.levels if x.kind == "grid"]
    begin = [x.kind for x in schedule.levels[:len(grid)]]
    return {*begin} == {"grid"} and rows <= {*grid} and seen.is_walked(schedule)


def _are_online(kernel: KernelOp, schedule: Schedule, walked: Collection[Symbol]) -> bool:
    """Whether all reductions over walked axes are online."""
    return bool(schedule.option(ONLINE)) and all(
        running_maximum(n) is not None or n.combiner_names == ["max"] for n in kernel.nests
        if any(a.name in walked for a in n.reduce_axes))


class SeenPlaces:
    """Where the rows of the current program see something, once `search` has been walked, or what
    `visible` names has been loaded.

    `walked`: the axes of loops that leave out the rest; none, if nothing is to be left out.
    `online`: their sums are online, which are right without a trip. Others need a place to walk.
    """

    def __init__(
        self, walked: Collection[Symbol] = (), search: Sequence[NestOp] = (),
        visible: VisibleOp | None = None, *, online: bool = False,
    ):
        self.walked, self.search, self.visible, self.online = walked, search, visible, online
        self.bounds: tuple[Expr, Expr] | None = None

    def load(self, tiles: Tiles) -> None:
        """Load what another kernel has found, once the program knows its block of rows."""
        if self.visible is None or self.bounds is not None:
            return
        tiles.source = self.visible
        place = tuple(self.visible.at.data)
        loads = [load(tiles.buffers[value], Read(value, place, None), [], tiles.states,
                      tiles.symbols, tiles.layout, 0) for value in self.visible.operands]
        for op, _ in loads:
            tiles.add(op)
        self._bound(tiles, [found for _, found in loads])

    def find(self, tiles: Tiles) -> None:
        """Reduce the rows' places to the first one and one after the last."""
        self._bound(tiles, [_over_rows(tiles, nest) for nest in self.search])

    def _bound(self, tiles: Tiles, found: Sequence[Tile]) -> None:
        """Take the first place and one after the last as bounds of loops; if no row sees anything,
        the first place of the axis alone, or none."""
        def begin(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
            first, last = arguments
            before = last
            if not self.online:
                one = arith.ConstantOp(IntegerAttr(1, i32))
                end = arith.MaxSIOp(last, one.result)
                less = arith.SubiOp(end.result, one.result)
                block.add_ops([one, end, less])
                last, before = end.result, less.result
            least = arith.MinSIOp(first, before)
            indices = [arith.IndexCastOp(v, IndexType()) for v in (least.result, last)]
            block.add_ops([least, *indices])
            return [op.result for op in indices]

        type_ = tile(IndexType(), [])
        op = tiles.add(map_tiles(found, (), [type_, type_], begin))
        first, last = (tiles.symbols.gathered(Tile(r, ())) for r in op.results)
        self.bounds = first, last

    def again(
        self, tiles: Tiles, axis: Symbol, run: Sequence[NestOp], private: Collection[SSAValue]
    ) -> AxisState:
        """What a loop has to walk: of scores that an earlier loop stored, the seen ones."""
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
        (lower, _, step, masked), *rest = parts
        count = state.upper.ceildiv(step) if masked else state.upper // step
        return [self.within(axis, state, (lower, count * step, step, masked)), *rest]

    def within(self, axis: Symbol, state: AxisState, part: Segment) -> Segment:
        """What rows see of a part of a loop over scores, in whole steps. The part begins at a
        multiple of its step."""
        if not self._is_whole(axis, state):
            return part
        assert self.bounds is not None
        lower, upper, step, masked = part
        first, last = self.bounds
        begin = maximum(first // step, lower // step) * step
        return begin, minimum(last.ceildiv(step), upper.ceildiv(step)) * step, step, masked

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
