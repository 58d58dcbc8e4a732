"""What last used a memory before an operation, and which kernels nothing launches."""

from __future__ import annotations

from collections.abc import Collection

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.block import KernelOp
from dialects.host import LaunchOp, ViewOp, host_functions


def memory_of(buffer: SSAValue) -> SSAValue:
    """The buffer whose memory a value is a view or a part of."""
    while isinstance(buffer.owner, ViewOp):
        buffer = buffer.owner.source
    return buffer


def last_user(op: Operation, memory: SSAValue) -> Operation | None:
    """The last operation before `op` that reads or writes a memory; views do neither."""
    before = op.prev_op
    while before is not None and (isinstance(before, ViewOp) or all(
            memory_of(v) is not memory for v in before.operands)):
        before = before.prev_op
    return before


def erase_unlaunched(module: ModuleOp, names: Collection[str]) -> None:
    """Erase the kernels with these names that nothing launches any more."""
    used = {op.kernel.data for f in host_functions(module) for op in f.body.block.ops
            if isinstance(op, LaunchOp)}
    for op in [*module.body.block.ops]:
        if isinstance(op, KernelOp) and op.sym_name.data in {*names} - used:
            op.detach()
            op.erase()
