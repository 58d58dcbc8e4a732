"""`loop-prepare-kernels`: let the target rewrite the axes of kernels as its schedules need them.

Splitting an axis or fusing several changes only index expressions; arguments stay as they are.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from dialects.loop import KernelOp
from passes.base import StrataContext, StrataPass


class LoopPrepareKernels(StrataPass):
    """Let the target rewrite each kernel's axes."""

    name = "loop-prepare-kernels"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if context.rules is None:
            return
        for op in list(module.body.block.ops):
            if isinstance(op, KernelOp) and context.allowance.take(op, self.name):
                context.rules.prepare(op)
