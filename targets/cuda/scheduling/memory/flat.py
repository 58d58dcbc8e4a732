"""Elementwise kernels whose rows fill only a part of a tile: rows and columns become one axis.

    nest (i: 12, j: 1011, k: 80) ins(%x[i, j, k], %x[i, j, k + 40], %x[i, j, k - 40])
    ->  nest (i: 12, j: 80880) ins(%x[i, j floordiv 80, j mod 80], ...)

That is a rotary embedding, which reads halves of rows. Tiles are powers of two, so that rows of 80
elements leave a third of the threads idle. Addresses stay plain sums, because the rows lie one
after another in memory.
"""

from __future__ import annotations

from dialects.loop import KernelOp, NestOp
from dialects.strata.types import shape_of
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.runs import contiguous_axes
from passes.rewrites.loop.axis_fusion import can_fuse, fuse_axes
from targets.cuda.machine import machine_of
from targets.cuda.scheduling.roles import symbols_of
from targets.cuda.scheduling.tiles import even_power
from targets.options import TargetOptions

EMPTY = 5
"""Rows keep their axis if they leave one part in so many of a tile empty, or less."""


def prepare_flat(kernel: KernelOp, options: TargetOptions) -> None:
    """Fuse rows and columns where tiles of rows would be less full."""
    along = contiguous_axes(kernel)
    if len(along) != 1 or not all(n.is_elementwise and not n.unordered for n in kernel.nests):
        return
    [column], elements = along, machine_of(options.features).fitted.rows.elements
    size = kernel.axes[column].constant
    tile = even_power(kernel.axes[column], elements)
    if size is None or size >= elements or EMPTY * (-size % tile) <= tile:
        return
    rows = {_row(n, column) for n in kernel.nests}
    row = next(iter(rows))
    if len(rows) > 1 or row is None or not can_fuse(kernel, [row, column]):
        return
    if all(_are_adjacent(n, row, column) for n in kernel.nests):
        fuse_axes(kernel, [row, column])


def _row(nest: NestOp, column: Symbol) -> Symbol | None:
    """The axis of the rows of what a nest computes."""
    map_ = nest.output_maps[0]
    return map_[-2].as_symbol if len(map_) > 1 and map_[-1].as_symbol == column else None


def _are_adjacent(nest: NestOp, row: Symbol, column: Symbol) -> bool:
    """Whether everything is read and written at a row and a column, with a constant distance, of
    matrices whose rows are the rows of the result."""
    size = next((a.extent for a in nest.axes if a.name == column), None)
    maps = [*zip(nest.inputs, nest.input_maps, strict=True),
            *zip(nest.results, nest.output_maps, strict=True)]
    return size is not None and all(
        len(map_) > 1 and _is_place(map_[-1], column) and _is_place(map_[-2], row)
        and not symbols_of(map_[:-2]) & {row, column} and shape_of(value)[-1] == size
        for value, map_ in maps)


def _is_place(expr: Expr, axis: Symbol) -> bool:
    return (expr - Expr.symbol(axis)).constant is not None
