"""The operations of a kernel that work on tiles: of its body and of its loops, without the scalar
ones inside of maps."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Block, Operation

from dialects.block import ForOp, KernelOp


def tile_operations(kernel: KernelOp) -> Iterator[Operation]:
    """All of them, in order."""
    yield from _of(kernel.body.block)


def _of(block: Block) -> Iterator[Operation]:
    for op in block.ops:
        yield op
        if isinstance(op, ForOp):
            yield from _of(op.body.block)
