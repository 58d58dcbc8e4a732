"""Which values of a kernel are needed in full precision; all others are soon rounded to 16 bits.

    %e = math.erf %z : f32                   need not be exact to the last bit of an f32,
    %y = arith.mulf %x, %e : f32             because only this is computed from it:
    %h = arith.truncf %y : f32 to bf16

A value is needed in full if it is stored in 32 bits or more, compared, read as bits or as an
integer, or multiplied by `block.dot`. So is everything from which it is computed, up to a rounding.
Values are followed through the kernel's loops, maps and reductions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeGuard

from xdsl.dialects import arith
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from dialects.block import DotOp, ForOp, KernelOp, MapOp, StoreOp
from dialects.strata import types as t

_DECISIONS = (arith.CmpfOp, arith.FPToSIOp, arith.FPToUIOp, arith.BitcastOp, DotOp, StoreOp)
_NARROW = frozenset((t.f16, t.bf16))


def needed_in_full(kernel: KernelOp) -> frozenset[SSAValue]:
    """The values, both tiles and scalars in bodies, that are needed in full precision."""
    todo = [v for op in kernel.walk() if isinstance(op, _DECISIONS) for v in op.operands
            if not is_rounding(v.owner)]
    found: set[SSAValue] = set()
    while todo:
        value = todo.pop()
        if value not in found:
            found.add(value)
            todo += [v for v in _sources(value) if not is_rounding(v.owner)]
    return frozenset(found)


def is_rounding(op: object) -> TypeGuard[arith.TruncFOp]:
    """Whether an operation rounds to f16 or bf16."""
    return isinstance(op, arith.TruncFOp) and op.result.type in _NARROW


def _sources(value: SSAValue) -> Iterator[SSAValue]:
    """The values from which a value is computed."""
    if isinstance(value, BlockArgument):
        yield from _passed(value, value.block.parent_op())
        return
    assert isinstance(value, OpResult)
    op = value.op
    match op:
        case MapOp():
            yield op.yielded[value.index]
        case ForOp():
            yield from (op.carried[value.index], op.yielded[value.index])
        case _:
            yield from op.operands


def _passed(argument: BlockArgument, op: Operation | None) -> Sequence[SSAValue]:
    """The values that are passed to an argument of a body."""
    match op:
        case MapOp():
            return [op.inputs[argument.index]]
        case ForOp() if argument.index > 0:
            position = argument.index - 1
            return [op.carried[position], op.yielded[position]]
        case _:
            return ()
