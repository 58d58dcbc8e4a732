"""`loop-collapse-axes`: merge axes into fewer, longer ones.

    kernel(%x: f32[1, 56, 56, 64]) nest (i0: 56, i1: 56, i2: 64) ins(%x[0, i0, i1, i2])
    ->  kernel(%x: f32[200704]) nest (i0: 200704) ins(%x[i0])        called on a view

Dims of size 1 are dropped. Two axes are merged if all references of the kernel walk them as
adjacent whole dims. Callers pass views, which cost nothing. Long axes fill vectors and split evenly
among threads, and they turn a 1x1 convolution into the matrix product it is.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from dialects.loop import CallOp, KernelOp, NestOp, YieldOp
from passes.base import StrataContext, StrataPass
from passes.rewrites.kernels.collapsing import collapse
from passes.rewriting import functions


class LoopCollapseAxes(StrataPass):
    """Drop unit dims and merge adjacent axes."""

    name = "loop-collapse-axes"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        calls = {op.kernel.data: op for func in functions(module) for op in func.body.block.ops
                 if isinstance(op, CallOp)}
        for kernel in [op for op in module.body.block.ops if isinstance(op, KernelOp)]:
            call = calls.get(kernel.sym_name.data)
            if call is not None and not _has_into(kernel) and (
                    context.allowance.take(kernel, self.name)):
                collapse(kernel, call)


def _has_into(kernel: KernelOp) -> bool:
    return any(n.into and not n.is_scatter for n in kernel.nests) or any(
        not isinstance(op, (NestOp, YieldOp)) for op in kernel.body.block.ops)
