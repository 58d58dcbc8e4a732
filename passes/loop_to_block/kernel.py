"""Lower one scheduled loop.kernel to a block.kernel.

    lower(kernel): bind buffers; every axis starts as (0, extent), not placed; gen(level 0)
    gen(level i, nests):
      no level left -> compute each nest's tile, in order
      grid  -> the axis starts at program id * tile; gen(i + 1)
      whole -> one tile holds the axis; gen(i + 1)
      loop  -> split the nests into runs that use the axis and runs that do not. A nest that needs
               the finished result of a reduction over the axis starts a new run, unless it is
               online on that result. For a run without the axis, or if a tile in matrix registers
               covers the axis already: gen(i + 1). Otherwise open accumulators for the run's
               reductions, walk full tiles and then the tail, each as a block.for that carries the
               accumulators, and finish the reductions. A loop over an axis that orders a scatter
               is serial, too, and carries nothing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.ir import SSAValue

from dialects.block import ForOp, KernelOp, ScratchOp, YieldOp
from dialects.block.kernel_ops import PARALLEL, SERIAL
from dialects.loop import KernelOp as LoopKernelOp
from dialects.loop import NestOp
from dialects.strata.schedule import Level, Schedule
from dialects.strata.schedule_options import BRANCH, TAILS, WORDS
from dialects.strata.types import TensorType, buffer_of
from dialects.symbolic.expr import Expr, Size, minimum
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.analyses.loop.limits import Limit, first_part_of, limit_of
from passes.analyses.loop.reuse import kept_values
from passes.loop_to_block.computation import Computation
from passes.loop_to_block.compute import lies_in_matrices
from passes.loop_to_block.copies import in_copies
from passes.loop_to_block.dots import load_factors
from passes.loop_to_block.online import ends_inside, first_part, first_step, reach
from passes.loop_to_block.partial import add_parts, begin_parts
from passes.loop_to_block.place import Scope
from passes.loop_to_block.private import Plan
from passes.loop_to_block.seen import SeenPlaces, is_counted, skipping
from passes.loop_to_block.shared_loops import SharedLoops, reduces_over, serial_axes
from passes.loop_to_block.state import (
    AxisState,
    Segment,
    Tile,
    counter_extent,
    segments,
    skips_border,
    without_border,
)
from passes.loop_to_block.words import Parts, parts
from passes.rewrites.kernels.neighbours import in_groups
from passes.rewrites.loop.seen_places import SEARCHED


def lower_kernel(kernel: LoopKernelOp) -> KernelOp:
    """The block kernel of a loop kernel whose schedule is legal (see `legality.faults`)."""
    copies = in_copies(kernel)
    assert copies.schedule is not None
    grouped, schedule, groups = in_groups(copies, copies.schedule.data)
    lowered = _Lowering(*skipping(grouped, schedule), groups).run()
    lowered.schedule = kernel.schedule
    return lowered


class _Lowering:
    def __init__(
        self, kernel: LoopKernelOp, schedule: Schedule, seen: SeenPlaces, groups: Symbol | None
    ):
        self.kernel, self.schedule, self.seen = kernel, schedule, seen
        self.tails = schedule.option(TAILS, "peel" if schedule.lanes else "mask")
        self.tiles = Computation(kernel, schedule, groups)
        self.states = self.tiles.states
        self.private = kept_values(kernel, schedule)
        self.shared = SharedLoops(self.tiles, self.private)
        self.rows: dict[Symbol, AxisState] = {}
        """Axes with further levels, in their state while their tiles lie in matrix registers."""
        self.rare = False
        """Whether the tail of an axis is being generated. Its sums are few, so that each step waits
        for the one before, and loops over them are not unrolled."""
        self.active = [n for n in kernel.nests if n.reduce_axes or self._is_result(n)
                       or any(r in self.private for r in n.results)]

    def _is_result(self, nest: NestOp) -> bool:
        parts = {p for v in self.kernel.yielded for p in _parts(v)}
        return any(r in parts for r in nest.results)

    # ------------------------------------------------------------------ the kernel
    def run(self) -> KernelOp:
        grid = [x for x in self.schedule.levels if x.kind == "grid"]
        extents = [self.states[x.axis].upper.ceildiv(x.tile) for x in grid]
        inputs = [buffer_of(a.type) for a in self.kernel.body.block.args
                  if isinstance(a.type, TensorType)]
        outputs = [buffer_of(v.type) for v in self.kernel.yielded
                   if isinstance(v.type, TensorType)]
        op = KernelOp.of(self.kernel.sym_name.data, [*inputs, *outputs], extents,
                         self.kernel.size_names, self.kernel.schedule)
        self._bind(op, len(inputs))
        self.tiles.block = op.body.block
        self.program_ids = list(op.program_ids)
        self.generate(0, self.active)
        self.tiles.block.add_op(YieldOp.of())
        set_location(op, self.kernel)
        return op

    def _bind(self, op: KernelOp, inputs: int) -> None:
        arguments = self.kernel.body.block.args
        self.tiles.buffers.update(zip(arguments, op.buffers[:inputs], strict=True))
        for value, buffer in zip(self.kernel.yielded, op.buffers[inputs:], strict=True):
            for part in _parts(value):
                self.tiles.outputs.setdefault(part, []).append(buffer)
        for old, new in zip([*arguments, *self.kernel.yielded], op.buffers, strict=True):
            new.name_hint = old.name_hint

    # ------------------------------------------------------------------ levels
    def generate(self, depth: int, nests: Sequence[NestOp]) -> None:
        if not self.program_ids:
            self.begin()
        if depth == len(self.schedule.levels):
            for nest in nests:
                self.tiles.compute(nest)
            return
        level = self.schedule.levels[depth]
        before = self.states[level.axis]
        if level.kind == "loop" and before.origin is not None:
            self.generate(depth + 1, nests)
            return
        if level.kind == "loop" or before.lower == before.upper:  # an empty axis has no tile
            self.generate_loop(depth, level, nests)
            return
        self.states[level.axis] = (
            self._grid_state(depth, level) if level.kind == "grid"
            else self._whole_state(level))
        self.generate(depth + 1, nests)
        self.states[level.axis] = before

    def begin(self) -> None:
        """Allocate private memory and load what the program's rows see, now that its part of each
        axis is known."""
        self.seen.load(self.tiles)
        if not self.private or self.tiles.kept:
            return
        plan = Plan(self.kernel, self.schedule, self.states)
        for group in plan.groups:
            memory = self.tiles.add(ScratchOp.of(plan.memory(group))).results[0]
            memory.name_hint = group[0].name_hint
            self.tiles.kept |= {value: plan.kept(value, memory) for value in group}

    def _grid_state(self, depth: int, level: Level) -> AxisState:
        state = self.states[level.axis]
        argument = self.program_ids.pop(0)
        argument.name_hint = level.axis.name
        program = self.tiles.symbols.index(argument, state.upper.ceildiv(level.tile))
        start = program * level.tile
        fits = not (state.upper % level.tile).terms
        return self._at(depth, level.axis, start, level.tile, not fits)

    def _at(self, depth: int, axis: Symbol, start: Expr, tile: int, masked: bool) -> AxisState:
        """An axis whose tile starts at `start`, or the range that further levels have to walk."""
        state = self.states[axis]
        inner = [x.tile for x in self.schedule.levels[depth + 1:] if x.axis == axis]
        whole = replace(state, origin=start, tile=tile, masked=masked)
        if self.schedule.levels[depth].matrix:
            self.tiles.sums.clear()
        if not inner:
            return whole
        if self.schedule.levels[depth].matrix:
            self.rows[axis] = whole
        upper = minimum(start + tile, state.upper) if masked else start + tile
        fits = all(tile % x == 0 for x in inner)  # so that no tile reaches into the next part
        return AxisState(start, upper, state.end if fits else upper)

    def _whole_state(self, level: Level) -> AxisState:
        state = self.states[level.axis]
        exact = state.upper - state.lower == Expr.of(level.tile)
        return replace(state, origin=state.lower, tile=level.tile, masked=not exact)

    def generate_loop(self, depth: int, level: Level, nests: Sequence[NestOp]) -> None:
        for uses, run in self.shared.runs(level.axis, nests):
            if uses:
                self.walk(depth, level, run)
            else:
                self.generate(depth + 1, run)

    # ------------------------------------------------------------------ one loop
    def walk(self, depth: int, level: Level, run: Sequence[NestOp]) -> None:
        axis = level.axis
        fresh = [n for n in run if n not in self.tiles.open and axis in reduces_over(n)]
        self.hoist(run, axis)
        load_factors(self.tiles, run, axis, {x.axis for x in self.schedule.levels[depth:]})
        self.tiles.scopes.append(Scope())
        places = dict(self.states)
        in_matrices = [n for n in fresh if lies_in_matrices(n, self.schedule)]
        if in_matrices:
            self.states.update(self.rows)
        for nest in fresh:
            self.tiles.open_accumulators(nest, depth, level)
        before = self.states[axis]
        self.states[axis] = start = self.seen.again(self.tiles, axis, run, self.private)
        summed = [n for n in run if axis in reduces_over(n)]
        if len(summed) == len(run) and skips_border(self.schedule, depth):
            self.states[axis] = start = without_border(run, axis, self.states, self.tiles.symbols)
        whole = any(not self.schedule.lanes or axis not in self.tiles.folded(n) for n in summed)
        limit = self._limit(axis, run, summed)
        words = self._words(level, run, summed)
        if limit is not None:
            self._walk_up_to(limit, depth, level, run)
        elif words is not None:
            self._walk_words(words, depth, level, run)
        else:
            rare, rest = self.rare, self._walk_first_part(depth, level, run)
            known = rest is start or (rest.upper - rest.lower).constant is not None
            parts = self.seen.parts(axis, rest, segments(
                level, rest, whole, bool(summed), self.tails if known else "mask", rare))
            for bounds in parts:
                self.rare = rare or (not summed and bounds[2] < level.tile and len(parts) > 1)
                self.segment(depth, level, run, bounds)
            self.rare = rare
        self.states[axis] = before
        self.tiles.scopes.pop()
        for nest in fresh:
            self.tiles.finish(nest)
        self.states.update(places)
        if axis == SEARCHED:
            self.seen.find(self.tiles)
        for nest in in_matrices:
            if nest.results[0] in self.tiles.outputs:
                self.generate(depth + 1, [nest])

    def _walk_first_part(self, depth: int, level: Level, run: Sequence[NestOp]) -> AxisState:
        """Walk the tiles that read factors from their first parts alone; what is left."""
        state, part = self.states[level.axis], first_part_of(self.kernel, level.axis)
        end = None if part is None else first_part(self.tiles, part, state, level.tile)
        if part is None or end is None or end == state.lower:
            return state
        self.tiles.decided = part.chosen
        self.segment(depth, level, run, (state.lower, end, level.tile, False))
        self.tiles.decided = {}
        return replace(state, lower=end)

    def _limit(
        self, axis: Symbol, run: Sequence[NestOp], summed: Sequence[NestOp]
    ) -> Limit | None:
        """Where the current rows begin and end, if sums alone need a walk and that is known."""
        online = any(n in self.tiles.online for n in summed)
        rest = {r for n in run if n not in summed for r in n.results}
        alone = self.schedule.lanes is None and summed and not any(
            r in self.tiles.outputs or r in self.private for r in rest)
        limit = limit_of(self.kernel, axis) if online or alone else None
        placed = {a for a, s in self.states.items() if s.origin is not None}
        if limit is None or not limit.symbols & self.states.keys() <= placed:
            return None
        return limit

    def _walk_up_to(self, limit: Limit, depth: int, level: Level, run: Sequence[NestOp]) -> None:
        """Walk the range that all rows of the tile reach, then the rest of the longest row's; or
        walk both in one loop. Skip what lies before the first row's beginning or is not seen."""
        axis, state = limit.axis, self.states[limit.axis]
        begin = first_step(self.tiles, limit, state, level.tile)
        sure, end = reach(self.tiles, limit, state, begin, level.tile)
        masked = bool(((state.upper - state.lower) % level.tile).terms)
        if self.schedule.option(BRANCH) and not (masked and self.tails != "mask"):
            sure = begin
        if sure != begin:
            self.tiles.decided = limit.chosen
            self.segment(depth, level, run, self.seen.within(
                axis, state, (begin, sure, level.tile, False)))
            self.tiles.decided = {}
        self.tiles.ended |= {axis} if ends_inside(limit, self.kernel.axes) else set[Symbol]()
        self.segment(depth, level, run, self.seen.within(
            axis, state, (sure, end, level.tile, masked)))
        self.tiles.ended.discard(axis)

    def _words(
        self, level: Level, run: Sequence[NestOp], summed: Sequence[NestOp]
    ) -> Parts | None:
        """The parts of an axis whose rows start unaligned; None if a sum keeps its tile."""
        word = self.schedule.option(WORDS)
        if not word or any(level.axis not in self.tiles.folded(n) for n in summed):
            return None
        return parts(run, level.axis, self.states, level.tile, word)

    def _walk_words(self, words: Parts, depth: int, level: Level, run: Sequence[NestOp]) -> None:
        state, word = self.states[level.axis], self.schedule.option(WORDS)
        first = replace(state, origin=state.lower, end=words.head, tile=word, masked=True)
        last = replace(state, origin=words.head + words.whole, tile=words.rest, masked=True)
        self._once(depth, level, run, first)
        self._loop(depth, level, run, (state.lower, Expr.of(words.whole), level.tile, False),
                   words.head)
        self._once(depth, level, run, last)

    def _once(self, depth: int, level: Level, run: Sequence[NestOp], state: AxisState) -> None:
        """One tile of an axis."""
        before, self.states[level.axis] = self.states[level.axis], state
        self._tile(depth, level, run)
        self.states[level.axis] = before

    def _tile(self, depth: int, level: Level, run: Sequence[NestOp]) -> None:
        """Generate the further levels for the current tile of an axis."""
        self.tiles.scopes.append(Scope())
        totals = begin_parts(self.tiles, run) if level.partial else {}
        self.generate(depth + 1, run)
        add_parts(self.tiles, totals)
        self.tiles.scopes.pop()

    def hoist(self, nests: Sequence[NestOp], axis: Symbol) -> None:
        """Hoist elementwise producers that do not depend on `axis` out of the loop over it."""
        for nest in nests:
            producers = [v.owner for v in nest.inputs
                         if isinstance(v.owner, NestOp) and v not in self.private]
            for producer in producers:
                if self._is_ready(producer, axis):
                    self.tiles.tiles_of(producer)
            self.hoist([p for p in producers if not p.reduce_axes], axis)

    def _is_ready(self, nest: NestOp, axis: Symbol) -> bool:
        """Whether an elementwise nest can be computed before the loop over `axis`."""
        if nest.reduce_axes or any(
                a.name == axis or self.states[a.name].origin is None for a in nest.axes):
            return False
        sources = [v for v in nest.inputs if isinstance(v.owner, NestOp)]
        return all(self.tiles.find(v) is not None or self._is_ready(v.owner, axis)  # type: ignore[arg-type]
                   for v in sources)

    def segment(
        self, depth: int, level: Level, run: Sequence[NestOp], bounds: Segment
    ) -> None:
        lower, upper, tile, masked = bounds
        if (trips := (upper - lower).constant) is not None and trips <= tile:
            self._once(depth, level, run, self._at(depth, level.axis, lower, tile, masked))
            return
        self._loop(depth, level, run, bounds)

    def _loop(
        self, depth: int, level: Level, run: Sequence[NestOp], bounds: Segment, shift: Size = 0
    ) -> None:
        """A loop over tiles, which start at its counter plus `shift`. If data decide its bounds,
        which are whole tiles, it counts tiles, so that the counter tells where they end."""
        lower, upper, tile, masked = bounds
        carried = [n for n in self.tiles.open if n in run]
        unit = tile if is_counted(self.tiles.symbols, bounds) else 1
        exprs, indices, _ = self.tiles.symbols.refer([lower // unit, upper // unit], [])
        loop = ForOp.of(exprs[0], exprs[1], tile // unit, indices,
                        [self.tiles.open[n].value for n in carried],
                        unroll=1 if self.rare else level.unroll,
                        kind=SERIAL if carried or _is_serial(level.axis, run) else PARALLEL)
        loop.counter.name_hint = level.axis.name
        step = 1 if unit > 1 or self.tiles.symbols.rest(lower, tile).terms else tile
        extent = counter_extent(bounds, self.tiles.symbols.extents).ceildiv(unit)
        counter = self.tiles.symbols.index(loop.counter, extent, step) * unit
        state = self.states[level.axis]
        self.states[level.axis] = self._at(depth, level.axis, counter + shift, tile, masked)
        outer, self.tiles.block = self.tiles.block, loop.body.block
        for nest, argument in zip(carried, loop.body.block.args[1:], strict=True):
            self.tiles.open[nest] = Tile(argument, self.tiles.open[nest].axes)
        self._tile(depth, level, run)
        self.tiles.block.add_op(YieldOp.of(*(self.tiles.open[n].value for n in carried)))
        self.tiles.block = outer
        self.tiles.add(loop)
        for nest, result in zip(carried, loop.results, strict=True):
            self.tiles.open[nest] = Tile(result, self.tiles.open[nest].axes)
        self.states[level.axis] = state


def _is_serial(axis: Symbol, run: Sequence[NestOp]) -> bool:
    """Whether trips along an axis write one after another."""
    return any(n.is_scatter and axis in serial_axes(n) for n in run)


def _parts(value: SSAValue) -> list[SSAValue]:
    """The results that are stored into one tensor, with the last one first."""
    parts = [value]
    while isinstance(nest := parts[-1].owner, NestOp) and nest.into:
        parts.append(nest.into[0])
    return parts
