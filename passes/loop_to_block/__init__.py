"""loop-to-block: every scheduled kernel becomes a program on tiles.

    loop.kernel @k(...) schedule<...> { nests }   ->   block.kernel @k(...) grid(...) { tiles }

The host function stays; it launches kernels by name. In this folder:

    state.py     what is known about each axis at a place in the program: origin, tile, mask
    access.py    index expressions of a nest -> loads and stores of tiles
    compute.py   bodies of nests -> maps, reductions, dots
    kernel.py    the levels of a schedule -> grid, loops, and the order of everything
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from dialects.loop import KernelOp
from passes.base import StrataContext, StrataPass
from passes.loop_to_block.kernel import lower_kernel


@dataclass(frozen=True)
class LoopToBlock(StrataPass):
    """Lower kernels by their schedules."""

    name = "loop-to-block"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        for op in list(module.body.block.ops):
            if isinstance(op, KernelOp):
                lowered = lower_kernel(op)
                module.body.block.insert_op_before(lowered, op)
                op.detach()
                op.erase()
