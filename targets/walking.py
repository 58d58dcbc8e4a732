"""How all targets walk modules of kernels: the kernels, and the operations of their blocks."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation

from dialects.block import KernelOp, YieldOp


def kernels_of(module: ModuleOp) -> list[KernelOp]:
    """The kernels of a module at block level."""
    return [op for op in module.body.block.ops if isinstance(op, KernelOp)]


def kernels_by_name(module: ModuleOp) -> dict[str, KernelOp]:
    """The kernels of a module at block level, by name."""
    return {kernel.sym_name.data: kernel for kernel in kernels_of(module)}


def operations(block: Block) -> Iterator[Operation]:
    """All operations of a block except its yield, in order."""
    return (op for op in block.ops if not isinstance(op, YieldOp))
