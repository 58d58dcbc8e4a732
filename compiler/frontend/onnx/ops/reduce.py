"""Reductions over axes. The axes are an attribute, and an input since opset 13 or 18."""

from __future__ import annotations

from compiler.frontend import formulas as f
from compiler.frontend.onnx.node import Node, rounded_once
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value
from dialects.graph.base import GraphOp
from dialects.graph.reduce import (
    ReduceMaxOp,
    ReduceMeanOp,
    ReduceMinOp,
    ReduceProdOp,
    ReduceSumOp,
)
from dialects.strata import types as t

_PLAIN: dict[str, type[GraphOp]] = {
    "ReduceSum": ReduceSumOp, "ReduceMean": ReduceMeanOp, "ReduceMax": ReduceMaxOp,
    "ReduceMin": ReduceMinOp, "ReduceProd": ReduceProdOp,
}


def _reduce(
    n: Node, op: type[GraphOp], x: Value, axes: Value | None, keepdims: bool | None = None
) -> Value:
    """The reduction over the node's axes.

    Without axes, it is over all of them, or x itself if `noop_with_empty_axes` is set.
    """
    given = n.axes(axes)
    if not given and n.flag("noop_with_empty_axes"):
        return x
    which = sorted({n.axis(a, x.rank) for a in given}) if given else list(range(x.rank))
    keep = n.flag("keepdims", True) if keepdims is None else keepdims
    return n(op, x, axes=which, keepdims=keep) if which else x


@onnx_op(*_PLAIN)
def plain(n: Node, x: Value, axes: Value | None = None) -> Value:
    return _reduce(n, _PLAIN[n.op_type], x, axes)


@onnx_op("ReduceL1")
def l1(n: Node, x: Value, axes: Value | None = None) -> Value:
    return _reduce(n, ReduceSumOp, abs(x), axes)


@onnx_op("ReduceL2")
@rounded_once
def l2(n: Node, x: Value, axes: Value | None = None) -> Value:
    """The square root is computed in floats, even for integers."""
    total = _reduce(n, ReduceSumOp, x * x, axes)
    wide = total if t.is_float(x.element) else total.cast(t.f64)
    return f.sqrt(wide).cast(x.element)


@onnx_op("ReduceSumSquare")
@rounded_once
def sum_square(n: Node, x: Value, axes: Value | None = None) -> Value:
    return _reduce(n, ReduceSumOp, x * x, axes)


@onnx_op("ReduceLogSum")
@rounded_once
def log_sum(n: Node, x: Value, axes: Value | None = None) -> Value:
    return f.log(_reduce(n, ReduceSumOp, x, axes))


@onnx_op("ReduceLogSumExp")
@rounded_once
def log_sum_exp(n: Node, x: Value, axes: Value | None = None) -> Value:
    """log(sum(exp(x - m))) + m, where m is the largest element, or 0 if that is infinite."""
    top = _reduce(n, ReduceMaxOp, x, axes, keepdims=True)
    top = f.where(f.is_inf(top), 0, top)
    total = _reduce(n, ReduceSumOp, f.exp(x - top), axes)
    return f.log(total) + top.reshape(total.shape)
