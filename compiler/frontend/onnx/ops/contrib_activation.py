"""com.microsoft: activation functions by themselves, with a bias, or after another operator."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.activation import clip, softsign
from compiler.frontend.onnx.ops.contrib import SOME, contrib_op, share, total
from compiler.frontend.values import Value
from dialects.graph.activation import (
    EluOp,
    GeluOp,
    HardSigmoidOp,
    LeakyReluOp,
    ReluOp,
    SoftplusOp,
)
from dialects.graph.base import GraphOp
from dialects.graph.unary import SigmoidOp, TanhOp
from dialects.symbolic.size_products import product


@contrib_op("Gelu")
def gelu(n: Node, x: Value) -> Value:
    return n(GeluOp, x, approximate="none")


@contrib_op("BiasGelu")
def bias_gelu(n: Node, x: Value, bias: Value) -> Value:
    return gelu(n, total(x, bias))


@contrib_op("FastGelu")
def fast_gelu(n: Node, x: Value, bias: Value | None = None) -> Value:
    return n(GeluOp, total(x, bias), approximate="tanh")


@contrib_op("QuickGelu")
def quick_gelu(n: Node, x: Value) -> Value:
    """x * sigmoid(alpha * x)."""
    return x * f.sigmoid(n.real("alpha", 1.702) * x)


@contrib_op("ScaledSiLU")
def scaled_silu(n: Node, x: Value, scale: Value | None = None) -> Value:
    """z * sigmoid(z), where z = scale * x."""
    factor = n.scalar(n.real("alpha", 1.0), x) if scale is None else scale.cast(x.element)
    scaled = factor.reshape(()) * x
    return scaled * f.sigmoid(scaled)


@contrib_op("BiasSplitGelu", ranks=(SOME, 1))
def bias_split_gelu(n: Node, x: Value, bias: Value) -> Value:
    """left * gelu(right), where left and right are the halves of the last dim of x + bias."""
    both, half = total(x, bias), share(n, bias.shape[0], 2, "halves")
    left, right = (both.part(x.rank - 1, k * half, half) for k in (0, 1))
    return left * gelu(n, right)


@contrib_op("BiasAdd")
def bias_add(n: Node, x: Value, bias: Value, skip: Value) -> Value:
    return total(x, bias, skip)


@contrib_op("BiasSoftmax")
def bias_softmax(n: Node, x: Value, bias: Value) -> Value:
    """The softmax of x + bias over the dims from `axis` on.

    The bias has fewer dims than x. The missing ones are those directly before the axis
    (`is_inner_broadcast`), or the first ones.
    """
    axis = n.axis(n.integer("axis", 1), x.rank)
    if n.flag("is_inner_broadcast") and bias.rank < x.rank:
        outer = bias.rank - (x.rank - axis)
        if outer < 0:
            raise Fault(f"{bias.type.short} does not fit {x.type.short} from axis {axis} on")
        ones = [1] * (x.rank - bias.rank)
        bias = bias.reshape([*bias.shape[:outer], *ones, *bias.shape[outer:]])
    scores = total(x, bias)
    rows = scores.reshape([*x.shape[:axis], product(x.shape[axis:])])
    return f.softmax(rows, axis=axis).reshape(x.shape)


# ---------------------------------------------------------------------- after another operator
_PLAIN: dict[str, type[GraphOp]] = {
    "Relu": ReluOp, "Sigmoid": SigmoidOp, "Tanh": TanhOp, "Softplus": SoftplusOp,
}
_WITH_ALPHA: dict[str, tuple[type[GraphOp], float]] = {
    "LeakyRelu": (LeakyReluOp, 0.01), "Elu": (EluOp, 1.0),
}


def activated(n: Node, x: Value, name: str, parameters: Sequence[float]) -> Value:
    """Apply the activation function of that name. An empty name stands for x itself.

    `parameters` are alpha and beta, or min and max. Missing ones have ONNX's defaults.
    """
    def parameter(index: int, default: float) -> float:
        return parameters[index] if index < len(parameters) else default

    if not name:
        return x
    if name in _PLAIN:
        return n(_PLAIN[name], x)
    if name in _WITH_ALPHA:
        op, default = _WITH_ALPHA[name]
        return n(op, x, alpha=parameter(0, default))
    match name:
        case "HardSigmoid":
            return n(HardSigmoidOp, x, alpha=parameter(0, 0.2), beta=parameter(1, 0.5))
        case "Clip":
            limits = [n.scalar(p, x) for p in parameters[:2]]
            return clip(n, x, *limits)
        case "Softsign":
            return softsign(n, x)
        case _:
            raise Fault(f"its activation '{name}' is not supported")
