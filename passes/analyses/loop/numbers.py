"""Constant numbers in the bodies of nests."""

from __future__ import annotations

from typing import Any, cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Attribute, SSAValue

from dialects.strata.types import i1, is_float


def float_of(value: SSAValue) -> float | None:
    """The value of a float constant; None for anything else."""
    constant = value.owner
    if not isinstance(constant, arith.ConstantOp) or not isinstance(constant.value, FloatAttr):
        return None
    return float(constant.value.value.data)


def unscaled(value: SSAValue) -> SSAValue | None:
    """What a value is a positive multiple of, or rounds or widens; None for other values."""
    match value.owner:
        case arith.ExtFOp() | arith.TruncFOp() as op:
            return op.operands[0]
        case arith.MulfOp() as op if (float_of(op.rhs) or 0) > 0:
            return op.lhs
        case _:
            return None


def constant(number: float, element: Attribute) -> arith.ConstantOp:
    """A constant of an element type; truth values are 0 and 1."""
    if is_float(element):
        return arith.ConstantOp(FloatAttr(float(number), cast(Any, element)))
    return arith.ConstantOp(IntegerAttr(-int(number) if element == i1 else int(number),
                                        cast(Any, element)))
