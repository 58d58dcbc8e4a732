"""The programs of a kernel inside of another kernel, one for each value of a loop's counter."""

from __future__ import annotations

from xdsl.ir import Block, SSAValue

from dialects.block import ForOp, KernelOp, YieldOp
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location


def add_programs(part: KernelOp, loop: ForOp, values: dict[SSAValue, SSAValue]) -> None:
    """Copy the body of a kernel with a static grid into a loop, whose counter is the program.

    `values`: what takes the place of the kernel's buffers; its program ids are added.
    """
    inside = _bind_ids(part, loop, values)
    for op in part.body.block.ops:
        inside.add_op(op.clone(values))
        set_location(loop, op)


def _bind_ids(part: KernelOp, counted: ForOp, values: dict[SSAValue, SSAValue]) -> Block:
    """The block for the body; loops of one trip name the ids of a grid of several axes."""
    block = counted.body.block
    live = [k for k, e in enumerate(part.grid.data) if e.constant != 1]
    rest = 1
    for k in reversed(range(len(part.grid.data))):
        extent = part.grid.data[k].constant or 1
        if live == [k]:
            values[part.program_ids[k]] = counted.counter
            continue
        place = Expr.symbol(Symbol.operand(0)) // rest if k in live else Expr.of(0)
        place = place % extent if k in live[1:] else place
        loop = ForOp.of(place, place + 1, 1, [counted.counter] if place.symbols else [])
        block.add_ops([loop, YieldOp.create()])
        values[part.program_ids[k]] = loop.counter
        block, rest = loop.body.block, rest * extent
    return block
