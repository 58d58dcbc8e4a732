"""Activation functions: elementwise composite operations that a target may implement directly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, opt_prop_def, prop_def, result_def, var_operand_def

from dialects.definition import irdl_op_definition
from dialects.graph.base import (
    Attributes,
    Build,
    CompositeOp,
    ShapeError,
    flag_of,
    float_of,
    text_of,
)
from dialects.graph.composite import cast, scalar, wide
from dialects.graph.elementwise import AddOp, MaxOp, MinOp, MulOp
from dialects.graph.exponential import Expm1Op, Log1pOp
from dialects.graph.inference import FLOATS, NUMBERS, Kind, check_kind, check_same_element
from dialects.graph.logic import LessOp, WhereOp
from dialects.graph.shape import check_broadcasts_to
from dialects.graph.unary import AbsOp, ErfOp, ExpOp, NegOp, SigmoidOp, TanhOp
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import SQRT_2_OVER_PI, SQRT_HALF, erf, rounded, sigmoid, widen
from dialects.strata.types import Array, TensorType


class ActivationOp(CompositeOp):
    """An elementwise function that is defined by simpler operations.

    f16 and bf16 are computed in f32 and rounded once.
    Constraints: (C1) elements are of the kind `ELEMENTS`.
    """

    ELEMENTS: ClassVar[Kind] = FLOATS
    x = operand_def(TensorType)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        check_kind(cls.ELEMENTS, types[0].element, "C1")
        return [types[0]]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        with np.errstate(all="ignore"):
            return rounded(self.compute(widen(operands[0])), self.result_tensors[0])

    def decompose(self, build: Build) -> Sequence[SSAValue]:
        result = self.define(build, wide(build, self.x))
        return [cast(build, result, self.result_tensors[0].element)]

    def compute(self, x: Array) -> Array:
        """The formula on arrays of f32, f64 or integers."""
        raise NotImplementedError(self.name)

    def define(self, build: Build, x: SSAValue) -> SSAValue:
        """The same formula, built from operations."""
        raise NotImplementedError(self.name)


@irdl_op_definition
class ReluOp(ActivationOp):
    """max(x, 0); NaN for NaN. Integers are allowed, too.

    Source: ONNX Relu.
    Example: %y = graph.relu %x : f32[n] given %x: f32[n]
    """

    name = "graph.relu"
    ELEMENTS: ClassVar[Kind] = NUMBERS

    def compute(self, x: Array) -> Array:
        return np.maximum(x, np.zeros((), x.dtype))

    def define(self, build: Build, x: SSAValue) -> SSAValue:
        return build(MaxOp, x, scalar(build, 0, x))


@irdl_op_definition
class LeakyReluOp(ActivationOp):
    """alpha * x below 0, else x.

    Source: ONNX LeakyRelu.
    Example: %y = graph.leaky_relu %x {alpha = 0.01} : f32[n] given %x: f32[n]
    """

    name = "graph.leaky_relu"
    alpha = prop_def(FloatAttr)

    def compute(self, x: Array) -> Array:
        return np.where(x < 0, x * float_of(self.properties, "alpha"), x)

    def define(self, build: Build, x: SSAValue) -> SSAValue:
        scaled = build(MulOp, x, scalar(build, float_of(self.properties, "alpha"), x))
        return build(WhereOp, build(LessOp, x, scalar(build, 0, x)), scaled, x)


@irdl_op_definition
class EluOp(ActivationOp):
    """alpha * (exp(x) - 1) below 0, else x.

    Source: ONNX Elu.
    Example: %y = graph.elu %x {alpha = 1.0} : f32[n] given %x: f32[n]
    """

    name = "graph.elu"
    alpha = prop_def(FloatAttr)

    def compute(self, x: Array) -> Array:
        return np.where(x < 0, float_of(self.properties, "alpha") * np.expm1(x), x)

    def define(self, build: Build, x: SSAValue) -> SSAValue:
        alpha = scalar(build, float_of(self.properties, "alpha"), x)
        scaled = build(MulOp, build(Expm1Op, x), alpha)
        return build(WhereOp, build(LessOp, x, scalar(build, 0, x)), scaled, x)


@irdl_op_definition
class HardSigmoidOp(ActivationOp):
    """max(0, min(1, alpha * x + beta)).

    Source: ONNX HardSigmoid.
    Example: %y = graph.hard_sigmoid %x {alpha = 0.2, beta = 0.5} : f32[n] given %x: f32[n]
    """

    name = "graph.hard_sigmoid"
    alpha = prop_def(FloatAttr)
    beta = prop_def(FloatAttr)

    def compute(self, x: Array) -> Array:
        line = x * float_of(self.properties, "alpha") + float_of(self.properties, "beta")
        return np.clip(line, 0, 1)

    def define(self, build: Build, x: SSAValue) -> SSAValue:
        alpha, beta = float_of(self.properties, "alpha"), float_of(self.properties, "beta")
        return _hard_sigmoid(build, x, alpha, beta)


@irdl_op_definition
class HardSwishOp(ActivationOp):
    """x * max(0, min(1, x / 6 + 1/2)).

    Source: ONNX HardSwish.
    Example: %y = graph.hard_swish %x : f32[n] given %x: f32[n]
    """

    name = "graph.hard_swish"

    def compute(self, x: Array) -> Array:
        return x * np.clip(x * (1 / 6) + 0.5, 0, 1)

    def define(self, build: Build, x: SSAValue) -> SSAValue:
        return build(MulOp, x, _hard_sigmoid(build, x, 1 / 6, 0.5))


def _hard_sigmoid(build: Build, x: SSAValue, alpha: float, beta: float) -> SSAValue:
    line = build(AddOp, build(MulOp, x, scalar(build, alpha, x)), scalar(build, beta, x))
    return build(MaxOp, build(MinOp, line, scalar(build, 1, x)), scalar(build, 0, x))


@irdl_op_definition
class GeluOp(ActivationOp):
    """x * (1 + erf(x / sqrt(2))) / 2, or x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3))) / 2.

    Constraints: (C2) approximate is "none" or "tanh".
    Source: ONNX Gelu.
    Example: %y = graph.gelu %x {approximate = "none"} : f32[n] given %x: f32[n]
    """

    name = "graph.gelu"
    approximate = prop_def(StringAttr)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        if text_of(attributes, "approximate") not in ("none", "tanh"):
            raise ShapeError(f"C2: unknown approximation {attributes['approximate']}")
        return super().infer(types, attributes)

    def compute(self, x: Array) -> Array:
        if self.approximate.data == "none":
            return 0.5 * x * (1 + erf(x * SQRT_HALF))
        return 0.5 * x * (1 + np.tanh(SQRT_2_OVER_PI * (x + 0.044715 * (x * x * x))))

    def define(self, build: Build, x: SSAValue) -> SSAValue:
        half = build(MulOp, x, scalar(build, 0.5, x))
        if self.approximate.data == "none":
            bend = build(ErfOp, build(MulOp, x, scalar(build, SQRT_HALF, x)))
        else:
            bend = build(TanhOp, self._tanh_argument(build, x))
        return build(MulOp, half, build(AddOp, bend, scalar(build, 1, x)))

    def _tanh_argument(self, build: Build, x: SSAValue) -> SSAValue:
        cube = build(MulOp, build(MulOp, x, x), x)
        bent = build(AddOp, x, build(MulOp, cube, scalar(build, 0.044715, x)))
        return build(MulOp, bent, scalar(build, SQRT_2_OVER_PI, x))


@irdl_op_definition
class SiluOp(ActivationOp):
    """x * sigmoid(x).

    Source: ONNX Swish with alpha 1; torch.nn.SiLU.
    Example: %y = graph.silu %x : f32[n] given %x: f32[n]
    """

    name = "graph.silu"

    def compute(self, x: Array) -> Array:
        return x * sigmoid(x)

    def define(self, build: Build, x: SSAValue) -> SSAValue:
        return build(MulOp, x, build(SigmoidOp, x))


@irdl_op_definition
class SoftplusOp(ActivationOp):
    """log(1 + exp(x)), computed as max(x, 0) + log(1 + exp(-|x|)).

    Source: ONNX Softplus.
    Example: %y = graph.softplus %x : f32[n] given %x: f32[n]
    """

    name = "graph.softplus"

    def compute(self, x: Array) -> Array:
        return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))

    def define(self, build: Build, x: SSAValue) -> SSAValue:
        small = build(ExpOp, build(NegOp, build(AbsOp, x)))
        curve = build(Log1pOp, small)
        return build(AddOp, build(MaxOp, x, scalar(build, 0, x)), curve)


@irdl_op_definition
class ClipOp(CompositeOp):
    """min(max(x, low), high); has_min and has_max say which bounds follow x as operands.

    Constraints: (C1) equal element types, numbers; (C2) one bound per flag that is set; (C3)
    bounds broadcast to x.
    Source: ONNX Clip.
    Example: %y = graph.clip %x, %low {has_min = true, has_max = false} : f32[n]
        given %x: f32[n], %low: f32[]
    """

    name = "graph.clip"
    x = operand_def(TensorType)
    bounds = var_operand_def(TensorType)
    has_min = opt_prop_def(IntegerAttr)
    has_max = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    @classmethod
    def infer(cls, types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        check_same_element(types)
        check_kind(NUMBERS, types[0].element, "C1")
        flags = flag_of(attributes, "has_min") + flag_of(attributes, "has_max")
        if len(types) != 1 + flags:
            raise ShapeError(f"C2: {flags} flags are set for {len(types) - 1} bounds")
        for bound in types[1:]:
            check_broadcasts_to(bound, types[0].shape, ("C3", "C3"))
        return [types[0]]

    def evaluate(self, context: EvaluationContext, *operands: Array) -> Array:
        x = widen(operands[0])
        if flag_of(self.properties, "has_min"):
            x = np.maximum(x, widen(operands[1]))
        if flag_of(self.properties, "has_max"):
            x = np.minimum(x, widen(operands[-1]))
        return rounded(x, self.result_tensors[0])

    def decompose(self, build: Build) -> Sequence[SSAValue]:
        x = self.x
        if flag_of(self.properties, "has_min"):
            x = build(MaxOp, x, self.operands[1])
        if flag_of(self.properties, "has_max"):
            x = build(MinOp, x, self.operands[-1])
        return [x]
