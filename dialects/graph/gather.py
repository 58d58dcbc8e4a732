"""Operations that select elements by index tensors.

An index out of range is an error. The interpreter always detects it; compiled code does if a
`strata.require` states the range of the indices, which importers insert. Without one, or on a
target that does not check, compiled code reads the element at the nearest end of the dim, so that
accesses stay in bounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.irdl import operand_def, opt_prop_def, prop_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, GraphOp, ShapeError, int_of
from dialects.graph.inference import certain_sign, check_axis, check_rank, same_size
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.types import Array, ExprAttr, TensorType, i1, is_float, tensor
from dialects.symbolic.expr import Expr


def check_indices(indices: TensorType, constraint: str = "C1") -> None:
    if is_float(indices.element) or indices.element == i1:
        raise ShapeError(f"{constraint}: indices must be integers, not {indices.element}")


@irdl_op_definition
class GatherOp(GraphOp):
    """Entries of x along one axis: y[a, i, b] = x[a, indices[i], b] (a, i, b: any number of dims).

    A negative index counts from the end. An index outside the axis is an error.
    Constraints: (C1) indices are integers; (C2) the axis is one of x's.
    Source: ONNX Gather.
    Example: %y = graph.gather %x, %i {axis = 0} : f32[n, 4, 768]
        given %x: f32[30522, 768], %i: i64[n, 4]
    """

    name = "graph.gather"
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    axis = prop_def(ExprAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        x, indices = types
        axis = int_of(attributes, "axis")
        check_indices(indices)
        check_axis(axis, x.rank, "C2")
        return [tensor(x.element, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1:]))]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        return np.take(operands[0], operands[1], int_of(self.properties, "axis"))

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        positions = [e.constant for e in operands[1].reshape(-1)]
        axis = int_of(self.properties, "axis")
        extent = operands[0].shape[axis]
        if any(p is None or not -extent <= p < extent for p in positions):
            return None
        return np.take(operands[0], np.array(positions, np.int64).reshape(operands[1].shape), axis)


@irdl_op_definition
class GatherElementsOp(GraphOp):
    """One entry of x per entry of indices: y[i, j, k] = x[i, indices[i, j, k], k] for axis 1.

    A negative index counts from the end. An index outside the axis is an error.
    Constraints: (C1) indices are integers; (C2) both have the same rank, with the axis inside;
    (C3) outside the axis, indices' dims are not larger than x's.
    Source: ONNX GatherElements.
    Example: %y = graph.gather_elements %x, %i {axis = 1} : f32[n, 2]
        given %x: f32[n, 3], %i: i64[n, 2]
    """

    name = "graph.gather_elements"
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    axis = prop_def(ExprAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        x, indices = types
        axis = int_of(attributes, "axis")
        check_indices(indices)
        check_rank(indices, x.rank, "indices", "C2")
        check_axis(axis, x.rank, "C2")
        for dim, (size, wanted) in enumerate(zip(x.shape, indices.shape, strict=True)):
            if dim != axis and certain_sign(size - wanted) == -1:
                raise ShapeError(f"C3: dim {dim} of indices is {wanted}, larger than x's {size}")
        return [tensor(x.element, indices.shape)]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x, indices = operands
        axis = int_of(self.properties, "axis")
        used = tuple(slice(None if dim == axis else size) for dim, size in enumerate(indices.shape))
        return np.take_along_axis(x[used], indices.astype(np.int64), axis)


@irdl_op_definition
class GatherNdOp(GraphOp):
    """Slices of x by index vectors: y[b, i] = x[b, indices[b, i, :]], b over the batch dims.

    Negative indices count from the end. An index outside its dim is an error.
    Constraints: (C1) indices are integers of rank 1 or more; (C2) batch_dims is smaller than
    indices' rank and the batch dims agree; (C3) the last dim of indices is a constant, at most the
    number of x's dims after the batch dims.
    Source: ONNX GatherND.
    Example: %y = graph.gather_nd %x, %i {batch_dims = 0} : f32[n, 5]
        given %x: f32[3, 4, 5], %i: i64[n, 2]
    """

    name = "graph.gather_nd"
    x = operand_def(TensorType)
    indices = operand_def(TensorType)
    batch_dims = opt_prop_def(ExprAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        x, indices = types
        check_indices(indices)
        batch = _batch_shape(x, indices, int_of(attributes, "batch_dims"))
        depth = indices.shape[-1].constant
        if depth is None or depth > x.rank - len(batch):
            raise ShapeError(f"C3: index vectors of {indices.shape[-1]} do not fit {x.short}")
        inner = indices.shape[len(batch):-1]
        return [tensor(x.element, (*batch, *inner, *x.shape[len(batch) + depth:]))]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x, indices = operands
        batch = int_of(self.properties, "batch_dims")
        positions = list(np.indices(indices.shape[:-1])[:batch])
        vectors = list(np.moveaxis(indices, -1, 0))
        return x[(*positions, *vectors)] if positions or vectors else _whole(x, indices)


def _batch_shape(x: TensorType, indices: TensorType, batch_dims: int) -> list[Expr]:
    if indices.rank == 0:
        raise ShapeError("C1: indices must have at least one dim")
    if not 0 <= batch_dims < indices.rank or batch_dims > x.rank:
        raise ShapeError(f"C2: batch_dims {batch_dims} does not fit {x.short}, {indices.short}")
    pairs = zip(x.shape[:batch_dims], indices.shape[:batch_dims], strict=True)
    return [same_size(a, b, "C2: batch dims differ") for a, b in pairs]


def _whole(x: Array, indices: Array) -> Array:
    """Each empty index vector selects all of x."""
    return np.broadcast_to(x, (*indices.shape[:-1], *x.shape))
