"""One scheduled loop.kernel as a block.kernel.

    lower(kernel): bind buffers; every axis starts as (0, extent), nothing placed; gen(level 0)
    gen(level i, nests):
      no level left -> compute each nest's tile, in order
      grid  -> the axis starts at program id * tile; gen(i + 1)
      whole -> one tile holds the axis; gen(i + 1)
      loop  -> cut the nests into runs that use the axis or not, also before a nest that needs the
               finished result of a reduction over it. A run without the axis -> gen(i + 1). Else
               open accumulators for its reductions, walk full tiles and then the tail, each as a
               block.for that carries the accumulators; finish the reductions

Only reductions and results of the kernel are computed on their own account; other nests are
computed where a tile of them is asked for, once per scope (and again where the scope has ended).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from dialects import types as t
from dialects.block import (
    DotOp,
    ForOp,
    FullOp,
    IndexOp,
    KernelOp,
    ReduceOp,
    ValidOp,
    YieldOp,
)
from dialects.expr import Expr, minimum
from dialects.loop import KernelOp as LoopKernelOp
from dialects.loop import NestOp
from dialects.schedule import Level, Schedule
from dialects.syntax import set_location
from dialects.types import TensorType, buffer_of
from passes.loop.nests import Read, gathered_inputs, reads_of
from passes.loop_to_block.access import load, store, tile_type
from passes.loop_to_block.compute import (
    append_body,
    combine,
    identity,
    index_ops,
    map_tiles,
    product_operands,
    select_identity,
)
from passes.loop_to_block.state import AxisState, Symbols, Tile, tiled


class ScheduleError(Exception):
    """A schedule that does not fit its kernel."""


@dataclass
class Scope:
    """Tiles computed inside one loop body; gone at its end."""

    loads: dict[object, Tile] = field(default_factory=dict[object, Tile])
    results: dict[SSAValue, Tile] = field(default_factory=dict[SSAValue, Tile])


def lower_kernel(kernel: LoopKernelOp) -> KernelOp:
    """The block kernel of a loop kernel that has a schedule. Raises ScheduleError."""
    if kernel.schedule is None:
        raise ScheduleError(f"kernel @{kernel.sym_name.data} has no schedule")
    return _Lowering(kernel, kernel.schedule.data).run()


class _Lowering:
    def __init__(self, kernel: LoopKernelOp, schedule: Schedule):
        self.kernel, self.schedule = kernel, schedule
        self.lanes = schedule.lanes
        self.peel = schedule.option("tails", "peel" if self.lanes else "mask") == "peel"
        self.states = {name: AxisState(Expr.of(0), extent)
                       for name, extent in kernel.axes.items()}
        self.symbols = Symbols()
        self.scopes = [Scope()]
        self.open: dict[NestOp, Tile] = {}
        self.active = [n for n in kernel.nests if n.reduce_axes or self._is_result(n)]
        last = {x.axis: k for k, x in enumerate(schedule.levels)}
        self.order = sorted(self.states, key=lambda a: (a == self.lanes, last.get(a, 0)))
        self._check_levels()

    def _is_result(self, nest: NestOp) -> bool:
        parts = {p for v in self.kernel.yielded for p in _parts(v)}
        return any(r in parts for r in nest.results)

    def _check_levels(self) -> None:
        missing = [a for a in self.states if self.schedule.level(a) is None]
        unknown = [x.axis for x in self.schedule.levels if x.axis not in self.states]
        if missing or unknown:
            raise ScheduleError(
                f"kernel @{self.kernel.sym_name.data}: the schedule {self.schedule} "
                + (f"does not place axes {', '.join(missing)}" if missing
                   else f"names unknown axes {', '.join(unknown)}"))

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
        self.block = op.body.block
        self.source: Operation = self.kernel
        self.program_ids = list(op.program_ids)
        self.generate(0, self.active)
        self.block.add_op(YieldOp.of())
        op.location = self.kernel.location
        return op

    def _bind(self, op: KernelOp, inputs: int) -> None:
        arguments = self.kernel.body.block.args
        self.buffers: dict[SSAValue, SSAValue] = dict(
            zip(arguments, op.buffers[:inputs], strict=True))
        self.outputs: dict[SSAValue, list[BlockArgument]] = {}
        for value, buffer in zip(self.kernel.yielded, op.buffers[inputs:], strict=True):
            for part in _parts(value):
                self.outputs.setdefault(part, []).append(buffer)
        for old, new in zip([*arguments, *self.kernel.yielded], op.buffers, strict=True):
            new.name_hint = old.name_hint

    def add(self, op: Operation) -> Operation:
        set_location(op, self.source)
        self.block.add_op(op)
        return op

    # ------------------------------------------------------------------ levels
    def generate(self, depth: int, nests: Sequence[NestOp]) -> None:
        if depth == len(self.schedule.levels):
            for nest in nests:
                self.compute(nest)
            return
        level = self.schedule.levels[depth]
        if level.kind == "loop":
            self.generate_loop(depth, level, nests)
            return
        before = self.states[level.axis]
        self.states[level.axis] = (
            self._grid_state(depth, level) if level.kind == "grid"
            else self._whole_state(level))
        self.generate(depth + 1, nests)
        self.states[level.axis] = before

    def _grid_state(self, depth: int, level: Level) -> AxisState:
        state = self.states[level.axis]
        argument = self.program_ids.pop(0)
        argument.name_hint = level.axis
        program = self.symbols.index(argument, state.upper.ceildiv(level.tile))
        start = program * level.tile
        fits = not (state.upper % level.tile).terms
        if any(x.axis == level.axis for x in self.schedule.levels[depth + 1:]):
            end = start + level.tile
            return AxisState(start, end if fits else minimum(end, state.upper))
        return replace(state, origin=start, tile=level.tile, masked=not fits)

    def _whole_state(self, level: Level) -> AxisState:
        state = self.states[level.axis]
        exact = state.upper - state.lower == Expr.of(level.tile)
        return replace(state, origin=state.lower, tile=level.tile, masked=not exact)

    def generate_loop(self, depth: int, level: Level, nests: Sequence[NestOp]) -> None:
        for uses, run in self._runs(level.axis, nests):
            if uses:
                self.walk(depth, level, run)
            else:
                self.generate(depth + 1, run)

    def _runs(self, axis: str, nests: Sequence[NestOp]) -> list[tuple[bool, list[NestOp]]]:
        """Maximal runs of nests that can share one loop over the axis."""
        runs: list[tuple[bool, list[NestOp]]] = []
        for nest in nests:
            uses = axis in {a.name for a in nest.axes}
            if runs and runs[-1][0] == uses and not (
                    uses and self._needs_finished(nest, axis, runs[-1][1])):
                runs[-1][1].append(nest)
            else:
                runs.append((uses, [nest]))
        return runs

    def _needs_finished(self, nest: NestOp, axis: str, run: Sequence[NestOp]) -> bool:
        """Whether a nest depends on a reduction over the axis that the run computes."""
        todo, seen = list(nest.inputs), set[SSAValue]()
        while todo:
            value = todo.pop()
            producer = value.owner
            if value in seen or not isinstance(producer, NestOp):
                continue
            seen.add(value)
            if producer in run and axis in {a.name for a in producer.reduce_axes}:
                return True
            todo += producer.inputs
        return False

    # ------------------------------------------------------------------ one loop
    def walk(self, depth: int, level: Level, run: Sequence[NestOp]) -> None:
        axis = level.axis
        fresh = [n for n in run if n not in self.open and axis in {a.name for a in n.reduce_axes}]
        self.hoist(run, axis)
        self.scopes.append(Scope())
        for nest in fresh:
            self.open_accumulators(nest, depth, level)
        before = self.states[axis]
        reduces = any(axis in {a.name for a in n.reduce_axes} for n in run)
        for lower, upper, tile, masked in self.segments(level, before, reduces):
            self.segment(depth, level, run, (lower, upper, tile, masked))
        self.states[axis] = before
        self.scopes.pop()
        for nest in fresh:
            self.finish(nest)

    def hoist(self, nests: Sequence[NestOp], axis: str) -> None:
        """Compute what the loop over `axis` would compute again and again."""
        for nest in nests:
            producers = [v.owner for v in nest.inputs if isinstance(v.owner, NestOp)]
            for producer in producers:
                if self._is_ready(producer, axis):
                    self.tiles_of(producer)
            self.hoist([p for p in producers if not p.reduce_axes], axis)

    def _is_ready(self, nest: NestOp, axis: str) -> bool:
        """Whether an elementwise nest can be computed before the loop over `axis`."""
        if nest.reduce_axes or any(
                a.name == axis or self.states[a.name].origin is None for a in nest.axes):
            return False
        sources = [v for v in nest.inputs if isinstance(v.owner, NestOp)]
        return all(self.find(v) is not None or self._is_ready(v.owner, axis)  # type: ignore[arg-type]
                   for v in sources)

    def segments(
        self, level: Level, state: AxisState, reduces: bool
    ) -> list[tuple[Expr, Expr, int, bool]]:
        """(lower, upper, tile, masked): full tiles, then the tail."""
        lower, upper, tile = state.lower, state.upper, level.tile
        length = upper - lower
        if not (length % tile).terms:
            return [(lower, upper, tile, False)]
        if not self.peel:
            return [(lower, upper, tile, True)]
        whole = lower + (length // tile) * tile
        if length.constant is None:
            full = (lower, upper - (tile - 1), tile, False)
            if level.lanes or reduces:
                return [full, (whole, upper, tile, True)]
            return [full, (whole, upper, 1, False)]
        rest = length.constant % tile
        tail = (whole, upper, tile, True) if reduces else (whole, upper, rest, False)
        return [(lower, whole, tile, False), tail] if length.constant >= tile else [tail]

    def segment(
        self, depth: int, level: Level, run: Sequence[NestOp],
        bounds: tuple[Expr, Expr, int, bool],
    ) -> None:
        lower, upper, tile, masked = bounds
        state = self.states[level.axis]
        if (trips := (upper - lower).constant) is not None and trips <= tile:
            self.states[level.axis] = replace(
                state, origin=lower, tile=tile, masked=masked)
            self.scopes.append(Scope())
            self.generate(depth + 1, run)
            self.scopes.pop()
            return
        self._loop(depth, level, run, bounds)

    def _loop(
        self, depth: int, level: Level, run: Sequence[NestOp],
        bounds: tuple[Expr, Expr, int, bool],
    ) -> None:
        lower, upper, tile, masked = bounds
        carried = [n for n in self.open if n in run]
        exprs, indices, _ = self.symbols.refer([lower, upper], [])
        loop = ForOp.of(exprs[0], exprs[1], tile, indices,
                        [self.open[n].value for n in carried], unroll=level.unroll,
                        parallel=not carried)
        loop.counter.name_hint = level.axis
        counter = self.symbols.index(loop.counter, self._counter_extent(bounds))
        state = self.states[level.axis]
        self.states[level.axis] = replace(state, origin=counter, tile=tile, masked=masked)
        outer, self.block = self.block, loop.body.block
        for nest, argument in zip(carried, loop.body.block.args[1:], strict=True):
            self.open[nest] = Tile(argument, self.open[nest].axes)
        self.scopes.append(Scope())
        self.generate(depth + 1, run)
        self.scopes.pop()
        self.block.add_op(YieldOp.of(*(self.open[n].value for n in carried)))
        self.block = outer
        self.add(loop)
        for nest, result in zip(carried, loop.results, strict=True):
            self.open[nest] = Tile(result, self.open[nest].axes)
        self.states[level.axis] = state

    def _counter_extent(self, bounds: tuple[Expr, Expr, int, bool]) -> Expr:
        """One more than the largest value of a loop's counter, in terms of size symbols."""
        lower, upper, tile, _ = bounds
        length = (upper - lower).constant
        if length is not None and lower.constant is not None:
            return lower + ((length - 1) // tile) * tile + 1
        return self._without_symbols(upper)

    def _without_symbols(self, expr: Expr) -> Expr:
        """An upper bound of an expression, free of loop counters and program ids."""
        from dialects.ranges import upper_bound

        for monomial, _ in expr.terms:
            for atom in monomial:
                if not isinstance(atom, str) and atom.op == "min" and len(expr.terms) == 1:
                    return self._without_symbols(atom.args[1] if any(
                        s.startswith("@") for s in atom.args[0].symbols) else atom.args[0])
        bound = upper_bound(expr, self.symbols.extents)
        return expr if bound is None else bound

    # ------------------------------------------------------------------ reductions
    def open_accumulators(self, nest: NestOp, depth: int, level: Level) -> None:
        """Start a reduction: a tile of identities over the nest's parallel and tiled axes."""
        self.source = nest
        sizes = dict(self.states)
        for later in self.schedule.levels[depth:]:
            if later.axis in {a.name for a in nest.reduce_axes}:
                sizes[later.axis] = replace(sizes[later.axis], tile=later.tile)
        if self._uses_dot(nest):
            sizes = {a: replace(s, tile=1) if a in {x.name for x in nest.reduce_axes} else s
                     for a, s in sizes.items()}
        dims = tiled((a.name for a in nest.axes), sizes, self.order)
        result = nest.results[0].type
        assert isinstance(result, TensorType)
        type_ = tile_type(result.element, dims, sizes, self.lanes)
        neutral = identity(nest.combiner_names[0], type_.element)
        self.open[nest] = Tile(self.add(FullOp.of(neutral, type_)).results[0], tuple(dims))

    def finish(self, nest: NestOp) -> None:
        """Combine what is left in the dims of reduce axes, and publish the result."""
        self.source = nest
        tile = self.open.pop(nest)
        self.publish(nest, nest.results[0], self._reduce_dims(nest, tile))

    def _reduce_dims(self, nest: NestOp, tile: Tile) -> Tile:
        for axis in [a.name for a in nest.reduce_axes if a.name in tile.axes]:
            op = ReduceOp.of(nest.combiner_names[0], tile.value, tile.axes.index(axis))
            self.add(op)
            tile = Tile(op.result, tuple(a for a in tile.axes if a != axis))
        return tile

    def publish(self, nest: NestOp, result: SSAValue, tile: Tile) -> None:
        """Make a finished tile available to later nests, and store it if it is a result."""
        tile.value.name_hint = result.name_hint
        self.scopes[-1].results[result] = tile
        map_ = nest.output_maps[list(nest.results).index(result)]  # type: ignore[arg-type]
        for buffer in self.outputs.get(result, ()):
            self.add(store(tile, buffer, map_, self.states, self.symbols))

    # ------------------------------------------------------------------ tiles
    def compute(self, nest: NestOp) -> None:
        """One tile of a nest, on its own account."""
        if not nest.reduce_axes:
            self.tiles_of(nest)
            for result in nest.results:
                tile = self.find(result)
                assert tile is not None
                self.publish(nest, result, tile)
        elif nest in self.open:
            self.accumulate(nest)
        else:
            self.reduce_at_once(nest)

    def find(self, value: SSAValue) -> Tile | None:
        return next((s.results[value] for s in reversed(self.scopes) if value in s.results), None)

    def tiles_of(self, nest: NestOp) -> None:
        """Compute an elementwise nest here, unless a tile of it is at hand."""
        if all(self.find(r) is not None for r in nest.results):
            return
        dims = tiled((a.name for a in nest.axes), self.states, self.order)
        inputs, indices = self.inputs_of(nest, dims)
        self.source = nest
        types = [tile_type(r.type.element, dims, self.states, self.lanes)
                 for r in nest.results if isinstance(r.type, TensorType)]

        def build(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
            return append_body(nest, block, arguments, dict(
                zip(indices, arguments[len(nest.inputs):], strict=True)))

        op = self.add(map_tiles(inputs, dims, types, build))
        for result, value in zip(nest.results, op.results, strict=True):
            self.scopes[-1].results[result] = Tile(value, tuple(dims))

    def inputs_of(
        self, nest: NestOp, dims: Sequence[str]
    ) -> tuple[list[Tile], list[Operation]]:
        """Tiles of the inputs, then of the index expressions that the body asks for."""
        tiles: list[Tile] = []
        for read in reads_of(nest):
            tiles.append(self.read(nest, read, tiles))
        self.source = nest
        indices: list[Operation] = []
        for op in index_ops(nest):
            tiles.append(self.index_tile(op.expr.data, dims))
            indices.append(op)
        return tiles, indices

    def read(self, nest: NestOp, read: Read, before: Sequence[Tile]) -> Tile:
        """The tile that a read needs: of a nest in this kernel, or loaded."""
        producer = read.value.owner
        if isinstance(producer, NestOp):
            if (found := self.find(read.value)) is None:
                self.tiles_of(producer)
                found = self.find(read.value)
            assert found is not None
            return found
        key = (read.key(), tuple(gathered_inputs(read.map) and [id(b.value) for b in before]))
        found = next((s.loads[key] for s in self.scopes[-1:] if key in s.loads), None)
        if found is None:
            found = self._load(nest, read, before)
            self.scopes[-1].loads[key] = found
        return found

    def _load(self, nest: NestOp, read: Read, before: Sequence[Tile]) -> Tile:
        self.source = nest
        gathered = {f"in{k}": before[k] for k in gathered_inputs(read.map)}
        axes = {s for e in read.map for s in e.symbols if s in self.states}
        axes |= {a for tile in gathered.values() for a in tile.axes}
        dims = tiled(axes, self.states, self.order)
        symbols = {name: self.symbols.gathered(tile) for name, tile in gathered.items()}
        moved = Read(read.value, tuple(e.substitute(symbols) for e in read.map), read.pad)
        pad = 0
        if nest.reduce_axes and not product_operands(nest) and t.is_float(element_type_of(read)):
            pad = identity(nest.combiner_names[0], element_type_of(read))
        op, tile = load(self.buffers[read.value], moved, dims, self.states, self.symbols,
                        self.lanes, pad)
        self.add(op)
        return tile

    def index_tile(self, expr: Expr, dims: Sequence[str]) -> Tile:
        """A tile of an index expression over axes."""
        own = tiled((s for s in expr.symbols if s in self.states), self.states, dims)
        values = {a: s.origin + Expr.symbol(f"t{own.index(a)}") if a in own else s.origin
                  for a, s in self.states.items() if s.origin is not None}
        exprs, operands, places = self.symbols.refer([expr.substitute(values)], own)
        lanes = own.index(self.lanes) if self.lanes in own else None
        op = IndexOp.of(exprs[0], operands, [self.states[a].tile for a in own], lanes, places)
        return Tile(self.add(op).results[0], tuple(own))

    # ------------------------------------------------------------------ reduction bodies
    def accumulate(self, nest: NestOp) -> None:
        """Combine one tile into the open accumulator."""
        if self._uses_dot(nest):
            self._dot(nest)
            return
        tile = self.open[nest]
        self.open[nest] = self._combined(nest, list(tile.axes), tile)

    def reduce_at_once(self, nest: NestOp) -> None:
        """A reduction whose axes all lie in one tile."""
        dims = tiled((a.name for a in nest.axes), self.states, self.order)
        if self._uses_dot(nest):
            self.open_accumulators(nest, len(self.schedule.levels), self.schedule.levels[-1])
            self._dot(nest)
            self.finish(nest)
            return
        self.publish(nest, nest.results[0],
                     self._reduce_dims(nest, self._combined(nest, dims, None)))

    def _combined(self, nest: NestOp, dims: list[str], into: Tile | None) -> Tile:
        """The body's values on a tile, masked ones neutral, combined into `into` if given."""
        inputs, indices = self.inputs_of(nest, dims)
        masks = self._masks(nest)
        extra = [*masks, *([into] if into else [])]
        kind = nest.combiner_names[0]
        result = nest.results[0].type
        assert isinstance(result, TensorType)

        def build(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
            own = len(nest.inputs)
            value = append_body(nest, block, arguments, dict(
                zip(indices, arguments[own:own + len(indices)], strict=True)))[0]
            for valid in arguments[own + len(indices):len(arguments) - bool(into)]:
                value = select_identity(block, valid, value, kind)
            if into is None:
                return [value]
            op = combine(kind, value, arguments[-1])
            block.add_op(op)
            return [op.results[0]]

        self.source = nest
        type_ = tile_type(result.element, dims, self.states, self.lanes)
        op = self.add(map_tiles([*inputs, *extra], dims, [type_], build))
        return Tile(op.results[0], tuple(dims))

    def _masks(self, nest: NestOp) -> list[Tile]:
        """One tile of truth values per reduce axis whose tile reaches beyond its end.

        None where loads outside give the neutral value already.
        """
        self.source = nest
        masks: list[Tile] = []
        for axis in nest.reduce_axes:
            state = self.states[axis.name]
            if state.masked and state.origin is not None and not _pads_neutral(nest, axis.name):
                masks.append(self._mask(axis.name, axis.extent, state.origin))
        return masks

    def _mask(self, axis: str, extent: Expr, origin: Expr) -> Tile:
        """Which positions of the axis's tile lie inside the axis."""
        size = self.states[axis].tile
        at = origin + (Expr.symbol("t0") if size > 1 else 0)
        exprs, operands, _ = self.symbols.refer([at, extent], [])
        shape = [size] if size > 1 else []
        lanes = 0 if axis == self.lanes and shape else None
        op = ValidOp.of(exprs[0], exprs[1], operands, shape, lanes)
        return Tile(self.add(op).results[0], (axis,) if shape else ())

    # ------------------------------------------------------------------ dots
    def _uses_dot(self, nest: NestOp) -> bool:
        return bool(self.schedule.option("dot", 0)) and product_operands(nest) is not None and (
            nest.combiner_names[0] == "add" and len(nest.inputs) == 2)

    def _dot(self, nest: NestOp) -> None:
        """acc[m, n] += a[m, k] * b[k, n]: the operand that lacks n is a."""
        tile = self.open[nest]
        reduce = {a.name for a in nest.reduce_axes}
        reads = [self._with_order(nest, r) for r in reads_of(nest)]
        rows = next(i for i, (_, dims) in enumerate(reads) if tile.axes[1] not in dims)
        (k,) = tiled(reduce, self.states, self.order)
        a = self._operand(nest, reads[rows][0], (tile.axes[0], k))
        b = self._operand(nest, reads[1 - rows][0], (k, tile.axes[1]))
        precision = "tf32" if self.schedule.option("precision", "f32") == "tf32" else "ieee"
        self.source = nest
        op = DotOp.of(a.value, b.value, tile.value, precision)
        self.open[nest] = Tile(self.add(op).results[0], tile.axes)

    def _with_order(self, nest: NestOp, read: Read) -> tuple[Read, list[str]]:
        axes = {s for e in read.map for s in e.symbols if s in self.states}
        return read, tiled(axes, self.states, self.order)

    def _operand(self, nest: NestOp, read: Read, dims: tuple[str, str]) -> Tile:
        self.source = nest
        op, tile = load(self.buffers[read.value], read, dims, self.states, self.symbols,
                        self.lanes, 0)
        self.add(op)
        return tile


def _parts(value: SSAValue) -> list[SSAValue]:
    """The results that are stored into one tensor, the last one first."""
    parts = [value]
    while isinstance(nest := parts[-1].owner, NestOp) and nest.into:
        parts.append(nest.into[0])
    return parts


def _pads_neutral(nest: NestOp, axis: str) -> bool:
    """Whether what loads give outside of an axis leaves the reduction unchanged.

    A plain float sum or maximum reads the combiner's identity; both factors of a product read 0.
    """
    if any(isinstance(v.owner, NestOp) for v in nest.inputs):
        return False
    if any(p is not None for p in nest.pad_values):
        return False
    if product_operands(nest) is not None:
        return all(any(axis in e.symbols for e in m) for m in nest.input_maps)
    plain = len(nest.inputs) == 1 and nest.yielded[0] is nest.body.block.args[0]
    return plain and t.is_float(nest.body.block.args[0].type)


def element_type_of(read: Read) -> t.Attribute:
    assert isinstance(read.value.type, TensorType)
    return read.value.type.element
