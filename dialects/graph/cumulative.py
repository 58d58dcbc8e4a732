"""Running sums and products along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import IntegerAttr
from xdsl.irdl import operand_def, opt_prop_def, prop_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, GraphOp, flag_of, int_of
from dialects.graph.inference import NUMBERS, check_axis, check_kind
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import rounded, widen
from dialects.strata.types import Array, ExprAttr, TensorType


class CumulativeOp(GraphOp):
    """Combines each element with all elements before it along an axis.

    With `exclusive`, the element itself is not included. With `reverse`, the elements after it are
    combined instead of those before it. f16 and bf16 are combined in f32 and rounded once.
    Constraints: (C1) the axis is one of x's; (C2) elements are numbers.
    """

    FORMULA: ClassVar[np.ufunc]
    NEUTRAL: ClassVar[int]
    x = operand_def(TensorType)
    axis = prop_def(ExprAttr)
    exclusive = opt_prop_def(IntegerAttr)
    reverse = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        check_axis(int_of(attributes, "axis"), types[0].rank, "C1")
        check_kind(NUMBERS, types[0].element)
        return [types[0]]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        axis, reverse = int_of(self.properties, "axis"), flag_of(self.properties, "reverse")
        x = np.moveaxis(widen(operands[0]), axis, 0)[::-1 if reverse else 1]
        if flag_of(self.properties, "exclusive"):
            x = np.concatenate([np.full_like(x[:1], self.NEUTRAL), x[:-1]])
        with np.errstate(all="ignore"):
            total = self.FORMULA.accumulate(x, axis=0, dtype=x.dtype)
        result = np.moveaxis(total[::-1 if reverse else 1], 0, axis)
        return rounded(result, self.result_tensors[0])


@irdl_op_definition
class CumulativeSumOp(CumulativeOp):
    """The running sums along an axis, each including its own element. Integers wrap around.

    Source: ONNX CumSum.
    Example: %y = graph.cumulative_sum %x {axis = 1, exclusive = false, reverse = false}
        : f32[n, 5] given %x: f32[n, 5]
    """

    name = "graph.cumulative_sum"
    FORMULA: ClassVar[np.ufunc] = np.add
    NEUTRAL: ClassVar[int] = 0


@irdl_op_definition
class CumulativeProdOp(CumulativeOp):
    """The running products along an axis, each including its own element. Integers wrap around.

    Source: ONNX CumProd.
    Example: %y = graph.cumulative_prod %x {axis = 1, exclusive = false, reverse = false}
        : f32[n, 5] given %x: f32[n, 5]
    """

    name = "graph.cumulative_prod"
    FORMULA: ClassVar[np.ufunc] = np.multiply
    NEUTRAL: ClassVar[int] = 1
