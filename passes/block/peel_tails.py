"""block-peel-tails: compare with the end of a buffer in the last program only.

    block.kernel @k(%x: f16[1001], ...) grid(%p: 4) {
      %v = block.load %x[256*%p + t0] check [0]
    -->
    block.kernel @k(%x: f16[1001], ...) grid(%p: 4) {
      block.for %i = max(0, %p) to min(3, %p + 1) step 1 { %v = block.load %x[256*%i + t0] ... }
      block.for %i = max(3, %p) to min(4, %p + 1) step 1 { %v = ... check [0] ... }
    }

A comparison with an odd end differs within a vector, so that each element would be loaded alone.

Enters: final kernels with proven accesses. Only kernels whose programs walk along one dim are
changed, and only where the end is not a multiple of the widest vector.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from dialects.block import ForOp, KernelOp, LoadOp, StoreOp, YieldOp
from dialects.block.branches import Branch
from dialects.strata.types import BufferType, SizesAttr, TileType, byte_width
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import merge_locations, set_location
from passes.base import StrataContext, StrataPass

VECTOR = 16
"""The bytes of the widest vector."""


class BlockPeelTails(StrataPass):
    """Divide kernels into whole tiles and the last one."""

    name = "block-peel-tails"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if context.facts.programs == 1:
            return
        for kernel in [op for op in module.body.block.ops if isinstance(op, KernelOp)]:
            whole = _whole_programs(kernel)
            if whole is not None and context.allowance.take(kernel, self.name):
                _peel(kernel, whole)


def _whole_programs(kernel: KernelOp) -> int | None:
    """How many programs compare nothing, all but the last one; None if the kernel stays."""
    grid = [e.constant for e in kernel.grid.data]
    accesses = [op for op in kernel.body.block.ops if isinstance(op, LoadOp | StoreOp)]
    if len(grid) != 1 or grid[0] is None or grid[0] < 2 or any(
            isinstance(op, ForOp) for op in kernel.body.block.ops):
        return None
    checked = [op for op in accesses if op.checked_dims]
    odd = any(_is_odd(op) for op in checked)
    return grid[0] - 1 if odd and all(_is_inside(kernel, op, grid[0] - 2) for op in checked) else (
        None)


def _is_odd(op: LoadOp | StoreOp) -> bool:
    """Whether the end of the last dim may lie within a vector."""
    type_ = op.buffer.type
    assert isinstance(type_, BufferType)
    size, last = type_.shape[-1].constant, type_.rank - 1
    return op.checked_dims == (last,) and size is not None and (
        size * byte_width(type_.element) % VECTOR != 0)


def _is_inside(kernel: KernelOp, op: LoadOp | StoreOp, program: int) -> bool:
    """Whether the checked indices are in bounds up to this program."""
    tile = op.result.type if isinstance(op, LoadOp) else op.value.type
    type_ = op.buffer.type
    assert isinstance(tile, TileType) and isinstance(type_, BufferType)
    if any(v not in kernel.program_ids for v in op.indices):
        return False
    last = {Symbol.operand(k): program for k in range(len(op.indices))}
    last |= {Symbol.place(k): extent - 1 for k, extent in enumerate(tile.shape)}
    for dim in op.checked_dims:
        parts, size = op.exprs[dim].linear([*last]), type_.shape[dim].constant
        if parts is None or size is None or parts[1].constant is None:
            return False
        steps = {name: step.constant for name, step in parts[0].items()}
        reach = parts[1].constant + sum((step or 0) * last[name] for name, step in steps.items())
        if parts[1].constant < 0 or any((s or -1) < 0 for s in steps.values()) or reach >= size:
            return False
    return True


def _peel(kernel: KernelOp, whole: int) -> None:
    body = kernel.body.block
    old = [op for op in body.ops if not isinstance(op, YieldOp)]
    for op in [*body.ops]:
        op.detach()
    program = Expr.symbol(Symbol.operand(0))
    for first, end in ((0, whole), (whole, whole + 1)):
        branch = ForOp.of(*Branch(program, first, end).bounds, 1, kernel.program_ids)
        body.add_op(branch)
        values: dict[SSAValue, SSAValue] = {kernel.program_ids[0]: branch.counter}
        for op in old:
            copy = op.clone(values)
            branch.body.block.add_op(copy)
            if not first and isinstance(copy, LoadOp | StoreOp):
                copy.properties["checks"] = SizesAttr.of(())
        branch.body.block.add_op(YieldOp.create())
        set_location(branch, old[-1])
    end_ = YieldOp.create()
    body.add_op(end_)
    merge_locations(end_, old[-1:])
    for op in reversed(old):
        op.erase()
