"""Schedule rules for matrix registers (AMX): which sums of products use them, and in which tiles.

    <grid i0 tile 256, grid i1 tile 32 lanes, loop i0 tile 32 matrix, loop i2 tile 32 matrix,
     loop i0 tile 4>

A tile of sums takes four registers, two by two, so that each load is used twice. The epilogue
processes a few rows at a time, in vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dialects.loop import KernelOp, NestOp, extents_of, scalar_type
from dialects.strata import types as t
from dialects.strata.schedule import Level
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from targets.cpu.facts import MatrixCosts
from targets.cpu.machine import Machine, MatrixUnit
from targets.cpu.scheduling.rows import Rows, even

PARTS = 2
"""Registers of sums along the rows, and along the columns."""
RESULT_ROWS = 4
"""Rows of sums that the epilogue reads from memory at once."""
FILLED = 3 / 4
"""The fewest rows of a tile that leaves no remainder, relative to the most rows."""
CHUNK_TILES = 8
"""The most row tiles of one program."""


class MatrixTiles(NamedTuple):
    """A contraction's tile for matrix registers: columns, rows, and steps of the sum."""

    width: int
    rows: Rows
    depth: int


def matrix_tiles(
    nest: NestOp, lanes: Symbol, names: Sequence[Symbol], last: Symbol, group: int, machine: Machine
) -> MatrixTiles | None:
    """The tiles of a sum of grouped products along `last`; None if vectors are better.

    `names`: the axes that can be rows, outermost first.
    """
    unit, extents = machine.matrix_unit, extents_of(nest.axes)
    element = scalar_type(nest.inputs[0])
    if unit is None or not names or not machine.multiplies_matrices(element):
        return None
    depth = unit.row_bytes // t.byte_width(element)
    if not _is_alone(nest) or not _ends_in_zeros(nest, lanes, last, group, depth):
        return None
    costs, length = machine.costs.matrices, extents[last].constant
    width = _width(extents[lanes].constant, unit, costs)
    found = MatrixTiles(width, _rows(names, extents, unit), depth)
    long = length is None or length >= depth
    return found if long and _gains(found, group, unit, costs) else None


def _is_alone(nest: NestOp) -> bool:
    """Whether the rest of the kernel is elementwise, without another reduction."""
    kernel = nest.parent_op()
    return isinstance(kernel, KernelOp) and not any(
        n.reduce_axes for n in kernel.nests if n is not nest)


def _ends_in_zeros(nest: NestOp, lanes: Symbol, last: Symbol, group: int, depth: int) -> bool:
    """Whether factors are 0 beyond the end of the summed axis, if a tile extends there.

    A panel is padded after its last whole group. For integers it suffices that the rows end there.
    """
    extent = extents_of(nest.axes)[last]
    if not (extent % depth).terms:
        return True
    [rows] = [v for v, m in zip(nest.inputs, nest.input_maps, strict=True)
              if not any(lanes in e.symbols for e in m)]
    assert isinstance(rows.type, t.TensorType)
    whole = not t.is_float(scalar_type(nest.results[0])) or not (extent % group).terms
    return rows.type.shape[-1] == extent and whole


def _gains(tiles: MatrixTiles, group: int, unit: MatrixUnit, costs: MatrixCosts) -> bool:
    """Whether a step of a tile takes clearly less time than with vectors."""
    rows = product(tile for _, tile in tiles.rows).constant or 1
    parts = tiles.width * 4 // unit.row_bytes
    by_vectors = rows * parts * (tiles.depth // group)
    return by_vectors >= costs.gain * max(unit.latency, rows * parts)


def _width(size: int | None, unit: MatrixUnit, costs: MatrixCosts) -> int:
    """Columns of a tile: two registers, or one if that leaves much less of the last one empty."""
    part = unit.row_bytes // 4
    if size is None:
        return PARTS * part
    parts = -(-size // part)
    return part if parts * costs.narrow < -(-parts // PARTS) else PARTS * part


def _rows(names: Sequence[Symbol], extents: Mapping[Symbol, Expr], unit: MatrixUnit) -> Rows:
    """The innermost axis in even tiles, with one more axis around it if it fills no two registers.
    """
    *outer, inner = names
    size = extents[inner].constant
    if size is None:
        return ((inner, PARTS * unit.rows),)
    if size <= unit.rows and outer and (extents[outer[-1]].constant or 1) > 1:
        return ((outer[-1], PARTS), (inner, size))
    return ((inner, _even(size, PARTS * unit.rows)),)


def _even(size: int, most: int) -> int:
    """Even tiles of at most `most`; smaller ones if those leave no remainder."""
    tile = even(size, most)
    fitting = (n for n in range(tile, int(most * FILLED), -1) if size % n == 0)
    return next(fitting, tile)


# ---------------------------------------------------------------------- schedules
def matrix_levels(
    nest: NestOp, lanes: Symbol, tiles: MatrixTiles, reduce: Sequence[Symbol],
    others: Sequence[Symbol], machine: Machine,
) -> list[Level]:
    """The levels of a contraction except batches; `others`: parallel axes without tiles."""
    panels = [Level("grid", lanes, tiles.width, lanes=True)]
    programs = [Level("grid", a) for a in others] or _chunks(nest, lanes, tiles, machine)
    turned = _streams_panels(nest, lanes, tiles, programs, machine)
    *outer, (inner, _) = tiles.rows
    return [
        *(programs + panels if turned else panels + programs),
        *(Level("loop", name, tile, matrix=True) for name, tile in tiles.rows),
        *(Level("loop", name) for name in reduce[:-1]),
        Level("loop", reduce[-1], tiles.depth, matrix=True),
        *(Level("loop", name) for name, _ in outer),
        Level("loop", inner, RESULT_ROWS)]


def _chunks(nest: NestOp, lanes: Symbol, tiles: MatrixTiles, machine: Machine) -> list[Level]:
    """The number of rows per program that stay in half of the L2 cache; none for short axes."""
    name, tile = tiles.rows[0]
    size = extents_of(nest.axes)[name].constant
    most = max(1, min(CHUNK_TILES, machine.caches[1] // 2 // max(1, _row_bytes(nest) * tile)))
    if size is not None and size <= most * tile:
        return []
    counts = range(most, most // 2, -1)
    fitting = (n for n in counts if size is not None and size % (n * tile) == 0)
    return [Level("grid", name, next(fitting, most) * tile)]


def _row_bytes(nest: NestOp) -> int:
    """Bytes of the factors of one sum, from the rows or from a panel."""
    count = product(a.extent for a in nest.reduce_axes).constant or 0
    return count * t.byte_width(scalar_type(nest.inputs[0]))


def _streams_panels(
    nest: NestOp, lanes: Symbol, tiles: MatrixTiles, programs: Sequence[Level], machine: Machine
) -> bool:
    """Whether to read all panels for each chunk of rows, rather than all rows for each panel."""
    extents, kept = extents_of(nest.axes), machine.caches[1] // 2
    names = {name for name, _ in tiles.rows} | {x.axis for x in programs}
    rows = product(extents[name] for name in names).constant
    chunks = product(extents[x.axis].ceildiv(x.tile) for x in programs).constant
    columns = extents[lanes].constant
    if rows is None or chunks is None or columns is None:
        return bool(programs)

    def again(count: int, times: int) -> int:
        """The bytes that come from beyond the L2 cache, for `count` rows or columns."""
        size = count * _row_bytes(nest)
        return size if size <= kept else size * times

    return again(columns, chunks) + again(rows, 1) <= (
        again(rows, -(-columns // tiles.width)) + again(columns, 1))
