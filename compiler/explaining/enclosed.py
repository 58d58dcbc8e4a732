"""The work of kernels with control flow inside, which `block-enclose-loops` makes of launches.

How often a loop runs is known to no one before, so the work is that of one iteration, and of both
branches. It is counted on tiles, whose lanes beyond the end of a buffer count, too. A buffer is
accessed once.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

from compiler.explaining.work import KernelWork, is_counted
from dialects.block import ForOp, KernelOp, MapOp, ReduceOp, ScanOp
from dialects.block.programs import tile_type
from dialects.strata.types import buffer_type
from dialects.symbolic.expr import Expr


def work_of_enclosed(module: ModuleOp) -> dict[str, KernelWork]:
    """The work of each kernel with loops that data end."""
    kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp) and any(
        isinstance(x, ForOp) and x.is_conditional for x in op.walk())]
    return {k.sym_name.data: KernelWork(
        (), Expr.of(_flops(k.body.block)), [buffer_type(b).byte_size for b in k.buffers])
        for k in kernels}


def _flops(block: Block) -> int:
    total = 0
    for op in block.ops:
        if isinstance(op, ForOp):
            total += _trips(op) * _flops(op.body.block)
        elif isinstance(op, MapOp):
            count = sum(map(is_counted, op.body.walk()))
            total += count * prod(tile_type(op.results[0]).shape)
        elif isinstance(op, ReduceOp | ScanOp):
            total += prod(tile_type(op.value).shape)
    return total


def _trips(op: ForOp) -> int:
    length = (op.upper.data - op.lower.data).constant
    if op.is_conditional or length is None:
        return 1
    return max(0, -(-length // (op.step.data.constant or 1)))
