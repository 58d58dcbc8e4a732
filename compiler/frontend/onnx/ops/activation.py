"""Activation functions, clipping and the softmax family."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, isfinite

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value
from dialects.graph.activation import (
    ClipOp,
    EluOp,
    GeluOp,
    HardSigmoidOp,
    HardSwishOp,
    LeakyReluOp,
    ReluOp,
    SoftplusOp,
)
from dialects.graph.base import GraphOp
from dialects.graph.logic import GreaterOp, LessOp
from dialects.graph.normalization import LogSoftmaxOp
from dialects.strata import types as t
from dialects.symbolic.size_products import product

_PLAIN: dict[str, type[GraphOp]] = {
    "Relu": ReluOp, "HardSwish": HardSwishOp, "Softplus": SoftplusOp,
}


@onnx_op(*_PLAIN)
def plain(n: Node, x: Value) -> Value:
    return n(_PLAIN[n.op_type], x)


@onnx_op("HardSigmoid")
def hard_sigmoid(n: Node, x: Value) -> Value:
    return n(HardSigmoidOp, x, alpha=n.real("alpha", 0.2), beta=n.real("beta", 0.5))


@onnx_op("Gelu")
def gelu(n: Node, x: Value) -> Value:
    return n(GeluOp, x, approximate=n.text("approximate", "none"))


@onnx_op("LeakyRelu")
def leaky_relu(n: Node, x: Value) -> Value:
    return n(LeakyReluOp, x, alpha=n.real("alpha", 0.01))


@onnx_op("Elu")
def elu(n: Node, x: Value) -> Value:
    return n(EluOp, x, alpha=n.real("alpha", 1.0))


@onnx_op("Selu", since=6)
def selu(n: Node, x: Value) -> Value:
    """gamma * elu(x)."""
    alpha, gamma = n.real("alpha", 1.6732632), n.real("gamma", 1.0507010)
    return gamma * n(EluOp, x, alpha=alpha)


@onnx_op("Celu")
def celu(n: Node, x: Value) -> Value:
    """x above 0, alpha * (exp(x / alpha) - 1) elsewhere."""
    alpha = n.scalar(n.real("alpha", 1.0), x)
    bent = alpha * f.expm1(x / alpha)
    return f.where(x > 0, x, bent)


@onnx_op("ThresholdedRelu")
def thresholded_relu(n: Node, x: Value) -> Value:
    above = x > n.real("alpha", 1.0)
    return f.where(above, x, 0)


@onnx_op("Shrink", since=9)
def shrink(n: Node, x: Value) -> Value:
    """x + bias below -lambd, x - bias above lambd, and 0 between them."""
    bias, limit = n.real("bias", 0.0), n.real("lambd", 0.5)
    if not t.is_float(x.element):
        return _shrunk_integers(n, x, bias, limit)
    by, zero = n.scalar(bias, x), n.scalar(0, x)
    low, high = (n(op, x, n.scalar(end, x)) for op, end in ((LessOp, -limit), (GreaterOp, limit)))
    return f.where(low, x + by, f.where(high, x - by, zero))


def _shrunk_integers(n: Node, x: Value, bias: float, limit: float) -> Value:
    """Shrink of integers: sums of real numbers, truncated. x > lambd is x > floor(lambd).

    ONNX's own definition rounds the attributes to integers first, which is a different function,
    and negates unsigned numbers. This is what onnxruntime computes.
    """
    if not (isfinite(bias) and isfinite(limit)):
        raise Fault(f"bias {bias} and lambd {limit} must be finite, as {x.type.short} is")
    end, zero = floor(limit), n.scalar(0, x)
    low, high = _below(n, x, -end), ~_below(n, x, end + 1)
    return f.where(low, _moved(n, x, bias), f.where(high, _moved(n, x, -bias), zero))


def _moved(n: Node, x: Value, by: float) -> Value:
    """Integers plus a real number, rounded toward zero. They wrap around beyond the type."""
    whole = floor(by)
    moved = x + _wrapped(n, whole, x)
    if whole == by:
        return moved
    return f.where(_below(n, x, -whole), x + _wrapped(n, whole + 1, x), moved)


def _wrapped(n: Node, number: int, like: Value) -> Value:
    dtype = like.type.dtype
    held = np.array(number % 2**(8 * dtype.itemsize), np.uint64)
    return n.constant(held.astype(dtype))


def _below(n: Node, x: Value, end: int) -> Value:
    """x < end, where the end may lie outside of the element type."""
    limits = np.iinfo(x.type.dtype)
    if limits.min <= end <= limits.max:
        return x < end
    return n.constant(np.array(end > limits.max))


@onnx_op("Softsign")
def softsign(n: Node, x: Value) -> Value:
    """x / (1 + |x|)."""
    return x / (1 + abs(x))


@onnx_op("PRelu", since=7)
def p_relu(n: Node, x: Value, slope: Value) -> Value:
    return f.where(x < 0, slope * x, x)


@onnx_op("Swish")
def swish(n: Node, x: Value) -> Value:
    """x * sigmoid(alpha * x)."""
    alpha = n.real("alpha", 1.0)
    if alpha == 1.0:
        return f.silu(x)
    return x * f.sigmoid(alpha * x)


@onnx_op("Mish")
def mish(n: Node, x: Value) -> Value:
    """x * tanh(softplus(x))."""
    return x * f.tanh(f.softplus(x))


# ---------------------------------------------------------------------- clip
@onnx_op("Clip")
def clip_by_attributes(n: Node, x: Value) -> Value:
    bounds = [n.scalar(n.real(name), x) if n.has(name) else None for name in ("min", "max")]
    return clip(n, x, *bounds)


@onnx_op("Clip", since=11)
def clip(n: Node, x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    """A missing bound is the largest or lowest finite number, so infinities are clipped as well."""
    if t.is_float(x.element):
        most = t.largest(x.element)
        low = n.scalar(-most, x) if low is None else low
        high = n.scalar(most, x) if high is None else high
    limits = [v.reshape(()) for v in (low, high) if v is not None]
    if not limits:
        return x
    return n(ClipOp, x, *limits, has_min=low is not None, has_max=high is not None)


# ---------------------------------------------------------------------- softmax
@onnx_op("Softmax", since=13)
def softmax(n: Node, x: Value) -> Value:
    return f.softmax(x, axis=n.axis(n.integer("axis", -1), x.rank))


@onnx_op("LogSoftmax", since=13)
def log_softmax(n: Node, x: Value) -> Value:
    return n(LogSoftmaxOp, x, axis=n.axis(n.integer("axis", -1), x.rank))


@onnx_op("Softmax")
def softmax_of_matrix(n: Node, x: Value) -> Value:
    return _of_matrix(n, x, lambda y: f.softmax(y, axis=y.rank - 1))


@onnx_op("LogSoftmax")
def log_softmax_of_matrix(n: Node, x: Value) -> Value:
    return _of_matrix(n, x, lambda y: n(LogSoftmaxOp, y, axis=y.rank - 1))


def _of_matrix(n: Node, x: Value, function: Callable[[Value], Value]) -> Value:
    """The function over the dims from `axis` on, joined to one, as before opset 13."""
    axis = n.axis(n.integer("axis", 1), x.rank)
    rows = x.reshape([*x.shape[:axis], product(x.shape[axis:])])
    return function(rows).reshape(x.shape)
