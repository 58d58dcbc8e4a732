"""A graph operation with nests of its own: distances between the rows of two matrices.

    %d = example_op.l1_distance %a, %b : f32[m, n]
    -->
    %d = loop.nest (i0: m, i1: n, reduce i2: k) ins(%a[i0, i2], %b[i1, i2])
        outs(add f32[m, n][i0, i1]) { |a - b| }
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Dialect, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def

from dialects.graph.base import Attributes, GraphOp, ShapeError
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.types import Array, TensorType, f32, tensor
from passes.graph_to_loop.nests import Domain, Read, make_nest, type_of
from passes.graph_to_loop.rules import lowers
from passes.rewriting import Rewriter


@irdl_op_definition
class L1DistanceOp(GraphOp):
    """result[i, j] = sum over k of |a[i, k] - b[j, k]|.

    `a` is f32[m, k], `b` f32[n, k]. Constraint: (C1) both are f32 matrices of as many columns.
    """

    name = "example_op.l1_distance"
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        a, b = types
        if {a.element, b.element} != {f32} or (a.rank, b.rank) != (2, 2) or (
                a.shape[1] != b.shape[1]):
            raise ShapeError(f"C1: no distances between the rows of {a.short} and {b.short}")
        return [tensor(f32, [a.shape[0], b.shape[0]])]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        a, b = operands
        return np.abs(a[:, None, :] - b[None, :, :]).sum(2)


@lowers(L1DistanceOp)
def l1_distance(op: L1DistanceOp, at: Rewriter) -> SSAValue:
    result, domain = type_of(op.result), Domain()
    i, j = domain.parallel(*result.shape)
    [k] = domain.reduce(type_of(op.a).shape[1])
    return make_nest(at, domain, [Read(op.a, (i, k)), Read(op.b, (j, k))], result,
                     lambda body, read: (read[0] - read[1]).absolute(), combiner="add")


EXAMPLE_OP = Dialect("example_op", [L1DistanceOp])
