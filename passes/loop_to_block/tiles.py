"""Tiles of values at one point of the program: what is loaded, and what bodies of nests compute.

Only reductions and results of the kernel are computed for themselves. Other nests are computed
where a tile of them is needed, once per scope (and again after the scope has ended).
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Operation, SSAValue

from dialects.block import ReduceOp
from dialects.loop import NestOp
from dialects.strata import types as t
from dialects.strata.types import TensorType, TileType
from dialects.symbolic.symbol import Symbol
from passes.loop_to_block.access import load
from passes.loop_to_block.compute import (
    append_body,
    combine,
    identity,
    index_ops,
    map_tiles,
    product_operands,
    select_identity,
)
from passes.loop_to_block.matrices import sum_here
from passes.loop_to_block.place import Place
from passes.loop_to_block.state import Tile, tiled
from passes.rewrites.loop.nests import Read, gathered_inputs, reads_of


class Tiles(Place):
    """Tiles of inputs and of nests' values."""

    # ------------------------------------------------------------------ nests and loads
    def tiles_of(self, nest: NestOp) -> None:
        """Compute an elementwise nest at this point, unless a tile of it exists already."""
        if all(self.find(r) is not None for r in nest.results):
            return
        dims = tiled((a.name for a in nest.axes), self.states, self.order)
        if (passed := self._passed(nest, dims)) is not None:
            self.scopes[-1].results[nest.results[0]] = passed
            return
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

    def _passed(self, nest: NestOp, dims: Sequence[Symbol]) -> Tile | None:
        """The tile of the input that a nest passes on, where its selections are decided."""
        value = nest.yielded[0]
        while isinstance(value.owner, Operation) and value.owner in self.decided:
            value = self.decided[value.owner]
        if value is nest.yielded[0] or value not in nest.body.block.args:
            return None
        tile = self.read(nest, reads_of(nest)[nest.body.block.args.index(value)], [])
        return tile if tile.axes == tuple(dims) else None

    def inputs_of(
        self, nest: NestOp, dims: Sequence[Symbol]
    ) -> tuple[list[Tile], list[Operation]]:
        """Tiles of the inputs, followed by tiles of the index expressions that the body uses."""
        tiles: list[Tile] = []
        for k, read in enumerate(reads_of(nest)):
            state = self.open.get(nest) if nest.is_recurrence and k == 0 else None
            tiles.append(state or self.read(nest, read, tiles))
        self.source = nest
        indices: list[Operation] = []
        for op in index_ops(nest, self.decided):
            tiles.append(self.index_tile(op.expr.data, dims, tiles))
            indices.append(op)
        return tiles, indices

    def read(self, nest: NestOp, read: Read, before: Sequence[Tile]) -> Tile:
        """The tile that a read needs: computed by a nest of this kernel, or loaded."""
        if (made := self.made_here(read)) is not None:
            return made
        key = (read.key(), tuple(gathered_inputs(read.map) and [id(b.value) for b in before]))
        known = self.scopes[-1].loads.setdefault(key, {})
        pad = _neutral_pad(nest)
        if known and pad is None:  # the content of masked positions does not matter
            return next(iter(known.values()))
        if (pad or 0) not in known:
            known[pad or 0] = self._load(nest, read, before, pad or 0)
        return known[pad or 0]

    def made_here(self, read: Read) -> Tile | None:
        """The tile that another nest computes, now if necessary; None if it must be loaded."""
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

    # ------------------------------------------------------------------ parts of reductions
    def combined(self, nest: NestOp, dims: list[Symbol], into: Tile | None) -> Tile:
        """The body's values on a tile, neutral where masked, combined into `into` if given."""
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

    def added(self, nest: NestOp, part: Tile, total: Tile) -> Tile:
        """Two tiles of partial results, combined; the result has the axes of the first one."""
        def build(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
            op = combine(nest.combiner_names[0], *arguments)
            block.add_op(op)
            return [op.results[0]]

        type_ = part.value.type
        assert isinstance(type_, TileType)
        op = self.add(map_tiles([part, total], part.axes, [type_], build))
        return Tile(op.results[0], part.axes)

    def reduce_dims(self, nest: NestOp, tile: Tile, kept: Sequence[Symbol] = ()) -> Tile:
        """A tile whose dims of reduce axes are reduced, except for those to be kept."""
        for axis in [a.name for a in nest.reduce_axes if a.name in tile.axes]:
            if axis in kept:
                continue
            tile = self._reduce_dim(nest, tile, axis)
        return tile

    def _reduce_dim(self, nest: NestOp, tile: Tile, axis: Symbol) -> Tile:
        op = ReduceOp.of(nest.combiner_names[0], tile.value, tile.axes.index(axis))
        self.add(op)
        return Tile(op.result, tuple(a for a in tile.axes if a != axis))

    def _masks(self, nest: NestOp) -> list[Tile]:
        """One mask tile per reduce axis whose tile reaches beyond its end.

        No mask is needed where out-of-bounds loads already return the neutral value, or where the
        bodies select what counts by its position.
        """
        self.source = nest
        masks: list[Tile] = []
        for axis in nest.reduce_axes:
            masked = self.states[axis.name].masked and axis.name not in self.ended
            if masked and not self._reads_neutral(nest, axis.name):
                masks.append(self.mask(axis.name))
        return masks

    def _reads_neutral(self, nest: NestOp, axis: Symbol) -> bool:
        """Whether the elements read beyond the end of an axis leave the reduction unchanged."""
        return _neutral_pad(nest) is not None and all(
            self.leaves(r, axis) for r in reads_of(nest))


def _neutral_pad(nest: NestOp) -> float | bool | None:
    """The value that loads must give to masked positions to leave a reduction unchanged.

    It is 0 for both factors of a sum of products, and the combiner's identity for a plain float
    reduction. None if no padding achieves that, and if nothing is reduced, so that any value will
    do.
    """
    if not nest.is_reduction or nest.is_recurrence or any(
            isinstance(v.owner, NestOp) for v in nest.inputs) or any(
            p is not None for p in nest.pad_values):
        return None
    kind = nest.combiner_names[0]
    if product_operands(nest) is not None:
        return 0 if kind == "add" else None
    element = nest.yielded[0].type
    plain = len(nest.inputs) == 1 and nest.yielded[0] is nest.body.block.args[0]
    return identity(kind, element) if plain and t.is_float(element) else None
