"""Tiles of updates, merged into the elements that gathered indices name.

Updates are merged one after another: an element is loaded, merged with its update, and stored.
With the option `atomic` of a schedule, those of an unordered scatter are added indivisibly instead,
by as many programs as there are.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, SSAValue

from dialects.loop import NestOp
from dialects.strata.schedule_options import ATOMIC
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.loop_to_block.access import load, store
from passes.loop_to_block.compute import append_body, combine, map_tiles
from passes.loop_to_block.state import Tile, tiled
from passes.loop_to_block.tiles import Tiles
from passes.rewrites.loop.nests import Read, gathered_inputs


def add_scatter(tiles: Tiles, nest: NestOp) -> None:
    """Merge a tile into the elements that the nest's indices name."""
    dims = tiled((a.name for a in nest.axes), tiles.states, tiles.order)
    inputs, indices = tiles.inputs_of(nest, dims)
    tiles.source = nest
    places = {Symbol.gathered(k): tiles.symbols.gathered(inputs[k])
              for k in gathered_inputs(nest.output_maps[0])}
    map_ = tuple(e.substitute(places) for e in nest.output_maps[0])
    atomic = nest.unordered is not None and tiles.schedule.option(ATOMIC)
    for buffer in tiles.outputs.get(nest.results[0], ()):
        there = [] if atomic else _there(tiles, nest, buffer, map_, dims)
        tile = _merged(tiles, nest, inputs, indices, there, dims)
        op = store(tile, buffer, map_, tiles.states, tiles.symbols)
        tiles.add(op)
        if atomic:
            op.combiner = StringAttr(nest.combiner_names[0])


def _there(
    tiles: Tiles, nest: NestOp, buffer: SSAValue, map_: tuple[Expr, ...], dims: Sequence[Symbol]
) -> list[Tile]:
    """The elements that values are merged with; none if they are overwritten."""
    if nest.combiner_names[0] == "none":
        return []
    op, tile = load(buffer, Read(buffer, map_), dims, tiles.states, tiles.symbols, tiles.layout, 0)
    tiles.add(op)
    return [tile]


def _merged(
    tiles: Tiles, nest: NestOp, inputs: Sequence[Tile], indices: Sequence[Operation],
    there: Sequence[Tile], dims: Sequence[Symbol],
) -> Tile:
    """The body's values, merged with `there`."""
    result, own = nest.results[0].type, len(nest.inputs)
    assert isinstance(result, TensorType)

    def build(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        [value] = append_body(nest, block, arguments, dict(
            zip(indices, arguments[own:own + len(indices)], strict=True)))
        if not there:
            return [value]
        op = combine(nest.combiner_names[0], arguments[-1], value)
        block.add_op(op)
        return [op.results[0]]

    type_ = tiles.layout.tile_type(result.element, dims, tiles.states)
    op = tiles.add(map_tiles([*inputs, *there], dims, [type_], build))
    return Tile(op.results[0], tuple(dims))
