"""A plugin: how a user's own operator is imported."""

from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.values import Value
from dialects.graph.unary import SinOp


@aten_op("strata_tests.foreign.default")
def foreign(n: Node, x: Value) -> Value:
    return n(SinOp, x)
