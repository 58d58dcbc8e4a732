"""Which values of a kernel are needed in full: all others are soon rounded to f16 or bf16.

    %e = math.erf %z : f32                   needs not be exact to the last bit of an f32,
    %y = arith.mulf %x, %e : f32             for only this is made of it:
    %h = arith.truncf %y : f32 to bf16

Needed in full is what is stored in 32 bits or more, compared, read as bits or as an integer, or
multiplied by `block.dot`; and what such a value is computed from, up to a rounding. What passes
through loops, maps and reductions of the kernel is followed there.
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
    """The values, of tiles and in bodies, whose last bits count."""
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
    """What a value is computed from."""
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
    """What an argument of a body stands for."""
    match op:
        case MapOp():
            return [op.inputs[argument.index]]
        case ForOp() if argument.index > 0:
            position = argument.index - 1
            return [op.carried[position], op.yielded[position]]
        case _:
            return ()
