"""Operations that find elements by their order: arg_max, arg_min, top_k."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, opt_prop_def, prop_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, Build, CompositeOp, GraphOp, ShapeError, flag_of, int_of
from dialects.graph.composite import reshaped, scalar
from dialects.graph.constant import RangeOp
from dialects.graph.inference import NUMBERS, certain_sign, check_axis, check_kind
from dialects.graph.logic import EqualOp, OrOp, WhereOp
from dialects.graph.reduce import ReduceMaxOp, ReduceMinOp
from dialects.graph.unary import IsnanOp
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import widen
from dialects.strata.sizes import AssumeOp
from dialects.strata.types import Array, ExprAttr, TensorType, i64, is_float, tensor, tensor_type


class ArgOp(CompositeOp):
    """The index (i64) of the first extremum along an axis, or with `last` of the last one.

    A NaN counts as the extremum. With `keepdims`, the axis is kept with size 1.
    Constraints: (C1) the axis is one of x's, and not empty; (C2) elements are numbers.
    """

    FIND: ClassVar[Callable[..., Any]]
    EXTREMUM: ClassVar[type[GraphOp]]
    x = operand_def(TensorType)
    axis = prop_def(ExprAttr)
    keepdims = opt_prop_def(IntegerAttr)
    last = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        axis, keep = int_of(attributes, "axis"), flag_of(attributes, "keepdims")
        check_axis(axis, types[0].rank, "C1")
        check_kind(NUMBERS, types[0].element)
        if types[0].shape[axis].constant == 0:
            raise ShapeError(f"C1: axis {axis} of {types[0].short} is empty")
        shape = [1 if k == axis else s for k, s in enumerate(types[0].shape) if keep or k != axis]
        return [tensor(i64, shape)]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        axis, keep = int_of(self.properties, "axis"), flag_of(self.properties, "keepdims")
        find = type(self).FIND
        if not flag_of(self.properties, "last"):
            return np.asarray(find(operands[0], axis=axis, keepdims=keep), np.int64)
        found = find(np.flip(operands[0], axis), axis=axis, keepdims=keep)
        return np.asarray(operands[0].shape[axis] - 1 - found, np.int64)

    def decompose(self, build: Build) -> Sequence[SSAValue]:
        """The smallest or largest of the indices at which x is the extremum or NaN."""
        axis, x = int_of(self.properties, "axis"), tensor_type(self.x)
        if x.shape[axis].constant is None:
            build.insert(AssumeOp.of(1, "<=", x.shape[axis]))
        extremum = build(self.EXTREMUM, self.x, axes=[axis], keepdims=True)
        hit = build(EqualOp, self.x, extremum)
        if is_float(x.element):
            hit = build(OrOp, hit, build(IsnanOp, self.x))
        places = build(RangeOp, start=0, step=1, count=x.shape[axis], to=i64)
        places = reshaped(build, places, [x.shape[axis], *[1] * (x.rank - axis - 1)])
        last = flag_of(self.properties, "last")
        nowhere = scalar(build, -1 if last else np.iinfo(np.int64).max, places)
        return [build(ReduceMaxOp if last else ReduceMinOp, build(WhereOp, hit, places, nowhere),
                      axes=[axis], keepdims=flag_of(self.properties, "keepdims"))]


@irdl_op_definition
class ArgMaxOp(ArgOp):
    """The index of the largest element along an axis.

    Source: ONNX ArgMax.
    Example: %y = graph.arg_max %x {axis = 1, keepdims = false, last = false} : i64[n]
        given %x: f32[n, 5]
    """

    name = "graph.arg_max"
    FIND: ClassVar[Callable[..., Any]] = np.argmax
    EXTREMUM: ClassVar[type[GraphOp]] = ReduceMaxOp


@irdl_op_definition
class ArgMinOp(ArgOp):
    """The index of the smallest element along an axis.

    Source: ONNX ArgMin.
    Example: %y = graph.arg_min %x {axis = 1, keepdims = false, last = false} : i64[n]
        given %x: f32[n, 5]
    """

    name = "graph.arg_min"
    FIND: ClassVar[Callable[..., Any]] = np.argmin
    EXTREMUM: ClassVar[type[GraphOp]] = ReduceMinOp


@irdl_op_definition
class TopKOp(GraphOp):
    """The k largest elements along an axis in descending order, and their indices, i64.

    Without `largest`, the k smallest in ascending order. Equal elements keep their order; NaN
    counts as larger than everything.
    Constraints: (C1) the axis is one of x's; (C2) elements are numbers; (C3) k is at most the size
    of the axis.
    Source: ONNX TopK.
    Example: %y, %i = graph.top_k %x {axis = 1, k = 2, largest = true} : f32[n, 2], i64[n, 2]
        given %x: f32[n, 5]
    """

    name = "graph.top_k"
    x = operand_def(TensorType)
    axis = prop_def(ExprAttr)
    k = prop_def(ExprAttr)
    largest = opt_prop_def(IntegerAttr)
    values = result_def(TensorType)
    indices = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        x, axis, k = types[0], int_of(attributes, "axis"), attributes["k"]
        assert isinstance(k, ExprAttr)
        check_axis(axis, x.rank, "C1")
        check_kind(NUMBERS, x.element)
        if certain_sign(x.shape[axis] - k.data) == -1 or certain_sign(k.data) == -1:
            raise ShapeError(f"C3: {k.data} elements cannot be taken of {x.shape[axis]}")
        shape = [k.data if dim == axis else s for dim, s in enumerate(x.shape)]
        return [tensor(x.element, shape), tensor(i64, shape)]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Sequence[Array]:
        [x], axis, count = operands, int_of(self.properties, "axis"), context.int(self.k)
        if count > x.shape[axis]:
            raise ValueError(f"C3: it needs k <= {x.shape[axis]}, and k is {count}")
        keys = widen(x)  # NumPy does not order NaN of bf16
        if flag_of(self.properties, "largest"):  # reversed: keeps equal ones in order
            descending = np.argsort(np.flip(keys, axis), axis, kind="stable")
            order = x.shape[axis] - 1 - np.flip(descending, axis)
        else:
            order = np.argsort(keys, axis, kind="stable")
        indices = np.take(order, range(count), axis)
        return [np.take_along_axis(x, indices, axis), indices.astype(np.int64)]
