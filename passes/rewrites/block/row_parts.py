"""Kernels that compute some of the rows of another kernel: the same code on parts of its buffers.

    block.kernel @k(%x: f16[2048, 64], %w: f16[64, 32], %y: f16[2048, 32]) grid(%i: 32, ...)
    -->
    block.kernel @k_part(%x: f16[512, 64], %w: f16[64, 32], %y: f16[512, 32]) grid(%i: 8, ...)

The rows must be divided by one axis of a static grid: each program of it accesses the rows of its
own tile, and nothing else depends on its number. Rows are contiguous, since outer dims have one
element, so a part of the rows is a part of the memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from dialects.block import KernelOp, LoadOp, StoreOp
from dialects.block.programs import tile_type
from dialects.records import dataclass
from dialects.strata.types import BufferType, SizesAttr, buffer_type
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Kind, Symbol


@dataclass(frozen=True)
class RowAxis:
    """An axis of a kernel's grid. `dims`: for each buffer of which it divides the rows, by its
    position, the dim of the rows."""

    number: int
    extent: int
    dims: Mapping[int, int]


def row_axis(kernel: KernelOp, written: int) -> RowAxis | None:
    """The axis that divides the rows of the buffer in position `written`; None if there is none."""
    if kernel.size_names:
        return None
    for number, (identity, size) in enumerate(
            zip(kernel.program_ids, kernel.grid.data, strict=True)):
        dims = _divided(kernel, identity, size.constant or 0) if size.constant else None
        if dims is not None and written in dims:
            return RowAxis(number, size.constant or 0, dims)
    return None


def part_type(type_: BufferType, dim: int, count: int) -> BufferType:
    """The type of one of `count` parts of the rows."""
    shape = [s // count if k == dim else s for k, s in enumerate(type_.shape)]
    return BufferType(type_.element, SizesAttr.of(shape))


def part_kernel(kernel: KernelOp, axis: RowAxis, count: int, name: str) -> KernelOp:
    """A kernel for any one of `count` parts of the rows, which divides the extent of the axis."""
    copy = kernel.clone()
    copy.properties["sym_name"] = StringAttr(name)
    copy.properties["grid"] = SizesAttr.of([
        e // count if k == axis.number else e for k, e in enumerate(kernel.grid.data)])
    for place, dim in axis.dims.items():
        buffer = copy.buffers[place]
        Rewriter.replace_value_with_new_type(buffer, part_type(buffer_type(buffer), dim, count))
    return copy


def _divided(kernel: KernelOp, identity: SSAValue, extent: int) -> dict[int, int] | None:
    """The dims of buffers that programs of an axis divide; None if it has other uses."""
    found: dict[int, int] = {}
    for use in identity.uses:
        op = use.operation
        if not isinstance(op, LoadOp | StoreOp) or op.buffer not in kernel.buffers:
            return None
        place, dim = kernel.buffers.index(op.buffer), _dim_of_tiles(op, identity, extent)
        if dim is None or found.setdefault(place, dim) != dim:
            return None
    accessed = [(op, kernel.buffers.index(op.buffer)) for op in kernel.walk()
                if isinstance(op, LoadOp | StoreOp) and op.buffer in kernel.buffers]
    whole = [op for op, place in accessed if place in found and identity not in op.indices]
    return None if whole else found


def _dim_of_tiles(op: LoadOp | StoreOp, identity: SSAValue, extent: int) -> int | None:
    """The dim along which an access of each program stays in a tile of its own, if tiles make up
    the whole of it and outer dims have one element."""
    symbol = Symbol.operand(list(op.indices).index(identity))
    dims = [k for k, e in enumerate(op.exprs) if symbol in e.symbols]
    shape = buffer_type(op.buffer).shape
    if len(dims) != 1 or prod(s.constant or 0 for s in shape[:dims[0]]) != 1:
        return None
    [dim] = dims
    split = op.exprs[dim].linear([symbol])
    rows = None if split is None else split[0][symbol].constant
    if not rows or shape[dim] != Expr.of(rows * extent):
        return None
    assert split is not None
    return dim if _within(split[1], op, rows) else None


def _within(rest: Expr, op: LoadOp | StoreOp, rows: int) -> bool:
    """Whether positions in a tile stay within so many rows."""
    tile = tile_type(op.result if isinstance(op, LoadOp) else op.value)
    split = rest.linear(rest.symbols)
    if split is None or any(s.kind != Kind.PLACE for s in split[0]):
        return False
    steps = {s: c.constant for s, c in split[0].items()}
    least = split[1].constant
    if least is None or least < 0 or any(c is None or c < 0 for c in steps.values()):
        return False
    return least + sum((c or 0) * (tile.shape[s.number] - 1) for s, c in steps.items()) < rows
