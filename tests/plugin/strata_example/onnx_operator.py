"""Two ONNX operators of a domain of one's own, `com.example`.

    ScaledSoftsign(x)   scale * x / (1 + |x|)            of operations that Strata has
    Squareplus(x)       (x + sqrt(x*x + b)) / 2          a new operation, with its decomposition

A target that knows Squareplus better may claim `example_onnx.squareplus`; to all others it is what
`decompose` says.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Dialect, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value
from dialects.graph import AddOp, MulOp, SqrtOp
from dialects.graph.base import Attributes, Build, CompositeOp
from dialects.graph.composite import scalar
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.types import Array, TensorType


@onnx_op("ScaledSoftsign", domain="com.example")
def scaled_softsign(n: Node, x: Value) -> Value:
    """scale * x / (1 + |x|), for each element."""
    return x / (1 + abs(x)) * n.real("scale", 1.0)


@irdl_op_definition
class SquareplusOp(CompositeOp):
    """(x + sqrt(x*x + b)) / 2, for each element, a smooth relu.

    Source: J. T. Barron, Squareplus: a softplus-like algebraic rectifier, arXiv:2112.11687.
    """

    name = "example_onnx.squareplus"
    x = operand_def(TensorType)
    b = prop_def(FloatAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        return [types[0]]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x, b = operands[0], operands[0].dtype.type(self.b.value.data)
        return (x + np.sqrt(x * x + b)) / x.dtype.type(2)

    def decompose(self, build: Build) -> Sequence[SSAValue]:
        root = build(SqrtOp, build(AddOp, build(MulOp, self.x, self.x),
                                   scalar(build, self.b.value.data, self.x)))
        return [build(MulOp, build(AddOp, self.x, root), scalar(build, 0.5, self.x))]


@onnx_op("Squareplus", domain="com.example")
def squareplus(n: Node, x: Value) -> Value:
    """A smooth relu."""
    return n(SquareplusOp, x, b=n.real("b", 4.0))


EXAMPLE_ONNX = Dialect("example_onnx", [SquareplusOp])
