"""com.microsoft: convolutions with an activation, and convolutions with channels last."""

from __future__ import annotations

from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.contrib import contrib_op, total
from compiler.frontend.onnx.ops.contrib_activation import activated
from compiler.frontend.onnx.ops.convolution import conv, max_pool
from compiler.frontend.onnx.ops.quantization import qlinear_conv
from compiler.frontend.values import Value


def channels_first(x: Value) -> Value:
    """[n, ..., c] -> [n, c, ...]."""
    return x.transpose([0, x.rank - 1, *range(1, x.rank - 1)])


def channels_last(x: Value) -> Value:
    """[n, c, ...] -> [n, ..., c]."""
    return x.transpose([0, *range(2, x.rank), 1])


@contrib_op("FusedConv")
def fused_conv(
    n: Node, x: Value, w: Value, b: Value | None = None, z: Value | None = None
) -> Value:
    """The activation of conv(x, w) + b + z."""
    added = total(conv(n, x, w, b), z)
    return activated(n, added, n.text("activation"), n.floats("activation_params"))


@contrib_op("NhwcConv", "NhwcFusedConv")
def nhwc_conv(
    n: Node, x: Value, w: Value, b: Value | None = None, z: Value | None = None
) -> Value:
    """x, z and the result are [n, ..., c]. The filters w have the same layout as those of Conv."""
    residual = None if z is None else channels_first(z)
    return channels_last(fused_conv(n, channels_first(x), w, b, residual))


@contrib_op("NhwcMaxPool")
def nhwc_max_pool(n: Node, x: Value) -> Value:
    [y] = max_pool(n, channels_first(x))
    return channels_last(y)


@contrib_op("QLinearConv")
def contrib_qlinear_conv(n: Node, x: Value, *others: Value | None) -> Value:
    """The same as QLinearConv. With `channels_last`, x and the result are [n, ..., c]."""
    if not n.flag("channels_last"):
        return qlinear_conv(n, x, *others)
    return channels_last(qlinear_conv(n, channels_first(x), *others))
