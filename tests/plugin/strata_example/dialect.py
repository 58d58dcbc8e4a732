"""The dialect `example`, with one tensor operator."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition, operand_def, result_def

from dialects.graph.base import Attributes, GraphOp
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.types import Array, TensorType


@irdl_op_definition
class SquareOp(GraphOp):
    """x * x, for each element: `%y = example.square %x : f32[n]`.

    As it derives from GraphOp it may stand at graph level and can be executed there.
    """

    name = "example.square"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        return [types[0]]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        return operands[0] * operands[0]


EXAMPLE = Dialect("example", [SquareOp])
