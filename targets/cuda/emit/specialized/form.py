"""Which kernels may use warp specialization: a product with an elementwise epilogue.

    %z = block.full 0.0
    %s = block.for %k (%c = %z) { block.load %a; block.load %b; block.dot; yield }
    block.load, block.index, block.valid, block.map, block.store

Both factors are matrices in memory that nothing else in the kernel reads. Their tiles are
rectangles that TMA can copy: rows start at multiples of 16 bytes, and the padding is zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

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
from dialects.block.programs import tile_type
from targets.cuda.emit.specialized.copied import Rectangle, rectangle
from targets.cuda.emit.specialized.kernel import GROUP_ROWS
from targets.cuda.errors import EmitError

_AROUND = (LoadOp, IndexOp, ValidOp, MapOp, StoreOp)


@dataclass(frozen=True)
class Specialized:
    """A kernel of that form. `left`, `right`: the factors' tiles of one step."""

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
    def epilogue(self) -> list[Operation]:
        """The operations of the epilogue."""
        block = self.loop.parent_block()
        assert block is not None
        return [op for op in block.ops
                if not isinstance(op, YieldOp) and op is not self.loop and op not in self.zeros]

    @property
    def zeros(self) -> list[Operation]:
        """The zeros with which the sums start."""
        return [v.owner for v in self.loop.carried
                if isinstance(v.owner, FullOp) and v.owner.number == 0]


def specialized_form(kernel: KernelOp) -> Specialized:
    """The form of a kernel. Raises EmitError, which says what does not fit."""
    loops = [op for op in kernel.body.block.ops if isinstance(op, ForOp)]
    if len(loops) != 1 or len(loops[0].carried) != 1:
        raise EmitError("warp specialization needs one loop with one sum")
    [loop] = loops
    match list(loop.body.block.ops):
        case [LoadOp() as first, LoadOp() as second, DotOp() as dot, YieldOp()]:
            pass
        case _:
            raise EmitError("warp specialization needs a loop of two loads and a product")
    if {dot.a, dot.b} != {first.result, second.result} or dot.c is not loop.body.block.args[1]:
        raise EmitError("warp specialization needs a loop that sums the product of its loads")
    found = Specialized(loop, dot, _factor(dot.a), _factor(dot.b))
    unsupported = [op.name for op in found.epilogue if not isinstance(op, _AROUND)]
    if unsupported or not found.zeros:
        raise EmitError("warp specialization does not allow "
                        f"{', '.join(unsupported) or 'sums that start with other than zeros'}")
    if found.rows % GROUP_ROWS:
        raise EmitError(f"a consumer warp group multiplies {GROUP_ROWS} rows at a time, "
                        f"not {found.rows}")
    if None in (loop.lower.data.constant, loop.upper.data.constant):
        raise EmitError("warp specialization needs sums of static length")
    return found


def _factor(value: SSAValue) -> Rectangle:
    load = value.owner
    assert isinstance(load, LoadOp)
    found = rectangle(load, tile_type(value).shape)
    if found is None or load.pad_value != 0 or len(list(load.buffer.uses)) != 1:
        raise EmitError("warp specialization needs tiles of matrices that nothing else reads, "
                        "padded with zeros")
    return found
