"""Elementwise operations on one tensor: signs, roots, exponentials, rounding, tests, `cast`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import operand_def, opt_prop_def, prop_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, GraphOp, ShapeError, flag_of, text_of
from dialects.graph.elementwise import ElementwiseOp, on_sizes
from dialects.graph.inference import BITS, FLOATS, Kind, certain_sign
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import (
    ROUNDING_STEPS,
    erf,
    power_of_two,
    rounded,
    sigmoid,
    to_integer,
    widen,
)
from dialects.strata.types import (
    Array,
    TensorType,
    dtype_of,
    element_of,
    f8E8M0FNU,
    i1,
    is_float,
    is_narrow_float,
    largest,
    tensor,
)
from dialects.symbolic.expr import Expr


class UnaryOp(ElementwiseOp):
    """An elementwise operation of one operand."""

    x = operand_def(TensorType)
    result = result_def(TensorType)

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        return self.apply(self.compute, operands)

    def compute(self, x: Array) -> Array:
        """The formula."""
        raise NotImplementedError(self.name)


class FloatOp(UnaryOp):
    """An elementwise function of floats."""

    ELEMENTS: ClassVar[Kind] = FLOATS


class FloatTestOp(FloatOp):
    """A test of floats with a truth value as result."""

    RESULT: ClassVar[Attribute | None] = i1


@irdl_op_definition
class NegOp(UnaryOp):
    """-x; integers wrap around.

    Source: ONNX Neg.
    Example: %y = graph.neg %x : f32[n] given %x: f32[n]
    """

    name = "graph.neg"

    def compute(self, x: Array) -> Array:
        return np.negative(x)

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        return on_sizes(Expr.__neg__, *operands)


@irdl_op_definition
class AbsOp(UnaryOp):
    """|x|; the smallest integer is unchanged.

    Source: ONNX Abs.
    Example: %y = graph.abs %x : f32[n] given %x: f32[n]
    """

    name = "graph.abs"

    def compute(self, x: Array) -> Array:
        return np.abs(x)


@irdl_op_definition
class SignOp(UnaryOp):
    """-1, 0 or 1; NaN for NaN, and 0 for -0.

    Source: ONNX Sign.
    Example: %y = graph.sign %x : f32[n] given %x: f32[n]
    """

    name = "graph.sign"

    def compute(self, x: Array) -> Array:
        return np.sign(x)


@irdl_op_definition
class ExpOp(FloatOp):
    """e to the power x.

    Source: ONNX Exp.
    Example: %y = graph.exp %x : f32[n] given %x: f32[n]
    """

    name = "graph.exp"

    def compute(self, x: Array) -> Array:
        return np.exp(x)


@irdl_op_definition
class LogOp(FloatOp):
    """The natural logarithm: -inf at 0, NaN below.

    Source: ONNX Log.
    Example: %y = graph.log %x : f32[n] given %x: f32[n]
    """

    name = "graph.log"

    def compute(self, x: Array) -> Array:
        return np.log(x)


@irdl_op_definition
class SqrtOp(FloatOp):
    """The square root; NaN below 0.

    Source: ONNX Sqrt.
    Example: %y = graph.sqrt %x : f32[n] given %x: f32[n]
    """

    name = "graph.sqrt"

    def compute(self, x: Array) -> Array:
        return np.sqrt(x)


@irdl_op_definition
class ReciprocalOp(FloatOp):
    """1 / x; inf at 0.

    Source: ONNX Reciprocal.
    Example: %y = graph.reciprocal %x : f32[n] given %x: f32[n]
    """

    name = "graph.reciprocal"

    def compute(self, x: Array) -> Array:
        return np.reciprocal(x)


@irdl_op_definition
class TanhOp(FloatOp):
    """The hyperbolic tangent.

    Source: ONNX Tanh.
    Example: %y = graph.tanh %x : f32[n] given %x: f32[n]
    """

    name = "graph.tanh"

    def compute(self, x: Array) -> Array:
        return np.tanh(x)


@irdl_op_definition
class ErfOp(FloatOp):
    """The error function.

    Source: ONNX Erf.
    Example: %y = graph.erf %x : f32[n] given %x: f32[n]
    """

    name = "graph.erf"

    def compute(self, x: Array) -> Array:
        return erf(x)


@irdl_op_definition
class SinOp(FloatOp):
    """The sine, x in radians.

    Source: ONNX Sin.
    Example: %y = graph.sin %x : f32[n] given %x: f32[n]
    """

    name = "graph.sin"

    def compute(self, x: Array) -> Array:
        return np.sin(x)


@irdl_op_definition
class CosOp(FloatOp):
    """The cosine, x in radians.

    Source: ONNX Cos.
    Example: %y = graph.cos %x : f32[n] given %x: f32[n]
    """

    name = "graph.cos"

    def compute(self, x: Array) -> Array:
        return np.cos(x)


@irdl_op_definition
class SigmoidOp(FloatOp):
    """1 / (1 + exp(-x)).

    Source: ONNX Sigmoid.
    Example: %y = graph.sigmoid %x : f32[n] given %x: f32[n]
    """

    name = "graph.sigmoid"

    def compute(self, x: Array) -> Array:
        return sigmoid(x)


@irdl_op_definition
class FloorOp(FloatOp):
    """Rounds towards minus infinity.

    Source: ONNX Floor.
    Example: %y = graph.floor %x : f32[n] given %x: f32[n]
    """

    name = "graph.floor"

    def compute(self, x: Array) -> Array:
        return np.floor(x)


@irdl_op_definition
class CeilOp(FloatOp):
    """Rounds towards infinity.

    Source: ONNX Ceil.
    Example: %y = graph.ceil %x : f32[n] given %x: f32[n]
    """

    name = "graph.ceil"

    def compute(self, x: Array) -> Array:
        return np.ceil(x)


@irdl_op_definition
class RoundOp(FloatOp):
    """Rounds to the nearest integer, halves to the even one.

    Source: ONNX Round.
    Example: %y = graph.round %x : f32[n] given %x: f32[n]
    """

    name = "graph.round"

    def compute(self, x: Array) -> Array:
        return np.rint(x)


@irdl_op_definition
class IsnanOp(FloatTestOp):
    """Whether x is NaN.

    Source: ONNX IsNaN.
    Example: %y = graph.isnan %x : i1[n] given %x: f32[n]
    """

    name = "graph.isnan"

    def compute(self, x: Array) -> Array:
        return np.isnan(x)


@irdl_op_definition
class IsinfOp(FloatTestOp):
    """Whether x is inf or -inf.

    Source: ONNX IsInf.
    Example: %y = graph.isinf %x : i1[n] given %x: f32[n]
    """

    name = "graph.isinf"

    def compute(self, x: Array) -> Array:
        return np.isinf(x)


@irdl_op_definition
class NotOp(UnaryOp):
    """Logical not for truth values, bitwise not for integers.

    Source: ONNX Not, BitwiseNot.
    Example: %y = graph.not %x : i1[n] given %x: i1[n]
    """

    name = "graph.not"
    ELEMENTS: ClassVar[Kind] = BITS

    def compute(self, x: Array) -> Array:
        return np.invert(x)


@irdl_op_definition
class CastOp(GraphOp):
    """x in another element type.

    Float to integer truncates. Types of less than 32 bits take the low bits of the conversion to
    i32. NaN and numbers that a signed type cannot hold become its smallest number. ui32 and ui64
    take the bits of the conversion to i32 and i64 for numbers below 2^31 and 2^63, so that
    negative numbers wrap around; from there on, they add 2^31 or 2^63 to the conversion of the
    difference. This holds on the CPU; other targets differ where the type cannot hold the number.
    Integer to integer keeps the low bits. A truth value is true if x is not zero. Float to float
    rounds to nearest, ties to even. Conversions to narrow floats start from f32. A number that is
    too large becomes inf if the type has it, otherwise NaN if the type has it, otherwise the
    largest number; with `saturate` it is always the largest number. The numbers of f8E8M0FNU are
    powers of two: others are rounded to the nearest one (ties up), and 0 and negative numbers
    become NaN. With `round`, magnitudes are rounded `up`, `down`, or to the `nearest`, and
    `saturate` turns 0 into the smallest number.
    Constraints: (C1) `to` is an element type; (C2) `saturate` is for narrow floats; (C3) `round` is
    up, down or nearest, and for f8E8M0FNU.
    Source: ONNX Cast.
    Example: %y = graph.cast %x {to = f8E4M3FN, saturate = true} : f8E4M3FN[n] given %x: f32[n]
    """

    name = "graph.cast"
    x = operand_def(TensorType)
    to = prop_def(Attribute)
    saturate = opt_prop_def(IntegerAttr)
    round = opt_prop_def(StringAttr)
    result = result_def(TensorType)

    @property
    def saturates(self) -> bool:
        return flag_of(self.properties, "saturate")

    @property
    def rounding(self) -> str:
        """The rounding to powers of two; empty for all other types."""
        return text_of(self.properties, "round")

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        try:
            dtype_of(attributes["to"])
        except KeyError as error:
            raise ShapeError(f"C1: {attributes['to']} is not an element type") from error
        if flag_of(attributes, "saturate") and not is_narrow_float(attributes["to"]):
            raise ShapeError(f"C2: only narrow floats saturate, not {attributes['to']}")
        _check_rounding(text_of(attributes, "round"), attributes["to"])
        return [tensor(attributes["to"], types[0].shape)]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x, type_ = widen(operands[0]), self.result_tensors[0]
        if is_float(element_of(x.dtype)) and type_.dtype.kind in "iu":
            return to_integer(x, type_.dtype)
        return rounded(self._narrowed(x) if is_narrow_float(type_.element) else x, type_)

    def _narrowed(self, x: Array) -> Array:
        """The f32 numbers, rounded or saturated for the narrow float as the attributes require."""
        with np.errstate(all="ignore"):
            x = x.astype(np.float32, copy=False)
        if self.rounding:
            return power_of_two(x, self.rounding, self.saturates)
        most = largest(self.to)
        return np.clip(x, -most, most) if self.saturates else x

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        if is_float(self.to):
            return None
        return on_sizes(_truth, *operands) if self.to == i1 else operands[0]


def _check_rounding(rounding: str, to: Attribute) -> None:
    if rounding and (to != f8E8M0FNU or rounding not in ROUNDING_STEPS):
        raise ShapeError(f"C3: '{rounding}' is not a rounding mode of {to}")


def _truth(value: Expr) -> Expr | None:
    sign = certain_sign(value)
    return None if sign is None else Expr.of(abs(sign))
