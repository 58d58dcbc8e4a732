"""Activation functions and the softmax family."""

from __future__ import annotations

import math

from compiler.frontend import formulas as f
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import Operand, aten_op
from compiler.frontend.torch.ops.attention import softmax_of_kept
from compiler.frontend.torch.ops.elementwise import HALVES, arithmetic, clamp, operand
from compiler.frontend.values import Value
from dialects.graph.activation import (
    EluOp,
    GeluOp,
    HardSigmoidOp,
    HardSwishOp,
    LeakyReluOp,
    ReluOp,
    SiluOp,
)
from dialects.graph.base import GraphOp
from dialects.graph.elementwise import DivOp, MulOp
from dialects.graph.normalization import LogSoftmaxOp, SoftmaxOp
from dialects.strata import types as t

_PLAIN: dict[str, type[GraphOp]] = {
    "relu": ReluOp, "silu": SiluOp, "hardswish": HardSwishOp,
}


@aten_op(*(f"aten.{name}.default" for name in _PLAIN))
def plain(n: Node, x: Value) -> Value:
    return n(_PLAIN[n.op.split(".")[1]], x)


@aten_op("aten.relu6.default")
def relu6(n: Node, x: Value) -> Value:
    return clamp(n, x, 0.0, 6.0)


@aten_op("aten.gelu.default")
def gelu(n: Node, x: Value, approximate: str) -> Value:
    return n(GeluOp, x, approximate=approximate)


@aten_op("aten.leaky_relu.default")
def leaky_relu(n: Node, x: Value, slope: float) -> Value:
    return n(LeakyReluOp, x, alpha=float(slope))


@aten_op("aten.elu.default")
def elu(n: Node, x: Value, alpha: float, scale: float, input_scale: float) -> Value:
    """scale * x for x > 0, and scale * alpha * (exp(input_scale * x) - 1) elsewhere."""
    if input_scale == 1:
        curve = n(EluOp, x, alpha=float(alpha))
        return curve if scale == 1 else arithmetic(n, MulOp, curve, float(scale))
    wide = x.cast(t.f32) if x.element in HALVES else x
    low = float(alpha) * f.expm1(wide * float(input_scale))
    return f.where(wide <= 0, low, wide) * float(scale)


@aten_op("aten.hardsigmoid.default")
def hard_sigmoid(n: Node, x: Value) -> Value:
    return n(HardSigmoidOp, x, alpha=1 / 6, beta=0.5)


@aten_op("aten.softplus.default")
def softplus(n: Node, x: Value, beta: float, threshold: float) -> Value:
    """log(1 + exp(beta * x)) / beta, but x itself if beta * x is above the threshold."""
    if beta == 1:
        curve, inner = f.softplus(x), x
    else:
        inner = arithmetic(n, MulOp, x, float(beta))
        curve = arithmetic(n, DivOp, f.softplus(inner), float(beta))
    above = inner > float(threshold)
    return f.where(above, x, curve)


@aten_op("aten.mish.default")
def mish(n: Node, x: Value) -> Value:
    """x * tanh(softplus(x))."""
    return x * f.tanh(f.softplus(x))


@aten_op("aten.threshold.default")
def threshold(n: Node, x: Value, limit: Operand, value: Operand) -> Value:
    """The value where x is at most the limit. NaN is above each limit, as x or as the limit."""
    below = x <= operand(n, limit, x.element)
    return f.where(below, operand(n, value, x.element), x)


@aten_op("aten.prelu.default", "aten._prelu_kernel.default")
def prelu(n: Node, x: Value, slope: Value) -> Value:
    if slope.rank == 1 and x.rank > 1:
        slope = n.channelwise(slope, x.rank)
    positive = x > 0
    return f.where(positive, x, slope * x)


@aten_op("aten.glu.default")
def glu(n: Node, x: Value, axis: int) -> Value:
    """The first half of an axis times the sigmoid of the second half."""
    axis = n.axis(axis, x.rank)
    half = n.shape[axis]
    first, second = (x.part(axis, start, half) for start in (0, half))
    return first * f.sigmoid(second)


# ---------------------------------------------------------------------- softmax
@aten_op("aten._softmax.default", "aten.softmax.int")
def softmax(n: Node, x: Value, axis: int) -> Value:
    return _over_axis(n, SoftmaxOp, x, axis)


@aten_op("aten._safe_softmax.default")
def safe_softmax(n: Node, x: Value, axis: int) -> Value:
    """The softmax; 0 if all elements along the axis are -inf."""
    x = x.cast(n.element)
    flat = x if x.rank else x.reshape([1])
    found = softmax_of_kept(flat, n.axis(axis, x.rank), ~f.equal(flat, -math.inf))
    return found.reshape(x.shape)


@aten_op("aten._log_softmax.default", "aten.log_softmax.int")
def log_softmax(n: Node, x: Value, axis: int) -> Value:
    return _over_axis(n, LogSoftmaxOp, x, axis)


def _over_axis(n: Node, op: type[GraphOp], x: Value, axis: int) -> Value:
    x = x.cast(n.element)
    if not x.rank:
        return n(op, x.reshape([1]), axis=0).reshape([])
    return n(op, x, axis=n.axis(axis, x.rank))
