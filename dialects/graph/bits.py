"""Operations on the bits of elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.ir import Attribute
from xdsl.irdl import operand_def, opt_prop_def, prop_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, GraphOp, ShapeError, int_of
from dialects.graph.elementwise import BinaryOp
from dialects.graph.inference import INTEGERS, Kind
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.philox import philox
from dialects.strata.types import (
    Array,
    ExprAttr,
    TensorType,
    bit_width,
    dtype_of,
    i1,
    i64,
    tensor,
)


@irdl_op_definition
class BitcastOp(GraphOp):
    """The same bits, read as elements of another type.

    A truth value has the eight bits of 0 or 1. An integer read as a truth value is true if it is
    not 0.
    Constraints: (C1) `to` is an element type as wide as x's.
    Source: ONNX BitCast.
    Example: %y = graph.bitcast %x {to = i32} : i32[n] given %x: f32[n]
    """

    name = "graph.bitcast"
    x = operand_def(TensorType)
    to = prop_def(Attribute)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        before, after = types[0].element, attributes["to"]
        try:
            dtype_of(after)
        except KeyError as error:
            raise ShapeError(f"C1: {after} is not an element type") from error
        if _bits(before) != _bits(after):
            raise ShapeError(f"C1: elements of {before} cannot be read as {after}")
        return [tensor(after, types[0].shape)]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        to = self.result_tensors[0].dtype
        return operands[0] != 0 if to == np.bool_ else np.array(operands[0]).view(to)


def _bits(element: Attribute) -> int:
    return 8 if element == i1 else bit_width(element)


class ShiftOp(BinaryOp):
    """x with its bits shifted by y positions; a negative y shifts all of them out.

    Constraints: (C1) equal element types; (C2) integers; (C3) the shapes broadcast.
    """

    ELEMENTS: ClassVar[Kind] = INTEGERS


def _is_inside(x: Array, y: Array) -> Array:
    """Whether a shift is less than the width."""
    return (y >= 0) & (y < 8 * x.dtype.itemsize)


@irdl_op_definition
class ShiftLeftOp(ShiftOp):
    """x * 2**y, wrapping around; 0 where y is negative or at least the width.

    Source: ONNX BitShift (direction LEFT).
    Example: %y = graph.shift_left %a, %b : ui8[n] given %a: ui8[n], %b: ui8[n]
    """

    name = "graph.shift_left"

    def compute(self, x: Array, y: Array) -> Array:
        inside, zero = _is_inside(x, y), np.zeros((), x.dtype)
        return np.where(inside, np.left_shift(x, np.where(inside, y, zero)), zero)


@irdl_op_definition
class ShiftRightOp(ShiftOp):
    """x / 2**y rounded down; 0 or -1, by the sign of x, where y is negative or at least the width.

    Source: ONNX BitShift (direction RIGHT).
    Example: %y = graph.shift_right %a, %b : ui8[n] given %a: ui8[n], %b: ui8[n]
    """

    name = "graph.shift_right"

    def compute(self, x: Array, y: Array) -> Array:
        inside, zero = _is_inside(x, y), np.zeros((), x.dtype)
        sign = np.where(x < 0, np.full((), -1).astype(x.dtype), zero)
        return np.where(inside, np.right_shift(x, np.where(inside, y, zero)), sign)


@irdl_op_definition
class PhiloxOp(BinaryOp):
    """64 random bits for each place x, seed y and number `draw`, which depend on nothing else.

    They are the first two words of Philox4x32-10, the first one in the low half. The counter is
    (x mod 2**32, x / 2**32, draw, 0), and the key (y mod 2**32, y / 2**32). Without it, draw is 0.
    Constraints: (C1) equal element types; (C2) i64; (C3) the shapes broadcast; (C4) draw is from 0
    to 2**32 - 1.
    Source: dialects/semantics/philox.py.
    Example: %b = graph.philox %x, %y {draw = 2} : i64[n] given %x: i64[n], %y: i64[]
    """

    name = "graph.philox"
    ELEMENTS: ClassVar[Kind] = Kind("i64", lambda element: element == i64)
    draw = opt_prop_def(ExprAttr)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        if not 0 <= int_of(attributes, "draw") < 1 << 32:
            raise ShapeError(f"C4: draw is {int_of(attributes, 'draw')}")
        return super().infer(types, attributes)

    def compute(self, x: Array, y: Array) -> Array:
        return philox(x, y, int_of(self.properties, "draw"))
