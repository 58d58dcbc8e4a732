"""Which kernels may have warps that only load: a product, and elementwise work on its sums.

    %z = block.full 0.0
    %s = block.for %k (%c = %z) { block.load %a; block.load %b; block.dot; yield }
    block.load, block.index, block.valid, block.map, block.store

Both factors are matrices in memory that nothing else of the kernel reads. Their tiles are
rectangles that can be copied at once: rows begin at multiples of 16 bytes, zeros lie outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from dialects import types as t
from dialects.block import (
    DotOp,
    ForOp,
    FullOp,
    IndexOp,
    KernelOp,
    LoadOp,
    MapOp,
    StoreOp,
    ValidOp,
    YieldOp,
)
from dialects.expr import Expr
from targets.cuda.emit.context import buffer_type, tile_type
from targets.cuda.errors import EmitError

PITCH = 16
"""What divides the bytes from one row of a matrix to the next."""
GROUP_ROWS = 64
"""A group of four warps multiplies so many rows at a time."""
SWIZZLES = (128, 64, 32)
"""Bytes of a tile's rows that lie in another order, so that columns are read without conflicts."""
_AROUND = (LoadOp, IndexOp, ValidOp, MapOp, StoreOp)


@dataclass(frozen=True)
class Rectangle:
    """A tile of a matrix in memory, `transposed` where the tile's first dim runs along memory.

    `extents`: in the order of memory. `origin`: where its first element is, without the tile's own
    positions; over `indices` as `%0`, `%1` ....
    """

    buffer: SSAValue
    extents: tuple[int, int]
    origin: tuple[Expr, Expr]
    indices: tuple[SSAValue, ...]
    transposed: bool

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return t.byte_width(buffer_type(self.buffer).element)

    @property
    def swizzle(self) -> int:
        """Raises EmitError for rows that are too short."""
        row = self.extents[1] * self.width
        found = next((s for s in SWIZZLES if row % s == 0), None)
        if found is None:
            raise EmitError(f"rows of {row} bytes cannot be copied at once: choose larger tiles")
        return found


@dataclass(frozen=True)
class Specialized:
    """A kernel in that form. `left`, `right`: the factors' tiles of one step."""

    loop: ForOp
    dot: DotOp
    left: Rectangle
    right: Rectangle

    @property
    def rows(self) -> int:
        return tile_type(self.dot.result).shape[0]

    @property
    def columns(self) -> int:
        return tile_type(self.dot.result).shape[1]

    @property
    def behind(self) -> list[Operation]:
        """What is done with the sums."""
        block = self.loop.parent_block()
        assert block is not None
        return [op for op in block.ops
                if not isinstance(op, YieldOp) and op is not self.loop and op not in self.zeros]

    @property
    def zeros(self) -> list[Operation]:
        """What the sums begin with."""
        return [v.owner for v in self.loop.carried
                if isinstance(v.owner, FullOp) and v.owner.number == 0]


def specialized_form(kernel: KernelOp) -> Specialized:
    """Raises EmitError, saying what is in the way."""
    loops = [op for op in kernel.body.block.ops if isinstance(op, ForOp)]
    if len(loops) != 1 or len(loops[0].carried) != 1:
        raise EmitError("warps that only load need one loop, and one sum")
    [loop] = loops
    match list(loop.body.block.ops):
        case [LoadOp() as first, LoadOp() as second, DotOp() as dot, YieldOp()]:
            pass
        case _:
            raise EmitError("warps that only load need a loop of two loads and a product")
    if {dot.a, dot.b} != {first.result, second.result} or dot.c is not loop.body.block.args[1]:
        raise EmitError("warps that only load need a loop that sums the product of its loads")
    found = Specialized(loop, dot, _factor(dot.a), _factor(dot.b))
    strange = [op.name for op in found.behind if not isinstance(op, _AROUND)]
    if strange or not found.zeros:
        raise EmitError(f"warps that only load stand beside no {', '.join(strange) or 'old sums'}")
    if found.rows % GROUP_ROWS:
        raise EmitError(f"a group of warps multiplies {GROUP_ROWS} rows at a time, "
                        f"not {found.rows}")
    if None in (loop.lower.data.constant, loop.upper.data.constant):
        raise EmitError("warps that only load need sums of a known length")
    return found


def _factor(value: SSAValue) -> Rectangle:
    load = value.owner
    assert isinstance(load, LoadOp)
    found = rectangle(load, tile_type(value).shape)
    if found is None or load.pad_value != 0 or len(list(load.buffer.uses)) != 1:
        raise EmitError("warps that only load need tiles of matrices that nothing else reads, "
                        "zeros around them")
    return found


def rectangle(op: LoadOp | StoreOp, shape: Sequence[int]) -> Rectangle | None:
    """What an operation loads or stores, if that is one."""
    type_ = buffer_type(op.buffer)
    if type_.rank != 2 or len(shape) != 2 or any(d.data for d in op.index_dims.data):
        return None
    pitch = type_.shape[1].constant
    if pitch is None or pitch * t.byte_width(type_.element) % PITCH:
        return None
    for dims in ((0, 1), (1, 0)):
        first, second = (e - Expr.symbol(f"t{d}") for e, d in zip(op.exprs, dims, strict=True))
        if not (first.symbols | second.symbols) & {"t0", "t1"}:
            return Rectangle(op.buffer, (shape[dims[0]], shape[dims[1]]), (first, second),
                             tuple(op.indices), dims != (0, 1))
    return None
