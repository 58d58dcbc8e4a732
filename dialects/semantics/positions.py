"""Floats that are made of positions, sizes and literals alone: when they stay plain numbers.

A resized image reads the pixel `floor(i * scale)`. With another arithmetic (`carriers.py`), such a
float must remain the number that it is, for otherwise it would be no position. A float that is
never made whole again, such as one over the number of elements of a mean, is data like any other:
it must mean the same whether it is computed here or read from memory. Both the interpreters and
compiled code ask here.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import arith, math
from xdsl.ir import Operation, SSAValue
from xdsl.traits import IsTerminator

from dialects.strata.types import TensorType, is_float

_WHOLE = (arith.FPToSIOp, arith.FPToUIOp, math.FloorOp, math.CeilOp, math.TruncOp, math.RoundOp,
          math.RoundEvenOp)
"""Operations that make floats whole, so that what they are given are positions."""


def enters_floats(op: Operation) -> bool:
    """Whether an operation makes data of integers or literals: a float that becomes no position."""
    makes = isinstance(op, arith.SIToFPOp | arith.UIToFPOp) or _is_of_literals(op)
    return makes and not _becomes_whole(op.results[0])


def _is_of_literals(op: Operation) -> bool:
    """Whether literals alone determine the only result, a float."""
    return len(op.results) == 1 and bool(op.operands) and is_float(op.results[0].type) and all(
        isinstance(v.owner, arith.ConstantOp) for v in op.operands)


def _becomes_whole(value: SSAValue) -> bool:
    """Whether a whole number is made of a value, or of what is computed from it."""
    seen, waiting = {value}, [value]
    while waiting:
        for reached in _computed_from(waiting.pop()):
            if isinstance(reached.owner, _WHOLE):
                return True
            if reached not in seen:
                seen.add(reached)
                waiting.append(reached)
    return False


def _computed_from(value: SSAValue) -> Iterator[SSAValue]:
    """The values that an operation computes of a value, in bodies and around them; a tensor is
    memory, where all floats are data."""
    for use in value.uses:
        op, bodies = use.operation, use.operation.regions
        if op.has_trait(IsTerminator):
            parent = op.parent_op()
            if parent is not None and len(parent.results) == len(op.operands) and not isinstance(
                    parent.results[use.index].type, TensorType):
                yield parent.results[use.index]
        elif not bodies:
            yield from op.results
        elif len(bodies) == 1 and len(bodies[0].block.args) == len(op.operands):
            yield bodies[0].block.args[use.index]
