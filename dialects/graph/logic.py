"""Truth values: logic, comparisons and the choice between two tensors. Shapes broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.ir import Attribute
from xdsl.irdl import operand_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, GraphOp, ShapeError
from dialects.graph.elementwise import BinaryOp, on_sizes
from dialects.graph.inference import (
    ANY,
    BITS,
    Kind,
    broadcast_shapes,
    certain_sign,
    check_same_element,
)
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.types import Array, TensorType, i1, tensor
from dialects.symbolic.expr import Expr


class BitOp(BinaryOp):
    """Logic on truth values, bit by bit on integers."""

    ELEMENTS: ClassVar[Kind] = BITS


@irdl_op_definition
class AndOp(BitOp):
    """x and y.

    Source: ONNX And, BitwiseAnd.
    Example: %z = graph.and %x, %y : i1[n] given %x: i1[n], %y: i1[n]
    """

    name = "graph.and"

    def compute(self, x: Array, y: Array) -> Array:
        return np.bitwise_and(x, y)


@irdl_op_definition
class OrOp(BitOp):
    """x or y.

    Source: ONNX Or, BitwiseOr.
    Example: %z = graph.or %x, %y : i1[n] given %x: i1[n], %y: i1[n]
    """

    name = "graph.or"

    def compute(self, x: Array, y: Array) -> Array:
        return np.bitwise_or(x, y)


@irdl_op_definition
class XorOp(BitOp):
    """x or y, but not both.

    Source: ONNX Xor, BitwiseXor.
    Example: %z = graph.xor %x, %y : i8[n] given %x: i8[n], %y: i8[n]
    """

    name = "graph.xor"

    def compute(self, x: Array, y: Array) -> Array:
        return np.bitwise_xor(x, y)


# ---------------------------------------------------------------------- comparison
class CompareOp(BinaryOp):
    """A comparison with a truth value as result; false when either side is NaN."""

    RESULT: ClassVar[Attribute | None] = i1

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        return on_sizes(self._decide, *operands)

    def _decide(self, x: Expr, y: Expr) -> Expr | None:
        """The comparison's value if it is the same for all sizes: that of the sign of x - y."""
        sign = certain_sign(x - y)
        return None if sign is None else Expr.of(int(self.compute(np.array(sign), np.array(0))))


@irdl_op_definition
class EqualOp(CompareOp):
    """x == y.

    Source: ONNX Equal.
    Example: %z = graph.equal %x, %y : i1[n] given %x: i64[n], %y: i64[]
    """

    name = "graph.equal"
    ELEMENTS: ClassVar[Kind] = ANY

    def compute(self, x: Array, y: Array) -> Array:
        return x == y


@irdl_op_definition
class LessOp(CompareOp):
    """x < y.

    Source: ONNX Less.
    Example: %z = graph.less %x, %y : i1[n] given %x: f32[n], %y: f32[]
    """

    name = "graph.less"

    def compute(self, x: Array, y: Array) -> Array:
        return x < y


@irdl_op_definition
class LessEqualOp(CompareOp):
    """x <= y.

    Source: ONNX LessOrEqual.
    Example: %z = graph.less_equal %x, %y : i1[n] given %x: f32[n], %y: f32[]
    """

    name = "graph.less_equal"

    def compute(self, x: Array, y: Array) -> Array:
        return x <= y


@irdl_op_definition
class GreaterOp(CompareOp):
    """x > y.

    Source: ONNX Greater.
    Example: %z = graph.greater %x, %y : i1[n] given %x: f32[n], %y: f32[]
    """

    name = "graph.greater"

    def compute(self, x: Array, y: Array) -> Array:
        return x > y


@irdl_op_definition
class GreaterEqualOp(CompareOp):
    """x >= y.

    Source: ONNX GreaterOrEqual.
    Example: %z = graph.greater_equal %x, %y : i1[n] given %x: f32[n], %y: f32[]
    """

    name = "graph.greater_equal"

    def compute(self, x: Array, y: Array) -> Array:
        return x >= y


# ---------------------------------------------------------------------- choice
@irdl_op_definition
class WhereOp(GraphOp):
    """x where the condition holds, else y.

    Constraints: (C1) x and y have equal element types; (C2) the condition has truth values; (C3)
    the three shapes broadcast.
    Source: ONNX Where.
    Example: %z = graph.where %c, %x, %y : f32[n, 3] given %c: i1[n, 1], %x: f32[3], %y: f32[]
    """

    name = "graph.where"
    KEPT_DIMS: ClassVar[int | None] = 0
    condition = operand_def(TensorType)
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        check_same_element(types[1:])
        if types[0].element != i1:
            raise ShapeError(f"C2: the condition must have truth values, not {types[0].element}")
        return [tensor(types[1].element, broadcast_shapes([t.shape for t in types]))]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        return np.where(*operands)

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        return on_sizes(_choose, *operands)


def _choose(condition: Expr, x: Expr, y: Expr) -> Expr | None:
    sign = certain_sign(condition)
    return None if sign is None else x if sign else y
