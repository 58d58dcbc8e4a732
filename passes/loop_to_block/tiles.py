"""Tiles at one place of the program: loads, bodies of nests, accumulators, stores.

Only reductions and results of the kernel are computed on their own account; other nests are
computed where a tile of them is asked for, once per scope (and again where the scope has ended).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from dialects import types as t
from dialects.block import (
    FullOp,
    IndexOp,
    ReduceOp,
    ValidOp,
)
from dialects.expr import Expr
from dialects.loop import KernelOp as LoopKernelOp
from dialects.loop import NestOp
from dialects.schedule import Level, Schedule
from dialects.symbol import Symbol
from dialects.syntax import set_location
from dialects.types import TensorType, TileType
from passes.loop.nests import Read, gathered_inputs, reads_of
from passes.loop.online import running_maximum
from passes.loop_to_block.access import leaves, load, store
from passes.loop_to_block.compute import (
    Decided,
    append_body,
    combine,
    identity,
    index_ops,
    is_gathered_dot,
    map_tiles,
    product_operands,
    select_identity,
)
from passes.loop_to_block.dots import add_dot
from passes.loop_to_block.matrices import Sums, keep_sums, lies_in_matrices, sum_here
from passes.loop_to_block.online import follow, row_maximum, start
from passes.loop_to_block.private import Kept
from passes.loop_to_block.scans import add_scan
from passes.loop_to_block.scatters import add_scatter
from passes.loop_to_block.state import AxisState, Layout, Symbols, Tile, tiled


@dataclass
class Scope:
    """Tiles computed inside one loop body; gone at its end."""

    loads: dict[object, dict[float | bool, Tile]] = field(
        default_factory=dict[object, dict[float | bool, Tile]])
    """Per read, and per value that it gave to masked positions."""
    results: dict[SSAValue, Tile] = field(default_factory=dict[SSAValue, Tile])
    factors: dict[tuple[NestOp, int], Tile] = field(
        default_factory=dict[tuple[NestOp, int], Tile])
    """Inputs of products, by number, that were loaded before the loops that use them: factors, and
    what says where factors are."""


class Tiles:
    """What is known and computed where operations are being added; the levels move it around."""

    def __init__(self, kernel: LoopKernelOp, schedule: Schedule):
        self.schedule, self.lanes = schedule, schedule.lanes
        self.layout = Layout(schedule.lanes, schedule.group)
        self.states = {name: AxisState(Expr.of(0), extent, extent)
                       for name, extent in kernel.axes.items()}
        self.symbols = Symbols()
        self.scopes = [Scope()]
        self.open: dict[NestOp, Tile] = {}
        """Reductions under way, and their accumulators."""
        last = {x.axis: k for k, x in enumerate(schedule.levels)}
        self.order = sorted(self.states, key=lambda a: (a == self.lanes, last.get(a, 0)))
        """Axes in the order in which they are dims of tiles; lanes last."""
        self.source: Operation = kernel
        self.block = Block()
        self.buffers: dict[SSAValue, SSAValue] = {}
        self.outputs: dict[SSAValue, list[BlockArgument]] = {}
        self.kept: dict[SSAValue, Kept] = {}
        """Values with memory of the program's own."""
        self.sums: dict[SSAValue, Sums] = {}
        """Sums of the current rows that were in matrix registers."""
        asked = bool(schedule.option("online", 0))
        found = {n: running_maximum(n) for n in kernel.nests} if asked else {}
        self.online = {nest: running for nest, running in found.items() if running is not None}
        """Sums that follow a running maximum."""
        self.decided: Decided = dict[Operation, SSAValue]()
        """Selections that are decided where we are."""

    def add(self, op: Operation) -> Operation:
        set_location(op, self.source)
        self.block.add_op(op)
        return op

    # ------------------------------------------------------------------ reductions
    def open_accumulators(self, nest: NestOp, depth: int, level: Level) -> None:
        """Start a reduction: a tile of identities over the nest's parallel and tiled axes."""
        self.source = nest
        sizes = dict(self.states)
        for later in self.schedule.levels[depth:]:
            if later.axis in {a.name for a in nest.reduce_axes}:
                sizes[later.axis] = replace(sizes[later.axis], tile=later.tile)
        if self.uses_dot(nest):
            sizes = {a: replace(s, tile=1) if a in {x.name for x in nest.reduce_axes} else s
                     for a, s in sizes.items()}
        folded = self.folded(nest)
        dims = tiled((a.name for a in nest.axes if a.name not in folded), sizes, self.order)
        result = nest.results[0].type
        assert isinstance(result, TensorType)
        type_ = self.layout_of(nest).tile_type(result.element, dims, sizes)
        neutral = start(self, nest, type_.element)
        self.open[nest] = Tile(self.add(FullOp.of(neutral, type_)).results[0], tuple(dims))

    def folded(self, nest: NestOp) -> set[Symbol]:
        """Reduce axes whose tiles are combined at once: on lanes, what is unrolled beside them."""
        summed = {a.name for a in nest.reduce_axes}
        if nest in self.online or self.is_followed(nest) or nest.is_scan:
            return summed
        kept = {None, self.layout.lanes, self.layout.group, *self.schedule.matrix}
        return set() if self.lanes is None else summed - kept

    def is_followed(self, nest: NestOp) -> bool:
        """Whether sums are online on a maximum."""
        return any(r.maximum is nest.results[0] for r in self.online.values())

    def finish(self, nest: NestOp) -> None:
        """Combine what is left in the dims of reduce axes, and publish the result."""
        self.source = nest
        tile = self.open.pop(nest)
        if nest.is_scan:  # every step has published its part
            return
        if lies_in_matrices(nest, self.schedule):
            keep_sums(self, nest.results[0], tile)
            return
        self.publish(nest, nest.results[0], self.reduce_dims(nest, tile))

    def reduce_dims(self, nest: NestOp, tile: Tile) -> Tile:
        for axis in [a.name for a in nest.reduce_axes if a.name in tile.axes]:
            tile = self._reduce_dim(nest, tile, axis)
        return tile

    def _reduce_dim(self, nest: NestOp, tile: Tile, axis: Symbol) -> Tile:
        op = ReduceOp.of(nest.combiner_names[0], tile.value, tile.axes.index(axis))
        self.add(op)
        return Tile(op.result, tuple(a for a in tile.axes if a != axis))

    def publish(self, nest: NestOp, result: SSAValue, tile: Tile) -> None:
        """Make a finished tile available to later nests, and store it if it is a result."""
        tile.value.name_hint = result.name_hint
        self.scopes[-1].results[result] = tile
        map_ = nest.stored_at(result)
        for buffer in self.outputs.get(result, ()):
            self.add(store(tile, buffer, map_, self.states, self.symbols))
        if result in self.kept:
            self.add(self.kept[result].store(tile, self.states, self.symbols))

    # ------------------------------------------------------------------ tiles
    def compute(self, nest: NestOp) -> None:
        """One tile of a nest, on its own account."""
        if nest.is_scatter:
            add_scatter(self, nest)
        elif not nest.reduce_axes:
            self.tiles_of(nest)
            for result in nest.results:
                tile = self.find(result)
                assert tile is not None
                self.publish(nest, result, tile)
        elif nest in self.open:
            self.accumulate(nest)
        elif nest.results[0] in self.sums:
            self.publish(nest, nest.results[0], sum_here(self, nest.results[0]))
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
        types = [self.layout.tile_type(r.type.element, dims, self.states)
                 for r in nest.results if isinstance(r.type, TensorType)]

        def build(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
            return append_body(nest, block, arguments, dict(
                zip(indices, arguments[len(nest.inputs):], strict=True)), self.decided)

        op = self.add(map_tiles(inputs, dims, types, build))
        for result, value in zip(nest.results, op.results, strict=True):
            self.scopes[-1].results[result] = Tile(value, tuple(dims))

    def inputs_of(
        self, nest: NestOp, dims: Sequence[Symbol]
    ) -> tuple[list[Tile], list[Operation]]:
        """Tiles of the inputs, then of the index expressions that the body asks for."""
        tiles: list[Tile] = []
        for read in reads_of(nest):
            tiles.append(self.read(nest, read, tiles))
        self.source = nest
        indices: list[Operation] = []
        for op in index_ops(nest, self.decided):
            tiles.append(self.index_tile(op.expr.data, dims))
            indices.append(op)
        return tiles, indices

    def read(self, nest: NestOp, read: Read, before: Sequence[Tile]) -> Tile:
        """The tile that a read needs: of a nest in this kernel, or loaded."""
        if (made := self.made_here(read)) is not None:
            return made
        key = (read.key(), tuple(gathered_inputs(read.map) and [id(b.value) for b in before]))
        known = self.scopes[-1].loads.setdefault(key, {})
        pad = _neutral_pad(nest)
        if known and pad is None:  # whatever masked positions hold
            return next(iter(known.values()))
        if (pad or 0) not in known:
            known[pad or 0] = self._load(nest, read, before, pad or 0)
        return known[pad or 0]

    def made_here(self, read: Read) -> Tile | None:
        """The tile that another nest makes, computed now if need be; None: it is in memory."""
        if read.value in self.sums:
            return sum_here(self, read.value)
        producer, kept = read.value.owner, self.kept.get(read.value)
        if not isinstance(producer, NestOp) or (kept is not None and kept.is_elsewhere(read)):
            return None
        if self.find(read.value) is None and kept is None:
            assert not producer.reduce_axes, "reductions are finished before they are read"
            self.tiles_of(producer)
        return self.find(read.value)

    def _load(
        self, nest: NestOp, read: Read, before: Sequence[Tile], pad: float | bool
    ) -> Tile:
        self.source = nest
        gathered = {Symbol.gathered(k): before[k] for k in gathered_inputs(read.map)}
        axes = {s for e in read.map for s in e.symbols if s in self.states}
        axes |= {a for tile in gathered.values() for a in tile.axes}
        dims = tiled(axes, self.states, self.order)
        symbols = {name: self.symbols.gathered(tile) for name, tile in gathered.items()}
        moved = Read(read.value, tuple(e.substitute(symbols) for e in read.map), read.pad)
        buffer = self.buffers.get(read.value)
        if buffer is None:
            kept = self.kept[read.value]
            buffer, moved = kept.buffer, Read(read.value, kept.at(moved.map))
        op, tile = load(buffer, moved, dims, self.states, self.symbols,
                        self.layout, pad)
        self.add(op)
        return tile

    def index_tile(self, expr: Expr, dims: Sequence[Symbol]) -> Tile:
        """A tile of an index expression over axes."""
        own = tiled((s for s in expr.symbols if s in self.states), self.states, dims)
        values = {a: s.origin + Expr.place(own.index(a)) if a in own else s.origin
                  for a, s in self.states.items() if s.origin is not None}
        exprs, operands, places = self.symbols.refer([expr.substitute(values)], own)
        lanes = own.index(self.lanes) if self.lanes in own else None
        op = IndexOp.of(exprs[0], operands, [self.states[a].tile for a in own], lanes, places)
        return Tile(self.add(op).results[0], tuple(own))

    # ------------------------------------------------------------------ reduction bodies
    def accumulate(self, nest: NestOp) -> None:
        """Combine one tile into the open accumulator."""
        before = self.open[nest]
        if nest.is_scan:
            add_scan(self, nest)
            return
        if self.uses_dot(nest):
            add_dot(self, nest)
        else:
            self._accumulate(nest, before)
        follow(self, nest, before)

    def _accumulate(self, nest: NestOp, tile: Tile) -> None:
        dims = tiled((a.name for a in nest.axes), self.states, self.order)
        if not set(dims) > set(tile.axes):
            self.open[nest] = self.combined(nest, list(tile.axes), tile)
            return
        part = row_maximum(self, nest) or self.reduce_dims(nest, self.combined(nest, dims, None))
        self.open[nest] = self.added(nest, part, tile)

    def added(self, nest: NestOp, part: Tile, total: Tile) -> Tile:
        """Two tiles of partial results, combined; the axes of the first are those of the result."""
        def build(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
            op = combine(nest.combiner_names[0], *arguments)
            block.add_op(op)
            return [op.results[0]]

        type_ = part.value.type
        assert isinstance(type_, TileType)
        op = self.add(map_tiles([part, total], part.axes, [type_], build))
        return Tile(op.results[0], part.axes)

    def reduce_at_once(self, nest: NestOp) -> None:
        """A reduction whose axes all lie in one tile."""
        if nest.is_scan:
            add_scan(self, nest)
            return
        dims = tiled((a.name for a in nest.axes), self.states, self.order)
        if self.uses_dot(nest):
            self.open_accumulators(nest, len(self.schedule.levels), self.schedule.levels[-1])
            add_dot(self, nest)
            self.finish(nest)
            return
        self.publish(nest, nest.results[0],
                     self.reduce_dims(nest, self.combined(nest, dims, None)))

    def combined(self, nest: NestOp, dims: list[Symbol], into: Tile | None) -> Tile:
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
                zip(indices, arguments[own:own + len(indices)], strict=True)), self.decided)[0]
            for valid in arguments[own + len(indices):len(arguments) - bool(into)]:
                value = select_identity(block, valid, value, kind)
            if into is None:
                return [value]
            op = combine(kind, value, arguments[-1])
            block.add_op(op)
            return [op.results[0]]

        self.source = nest
        type_ = self.layout.tile_type(result.element, dims, self.states)
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
            if state.masked and not self._reads_neutral(nest, axis.name):
                masks.append(self.mask(axis.name))
        return masks

    def _reads_neutral(self, nest: NestOp, axis: Symbol) -> bool:
        """Whether what is read beyond the end of an axis leaves the reduction unchanged."""
        return _neutral_pad(nest) is not None and all(
            self.leaves(r, axis) for r in reads_of(nest))

    def leaves(self, read: Read, axis: Symbol) -> bool:
        """Whether a read gives what its load pads with, at the end of an axis and beyond."""
        assert isinstance(read.value.type, TensorType)
        return leaves(read.map, read.value.type.shape, axis, self.states)

    def mask(self, axis: Symbol) -> Tile:
        """Which positions of the axis's tile lie inside the axis."""
        state = self.states[axis]
        assert state.origin is not None
        size = state.tile
        at = state.origin + (Expr.place(0) if size > 1 else 0)
        exprs, operands, _ = self.symbols.refer([at, state.end], [])
        shape = [size] if size > 1 else []
        lanes = 0 if axis == self.lanes and shape else None
        group = 0 if axis == self.layout.group and shape else None
        op = ValidOp.of(exprs[0], exprs[1], operands, shape, lanes, group)
        return Tile(self.add(op).results[0], (axis,) if shape else ())

    def layout_of(self, nest: NestOp) -> Layout:
        """Where the tiles lie that a sum of products needs."""
        in_matrices = lies_in_matrices(nest, self.schedule)
        return Layout(None, None, matrix=True) if in_matrices else self.layout

    def uses_dot(self, nest: NestOp) -> bool:
        chosen = {self.layout.group, *self.schedule.matrix} & {a.name for a in nest.reduce_axes}
        return (bool(chosen) or bool(self.schedule.option("dot", 0))) and (
            is_gathered_dot(nest))


def _neutral_pad(nest: NestOp) -> float | bool | None:
    """What loads must give to masked positions to leave a reduction unchanged.

    0 for both factors of a sum of products, the combiner's identity for a plain float reduction.
    None where no pad does that, or nothing is reduced: then it does not matter what they give.
    """
    if not nest.is_reduction or any(isinstance(v.owner, NestOp) for v in nest.inputs) or any(
            p is not None for p in nest.pad_values):
        return None
    kind = nest.combiner_names[0]
    if product_operands(nest) is not None:
        return 0 if kind == "add" else None
    element = nest.yielded[0].type
    plain = len(nest.inputs) == 1 and nest.yielded[0] is nest.body.block.args[0]
    return identity(kind, element) if plain and t.is_float(element) else None
