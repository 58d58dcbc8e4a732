"""Decision trees, as tables of nodes that all trees share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.irdl import operand_def, prop_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, GraphOp, ShapeError, int_of
from dialects.graph.gather import check_indices
from dialects.graph.inference import check_rank, check_same_element
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.types import Array, ExprAttr, TensorType, i64, tensor

FIELDS = 2
"""The numbers of a node: the bound, and child * columns + column."""


@irdl_op_definition
class DescendOp(GraphOp):
    """The node that each row of x reaches in each tree: y[r, t], from the node roots[t].

    A row k of `nodes` holds a bound, and child * columns + column, where x has so many columns.
    `steps` times, a row r of x goes from its node k to the node child + 1 if x[r, column] <= bound,
    and to the node child otherwise. A leaf is its own child, with a bound below all elements of x.
    `roots` may have any number of dims. A node that does not exist is an error. The interpreter
    always detects it; compiled code stays inside the tensors, but its results are undefined.
    Compiled code is fastest if the number of columns is a power of two.
    Constraints: (C1) x and nodes have the same signed integer type; (C2) x has a constant number of
    columns, and nodes have the shape [nodes, 2]; (C3) roots are integers; (C4) steps >= 0.
    Source: the traversal of ONNX TreeEnsemble, as in a table of nodes whose siblings are adjacent.
    Example: %y = graph.descend %x, %nodes, %roots {steps = 4} : i64[n, 10]
        given %x: i32[n, 8], %nodes: i32[130, 2], %roots: i64[10]
    """

    name = "graph.descend"
    x = operand_def(TensorType)
    nodes = operand_def(TensorType)
    roots = operand_def(TensorType)
    steps = prop_def(ExprAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        x, nodes, roots = types
        check_same_element(types[:2], "C1")
        if x.dtype.kind != "i":
            raise ShapeError(f"C1: x must hold signed integers, not {x.element}")
        check_rank(x, 2, "x", "C2")
        check_rank(nodes, 2, "nodes", "C2")
        if not x.shape[1].constant:
            raise ShapeError(f"C2: x has {x.shape[1]} columns instead of a known number")
        if nodes.shape[1].constant != FIELDS:
            raise ShapeError(f"C2: a node has {nodes.shape[1]} numbers instead of {FIELDS}")
        check_indices(roots, "C3")
        if int_of(attributes, "steps") < 0:
            raise ShapeError("C4: steps must be at least 0")
        return [tensor(i64, (x.shape[0], *roots.shape))]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x, nodes, roots = operands
        rows = np.arange(len(x)).reshape(-1, *[1] * roots.ndim)
        at = np.broadcast_to(roots.astype(np.int64), (len(x), *roots.shape))
        for _ in range(int_of(self.properties, "steps")):
            if at.size and (at.min() < 0 or at.max() >= len(nodes)):
                raise IndexError(f"graph.descend goes to {at.min()} to {at.max()} of {len(nodes)}")
            bound, place = nodes[at, 0], nodes[at, 1].astype(np.int64)
            child, column = np.divmod(place, x.shape[1])
            at = child + np.int64(x[rows, column] <= bound)
        return np.array(at)
