"""Elementwise operations on two or three tensors: arithmetic, logic, comparison, `where`.

An operation consists of its name, its formula and, if models compute shapes with it, the same
formula on size expressions. Shapes broadcast as in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from xdsl.ir import Attribute
from xdsl.irdl import operand_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, GraphOp
from dialects.graph.inference import (
    NUMBERS,
    Kind,
    broadcast_shapes,
    certain_sign,
    check_kind,
    check_same_element,
)
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import (
    in_f64,
    integer_power,
    rounded,
    truncating_divide,
    widen,
)
from dialects.strata.types import Array, TensorType, tensor
from dialects.symbolic import expr
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import is_nonnegative


class ElementwiseOp(GraphOp):
    """An elementwise function.

    f16 and bf16 are computed in f32 and rounded once. Integers wrap around.
    Constraints: (C1) operands have equal element types; (C2) of the kind `ELEMENTS`; (C3) operand
    shapes broadcast to the result's.
    """

    KEPT_DIMS: ClassVar[int | None] = 0
    ELEMENTS: ClassVar[Kind] = NUMBERS
    RESULT: ClassVar[Attribute | None] = None
    """The element type of the result; None: that of the operands."""

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        element = types[0].element
        check_same_element(types)
        check_kind(cls.ELEMENTS, element)
        return [tensor(cls.RESULT or element, broadcast_shapes([t.shape for t in types]))]

    def apply(self, formula: Callable[..., Array], operands: Sequence[Array]) -> Array:
        """Apply a formula to arrays that broadcast; floats are passed as f32 or f64."""
        with np.errstate(all="ignore"):
            return rounded(formula(*map(widen, operands)), self.result_tensors[0])



class BinaryOp(ElementwiseOp):
    """An elementwise operation of two operands."""

    x = operand_def(TensorType)
    y = operand_def(TensorType)
    result = result_def(TensorType)

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        return self.apply(self.compute, operands)

    def compute(self, x: Array, y: Array) -> Array:
        """The formula."""
        raise NotImplementedError(self.name)


def on_sizes(function: Callable[..., Any], *operands: Array) -> Array | None:
    """Apply a function of size expressions elementwise; None if it is None anywhere."""
    result = np.asarray(np.frompyfunc(function, len(operands), 1)(*operands), object)
    return None if any(value is None for value in result.reshape(-1)) else result


# ---------------------------------------------------------------------- arithmetic
@irdl_op_definition
class AddOp(BinaryOp):
    """x + y.

    Source: ONNX Add.
    Example: %z = graph.add %x, %y : f32[n, 3] given %x: f32[n, 3], %y: f32[3]
    """

    name = "graph.add"

    def compute(self, x: Array, y: Array) -> Array:
        return x + y

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        return on_sizes(Expr.__add__, *operands)


@irdl_op_definition
class SubOp(BinaryOp):
    """x - y.

    Source: ONNX Sub.
    Example: %z = graph.sub %x, %y : f32[2, 3] given %x: f32[2, 1], %y: f32[1, 3]
    """

    name = "graph.sub"

    def compute(self, x: Array, y: Array) -> Array:
        return x - y

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        return on_sizes(Expr.__sub__, *operands)


@irdl_op_definition
class MulOp(BinaryOp):
    """x * y.

    Source: ONNX Mul.
    Example: %z = graph.mul %x, %y : f16[2, n] given %x: f16[2, n], %y: f16[]
    """

    name = "graph.mul"

    def compute(self, x: Array, y: Array) -> Array:
        return x * y

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        return on_sizes(Expr.__mul__, *operands)


@irdl_op_definition
class DivOp(BinaryOp):
    """x / y. Integers are divided towards zero; an integer over zero is 0.

    Source: ONNX Div.
    Example: %z = graph.div %x, %y : i64[3] given %x: i64[3], %y: i64[]
    """

    name = "graph.div"

    def compute(self, x: Array, y: Array) -> Array:
        return truncating_divide(x, y) if x.dtype.kind in "iu" else x / y

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        return on_sizes(_divide_sizes, *operands)


@irdl_op_definition
class ModOp(BinaryOp):
    """The remainder of x / y with the sign of y, also where it is 0. An integer mod zero is 0.

    Source: ONNX Mod with fmod = 0.
    Example: %z = graph.mod %x, %y : i32[n] given %x: i32[n], %y: i32[1]
    """

    name = "graph.mod"

    def compute(self, x: Array, y: Array) -> Array:
        return np.mod(x, y)

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        return on_sizes(_remainder_of_sizes, *operands)


@irdl_op_definition
class FmodOp(BinaryOp):
    """The remainder of x / y with the sign of x. An integer mod zero is 0.

    Source: ONNX Mod with fmod = 1.
    Example: %z = graph.fmod %x, %y : f32[n] given %x: f32[n], %y: f32[1]
    """

    name = "graph.fmod"

    def compute(self, x: Array, y: Array) -> Array:
        return np.fmod(x, y)


@irdl_op_definition
class PowOp(BinaryOp):
    """x to the power y. For integers, a negative power truncates to 0 unless |x| is 1, and the
    result is undefined where it does not fit the type.

    Source: ONNX Pow.
    Example: %z = graph.pow %x, %y : f32[n] given %x: f32[n], %y: f32[]
    """

    name = "graph.pow"

    def compute(self, x: Array, y: Array) -> Array:
        return integer_power(x, y) if x.dtype.kind in "iu" else in_f64(np.power)(x, y)


@irdl_op_definition
class MaxOp(BinaryOp):
    """The larger of x and y; NaN if either is NaN.

    Source: ONNX Max of two.
    Example: %z = graph.max %x, %y : f32[n] given %x: f32[n], %y: f32[]
    """

    name = "graph.max"

    def compute(self, x: Array, y: Array) -> Array:
        return np.maximum(x, y)

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        return on_sizes(expr.maximum, *operands)


@irdl_op_definition
class MinOp(BinaryOp):
    """The smaller of x and y; NaN if either is NaN.

    Source: ONNX Min of two.
    Example: %z = graph.min %x, %y : f32[n] given %x: f32[n], %y: f32[]
    """

    name = "graph.min"

    def compute(self, x: Array, y: Array) -> Array:
        return np.minimum(x, y)

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        return on_sizes(expr.minimum, *operands)


def _remainder_of_sizes(x: Expr, y: Expr) -> Expr | None:
    return x % y if certain_sign(y) == 1 else None


def _divide_sizes(x: Expr, y: Expr) -> Expr | None:
    """Division towards zero, also if the dividend is negative for some sizes, such as `n - 5`."""
    sign = certain_sign(y)
    if sign is None or sign == 0:
        return None
    if sign < 0:  # x / y == -x / -y
        x, y = -x, -y
    if is_nonnegative(x):
        return x // y
    if is_nonnegative(-x):
        return -(-x // y)
    return expr.maximum(x, 0) // y - expr.maximum(-x, 0) // y
