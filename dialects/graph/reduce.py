"""Reductions over axes: sum, max, min, product and mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, opt_prop_def, prop_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import (
    Attributes,
    Build,
    CompositeOp,
    GraphOp,
    ShapeError,
    flag_of,
    ints_of,
)
from dialects.graph.composite import cast, wide
from dialects.graph.constant import SizesOp
from dialects.graph.elementwise import DivOp, MulOp
from dialects.graph.inference import NUMBERS, ORDERED, Kind, check_kind
from dialects.graph.unary import ReciprocalOp
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import highest, lowest, rounded, truncating_divide, widen
from dialects.semantics.sums import total
from dialects.strata.types import Array, SizesAttr, TensorType, i64, is_float, tensor, tensor_type
from dialects.symbolic.size_products import product


def reduced_type(kind: Kind, types: Sequence[TensorType], attributes: Attributes) -> TensorType:
    """The result type of a reduction: the axes are dropped, or have size 1 with `keepdims`."""
    axes, rank = ints_of(attributes, "axes"), types[0].rank
    if list(axes) != sorted(set(axes)) or not all(0 <= a < rank for a in axes):
        raise ShapeError(f"C1: axes {list(axes)} must be sorted, distinct and in 0 to {rank - 1}")
    check_kind(kind, types[0].element)
    keep = flag_of(attributes, "keepdims")
    shape = [1 if k in axes else s for k, s in enumerate(types[0].shape) if keep or k not in axes]
    return tensor(types[0].element, shape)


class ReduceOp(GraphOp):
    """Combines the elements along `axes`. With `keepdims`, these dims are kept with size 1.

    f16 and bf16 are combined in f32 and rounded once.
    Constraints: (C1) axes are distinct, sorted, and dims of x; (C2) elements are of the kind
    `ELEMENTS`.
    """

    ELEMENTS: ClassVar[Kind] = NUMBERS
    x = operand_def(TensorType)
    axes = prop_def(SizesAttr)
    keepdims = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        return [reduced_type(cls.ELEMENTS, types, attributes)]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        axes = ints_of(self.properties, "axes")
        with np.errstate(all="ignore"):
            total = self.reduce(widen(operands[0]), axes, flag_of(self.properties, "keepdims"))
        return rounded(total, self.result_tensors[0])

    def reduce(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        """The reduction, on floats in f32 or f64."""
        raise NotImplementedError(self.name)


@irdl_op_definition
class ReduceSumOp(ReduceOp):
    """The sum; 0 if there are no elements. Integers wrap around.

    Source: ONNX ReduceSum.
    Example: %y = graph.reduce_sum %x {axes = [1], keepdims = true} : f32[n, 1] given %x: f32[n, 3]
    """

    name = "graph.reduce_sum"

    def reduce(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        return total(x, axes, x.dtype, keepdims=keepdims)

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        axes, keep = ints_of(self.properties, "axes"), flag_of(self.properties, "keepdims")
        return np.add.reduce(operands[0], axes, keepdims=keep, initial=0)


@irdl_op_definition
class ReduceProdOp(ReduceOp):
    """The product; 1 if there are no elements. Integers wrap around.

    Source: ONNX ReduceProd.
    Example: %y = graph.reduce_prod %x {axes = [0], keepdims = false} : i64[] given %x: i64[4]
    """

    name = "graph.reduce_prod"

    def reduce(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        return np.prod(x, axes, x.dtype, keepdims=keepdims)

    def evaluate_sizes(self, *operands: Array) -> Array | None:
        axes, keep = ints_of(self.properties, "axes"), flag_of(self.properties, "keepdims")
        return np.multiply.reduce(operands[0], axes, keepdims=keep, initial=1)


@irdl_op_definition
class ReduceMaxOp(ReduceOp):
    """The largest element, or NaN if there is one; -inf or the smallest integer if there are none.

    Source: ONNX ReduceMax.
    Example: %y = graph.reduce_max %x {axes = [0], keepdims = false} : f32[3] given %x: f32[n, 3]
    """

    name = "graph.reduce_max"
    ELEMENTS: ClassVar[Kind] = ORDERED

    def reduce(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        return np.max(x, axes, keepdims=keepdims, initial=lowest(x.dtype))


@irdl_op_definition
class ReduceMinOp(ReduceOp):
    """The smallest element, or NaN if there is one; inf or the largest integer if there are none.

    Source: ONNX ReduceMin.
    Example: %y = graph.reduce_min %x {axes = [0], keepdims = false} : f32[3] given %x: f32[n, 3]
    """

    name = "graph.reduce_min"
    ELEMENTS: ClassVar[Kind] = ORDERED

    def reduce(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        return np.min(x, axes, keepdims=keepdims, initial=highest(x.dtype))


@irdl_op_definition
class ReduceMeanOp(CompositeOp):
    """The mean; if there are no elements, NaN, or 0 for integers.

    f16 and bf16 are summed in f32 and rounded once. Integers are divided towards zero.
    Constraints: (C1) axes are distinct, sorted, and dims of x; (C2) elements are numbers.
    Source: ONNX ReduceMean, GlobalAveragePool.
    Example: %y = graph.reduce_mean %x {axes = [1], keepdims = false} : f32[n] given %x: f32[n, m]
    """

    name = "graph.reduce_mean"
    x = operand_def(TensorType)
    axes = prop_def(SizesAttr)
    keepdims = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        return [reduced_type(NUMBERS, types, attributes)]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        axes, x = ints_of(self.properties, "axes"), widen(operands[0])
        count = np.array(np.prod([x.shape[a] for a in axes], dtype=np.int64)).astype(x.dtype)
        with np.errstate(all="ignore"):
            whole = total(x, axes, x.dtype, keepdims=flag_of(self.properties, "keepdims"))
            mean = truncating_divide(whole, count) if x.dtype.kind in "iu" else whole / count
        return rounded(mean, self.result_tensors[0])

    def decompose(self, build: Build) -> Sequence[SSAValue]:
        x = wide(build, self.x)
        type_ = tensor_type(x)
        axes, keep = ints_of(self.properties, "axes"), flag_of(self.properties, "keepdims")
        total = build(ReduceSumOp, x, axes=list(axes), keepdims=keep)
        sizes = build(SizesOp, values=[product(type_.shape[a] for a in axes)], shape=[], to=i64)
        count = cast(build, sizes, type_.element)
        if is_float(type_.element):
            mean = build(MulOp, total, build(ReciprocalOp, count))
        else:
            mean = build(DivOp, total, count)
        return [cast(build, mean, self.result_tensors[0].element)]
