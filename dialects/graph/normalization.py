"""Normalizations: softmax, log softmax, layer and batch normalization."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, opt_operand_def, prop_def, result_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import Attributes, Build, CompositeOp, ShapeError, float_of, int_of
from dialects.graph.composite import cast, reshaped, scalar, wide
from dialects.graph.elementwise import AddOp, DivOp, MulOp, SubOp
from dialects.graph.inference import (
    FLOATS,
    check_axis,
    check_count,
    check_kind,
    check_rank,
    check_same_element,
    same_size,
)
from dialects.graph.reduce import ReduceMaxOp, ReduceMeanOp, ReduceSumOp
from dialects.graph.shape import check_broadcasts_to
from dialects.graph.unary import ExpOp, LogOp, ReciprocalOp, SqrtOp
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import rounded, widen
from dialects.semantics.sums import total
from dialects.strata.types import Array, ExprAttr, TensorType, tensor_type


class SoftmaxFamilyOp(CompositeOp):
    """The common part of softmax and log softmax.

    f16 and bf16 are computed in f32 and rounded once.
    Constraints: (C1) elements are floats; (C2) the axis is one of x's.
    """

    x = operand_def(TensorType)
    axis = prop_def(ExprAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        check_kind(FLOATS, types[0].element, "C1")
        check_axis(int_of(attributes, "axis"), types[0].rank, "C2")
        return [types[0]]

    def shifted(self, operand: Array) -> Array:
        """x minus its maximum, in f32 or f64."""
        x, axis = widen(operand), int_of(self.properties, "axis")
        return x - np.max(x, axis, keepdims=True, initial=-np.inf)

    def define_shifted(self, build: Build) -> SSAValue:
        """The same, built from operations."""
        x = wide(build, self.x)
        axes = [int_of(self.properties, "axis")]
        return build(SubOp, x, build(ReduceMaxOp, x, axes=axes, keepdims=True))

    def define_sum(self, build: Build, x: SSAValue) -> SSAValue:
        return build(ReduceSumOp, x, axes=[int_of(self.properties, "axis")], keepdims=True)


@irdl_op_definition
class SoftmaxOp(SoftmaxFamilyOp):
    """exp(x - m) / sum(exp(x - m)) along the axis, where m is its maximum.

    Source: ONNX Softmax (opset 13 on).
    Example: %y = graph.softmax %x {axis = 1} : f32[n, 10] given %x: f32[n, 10]
    """

    name = "graph.softmax"

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        with np.errstate(all="ignore"):
            powers = np.exp(self.shifted(operands[0]))
            powers /= total(powers, int_of(self.properties, "axis"), powers.dtype, keepdims=True)
        return rounded(powers, self.result_tensors[0])

    def decompose(self, build: Build) -> Sequence[SSAValue]:
        powers = build(ExpOp, self.define_shifted(build))
        result = build(DivOp, powers, self.define_sum(build, powers))
        return [cast(build, result, self.result_tensors[0].element)]


@irdl_op_definition
class LogSoftmaxOp(SoftmaxFamilyOp):
    """x - m - log(sum(exp(x - m))) along the axis, where m is its maximum.

    Source: ONNX LogSoftmax (opset 13 on).
    Example: %y = graph.log_softmax %x {axis = 1} : f32[n, 10] given %x: f32[n, 10]
    """

    name = "graph.log_softmax"

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        with np.errstate(all="ignore"):
            x = self.shifted(operands[0])
            powers = total(np.exp(x), int_of(self.properties, "axis"), x.dtype, keepdims=True)
            return rounded(x - np.log(powers), self.result_tensors[0])

    def decompose(self, build: Build) -> Sequence[SSAValue]:
        x = self.define_shifted(build)
        total = self.define_sum(build, build(ExpOp, x))
        result = build(SubOp, x, build(LogOp, total))
        return [cast(build, result, self.result_tensors[0].element)]


@irdl_op_definition
class LayerNormOp(CompositeOp):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, over the dims from `axis` on.

    The variance is the mean of the squared differences. f16 and bf16 are computed in f32 and
    rounded once.
    Constraints: (C1) equal float element types; (C2) the axis is one of x's; (C3) scale and bias
    broadcast to x's dims from the axis on.
    Source: ONNX LayerNormalization (first result).
    Example: %y = graph.layer_norm %x, %s, %b {axis = 1, epsilon = 1.0e-05} : f32[n, 768]
        given %x: f32[n, 768], %s: f32[768], %b: f32[768]
    """

    name = "graph.layer_norm"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    axis = prop_def(ExprAttr)
    epsilon = prop_def(FloatAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        check_count(types, 2, 3)
        check_same_element(types)
        check_kind(FLOATS, types[0].element, "C1")
        axis = int_of(attributes, "axis")
        check_axis(axis, types[0].rank, "C2")
        for parameter in types[1:]:
            check_broadcasts_to(parameter, types[0].shape[axis:], ("C3", "C3"))
        return [types[0]]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x, scale, *bias = map(widen, operands)
        axes = tuple(range(int_of(self.properties, "axis"), x.ndim))
        with np.errstate(all="ignore"):
            centered = x - _mean(x, axes)
            variance = _mean(centered * centered, axes)
            deviation = np.sqrt(variance + x.dtype.type(float_of(self.properties, "epsilon")))
            result = centered / deviation * scale
        return rounded(result + bias[0] if bias else result, self.result_tensors[0])

    def decompose(self, build: Build) -> Sequence[SSAValue]:
        x, scale, *bias = [wide(build, v) for v in self.operands]
        axes = list(range(int_of(self.properties, "axis"), tensor_type(x).rank))
        centered = build(SubOp, x, build(ReduceMeanOp, x, axes=axes, keepdims=True))
        square = build(MulOp, centered, centered)
        variance = build(ReduceMeanOp, square, axes=axes, keepdims=True)
        factor = build(ReciprocalOp, _deviation(build, variance, self.properties))
        result = build(MulOp, build(MulOp, centered, factor), scale)
        result = build(AddOp, result, bias[0]) if bias else result
        return [cast(build, result, self.result_tensors[0].element)]


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    count = np.prod([x.shape[a] for a in axes], dtype=np.int64)
    return total(x, axes, x.dtype, keepdims=True) / x.dtype.type(count)


def _deviation(build: Build, variance: SSAValue, attributes: Attributes) -> SSAValue:
    """sqrt(variance + epsilon)."""
    epsilon = scalar(build, float_of(attributes, "epsilon"), variance)
    return build(SqrtOp, build(AddOp, variance, epsilon))


@irdl_op_definition
class BatchNormOp(CompositeOp):
    """x * s + t per channel: s = scale / sqrt(variance + epsilon), t = bias - mean * s.

    x is [n, c, ...], the four others [c]. f16 and bf16 are computed in f32 and rounded once.
    Constraints: (C1) equal float element types; (C2) x has at least two dims; (C3) the other
    operands have the shape [c].
    Source: ONNX BatchNormalization (inference).
    Example: %y = graph.batch_norm %x, %s, %b, %m, %v {epsilon = 1.0e-05} : f32[n, 8, h]
        given %x: f32[n, 8, h], %s: f32[8], %b: f32[8], %m: f32[8], %v: f32[8]
    """

    name = "graph.batch_norm"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    bias = operand_def(TensorType)
    mean = operand_def(TensorType)
    variance = operand_def(TensorType)
    epsilon = prop_def(FloatAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        check_same_element(types)
        check_kind(FLOATS, types[0].element, "C1")
        if types[0].rank < 2:
            raise ShapeError(f"C2: {types[0].short} has no channels")
        for parameter in types[1:]:
            check_rank(parameter, 1, "every parameter", "C3")
            same_size(parameter.shape[0], types[0].shape[1], "C3: channels differ")
        return [types[0]]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x, scale, bias, mean, variance = map(widen, operands)
        shape = (-1, *(1,) * (x.ndim - 2))
        with np.errstate(all="ignore"):
            epsilon = x.dtype.type(float_of(self.properties, "epsilon"))
            factor = scale / np.sqrt(variance + epsilon)
            shift = bias - mean * factor
            result = x * factor.reshape(shape) + shift.reshape(shape)
        return rounded(result, self.result_tensors[0])

    def decompose(self, build: Build) -> Sequence[SSAValue]:
        x, scale, bias, mean, variance = [wide(build, v) for v in self.operands]
        factor = build(DivOp, scale, _deviation(build, variance, self.properties))
        shift = build(SubOp, bias, build(MulOp, mean, factor))
        shape = [tensor_type(x).shape[1], *[1] * (tensor_type(x).rank - 2)]
        scaled = build(MulOp, x, reshaped(build, factor, shape))
        result = build(AddOp, scaled, reshaped(build, shift, shape))
        return [cast(build, result, self.result_tensors[0].element)]
