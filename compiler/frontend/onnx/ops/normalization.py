"""Batch, layer, RMS, instance, group, Lp and local response normalization."""

from __future__ import annotations

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.group_norm import group_normalized
from compiler.frontend.onnx.node import Node, rounded_once
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.stretching import one_way
from compiler.frontend.values import Value
from dialects.graph.normalization import BatchNormOp, LayerNormOp
from dialects.graph.pooling import AvgPoolOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.size_products import product


@onnx_op("BatchNormalization")
def batch_normalization(
    n: Node, x: Value, scale: Value, bias: Value, mean: Value, variance: Value
) -> Value | list[Value]:
    if n.flag("training_mode"):
        return _training(n, x, scale, bias, mean, variance)
    if not n.flag("spatial", True):
        raise Fault("spatial = 0 (statistics per element) is not supported")
    parameters = [p.cast(x.element) for p in (scale, bias, mean, variance)]
    return n(BatchNormOp, x, *parameters, epsilon=n.real("epsilon", 1e-5))


def _training(
    n: Node, x: Value, scale: Value, bias: Value, mean: Value, variance: Value
) -> list[Value]:
    """Batch normalization by the statistics of x itself, which also update the running ones."""
    axes = [k for k in range(x.rank) if k != 1]
    own = f.reduce_mean(x.cast(mean.element), axes=axes, keepdims=True)
    centered = x.cast(mean.element) - own
    spread = f.reduce_mean(centered * centered, axes=axes, keepdims=True)
    own, spread = (v.reshape(mean.shape) for v in (own, spread))
    parameters = [p.cast(x.element) for p in (scale, bias, own, spread)]
    y = n(BatchNormOp, x, *parameters, epsilon=n.real("epsilon", 1e-5))
    keep = n.real("momentum", 0.9)
    running = [old * keep + new * (1 - keep) for old, new in ((mean, own), (variance, spread))]
    return [y, *running]


@onnx_op("LayerNormalization")
def layer_normalization(
    n: Node, x: Value, scale: Value, bias: Value | None = None
) -> Value | list[Value]:
    axis = n.axis(n.integer("axis", -1), x.rank)
    y = _layer_normalized(n, x, axis, scale, bias)
    if not (n.wants(1) or n.wants(2)):
        return y
    return [y, *layer_statistics(x, axis, n.real("epsilon", 1e-5))]


def _layer_normalized(n: Node, x: Value, axis: int, scale: Value, bias: Value | None) -> Value:
    """The parameters broadcast to x, also along dims before the axis."""
    given = [one_way(n.build, p, x.shape) for p in (scale, bias) if p is not None]
    epsilon = n.real("epsilon", 1e-5)
    if all(p.rank <= x.rank - axis for p in given):
        return n(LayerNormOp, x, *given, axis=axis, epsilon=epsilon)
    wide = x if t.byte_width(x.element) > 2 else x.cast(t.f32)
    y = n(LayerNormOp, wide, n.scalar(1, wide), axis=axis, epsilon=epsilon)
    y = y * given[0].cast(y.element)
    return (y + given[1].cast(y.element) if bias is not None else y).cast(x.element)


def layer_statistics(x: Value, axis: int, epsilon: float) -> list[Value]:
    """The mean and 1 / the standard deviation over the axes from `axis` on, in f32 at least."""
    wide = x if t.byte_width(x.element) > 2 else x.cast(t.f32)
    axes = list(range(axis, x.rank))
    mean = f.reduce_mean(wide, axes=axes, keepdims=True)
    centered = wide - mean
    variance = f.reduce_mean(centered * centered, axes=axes, keepdims=True)
    root = f.sqrt(variance + epsilon)
    return [mean, f.reciprocal(root)]


@onnx_op("RMSNormalization")
def rms_normalization(n: Node, x: Value, scale: Value) -> Value:
    """x / sqrt(mean(x*x) + epsilon) * scale, the statistics in f32 at least."""
    axis = n.axis(n.integer("axis", -1), x.rank)
    wide = x if t.byte_width(x.element) > 2 else x.cast(t.f32)
    square = f.reduce_mean(wide * wide, axes=list(range(axis, x.rank)), keepdims=True)
    root = f.sqrt(square + n.real("epsilon", 1e-5))
    normal = (wide * f.reciprocal(root)).cast(scale.element)
    return normal * scale


@onnx_op("InstanceNormalization")
@rounded_once
def instance_normalization(n: Node, x: Value, scale: Value, bias: Value) -> Value:
    """Normalize each channel of each item over its spatial dims."""
    return _grouped(n, x, x.shape[1], scale, bias)


@onnx_op("GroupNormalization", since=21)
@rounded_once
def group_normalization(n: Node, x: Value, scale: Value, bias: Value) -> Value:
    """Normalize each group of channels of each item. Scale and bias are per channel."""
    return _grouped(n, x, _groups(n), scale, bias)


@onnx_op("GroupNormalization", since=18)
@rounded_once
def group_normalization_per_group(n: Node, x: Value, scale: Value, bias: Value) -> Value:
    """The same as since opset 21, but with scale and bias per group."""
    groups, channels = _groups(n), x.shape[1]
    wide = [Expr.of(groups), channels // groups]
    spread = [p.reshape([groups, 1]).broadcast(wide).reshape([channels]) for p in (scale, bias)]
    return _grouped(n, x, groups, *spread)


def _check_channels(x: Value) -> None:
    if x.rank < 3:
        raise Fault(f"{x.type.short} must have at least 3 dims: batch, channels, spatial dims")


def _groups(n: Node) -> int:
    groups = n.integer("num_groups")
    if groups < 1:
        raise Fault(f"num_groups is {groups}; it must be at least 1")
    return groups


def _grouped(n: Node, x: Value, groups: Size, scale: Value, bias: Value) -> Value:
    _check_channels(x)
    epsilon = n.real("epsilon", 1e-5)
    return group_normalized(x, groups, scale, bias, epsilon, x.element).result


@onnx_op("LpNormalization")
@rounded_once
def lp_normalization(n: Node, x: Value) -> Value:
    """x / norm along an axis; 0 where the norm is 0."""
    axes = [n.axis(n.integer("axis", -1), x.rank)]
    order = n.integer("p", 2)
    if order not in (1, 2):
        raise Fault(f"its norm has the order p = {order}, which must be 1 or 2")
    if order == 1:
        norm = f.reduce_sum(abs(x), axes=axes, keepdims=True)
    else:
        norm = f.sqrt(f.reduce_sum(x * x, axes=axes, keepdims=True))
    tiny = n.scalar(1e-37 if t.byte_width(x.element) > 2 else 1e-7, x)
    return x / f.maximum(norm, tiny)


@onnx_op("LRN")
@rounded_once
def local_response_normalization(n: Node, x: Value) -> Value:
    """x / (bias + alpha * m) ** beta, where m is the mean square of `size` channels around each.

    The mean is a pool over [n, 1, c, rest] with a window of [size, 1]; pads count as zeros.
    """
    _check_channels(x)
    size = n.integer("size")
    square = x * x
    flat = square.reshape([x.shape[0], 1, x.shape[1], product(x.shape[2:])])
    mean = n(AvgPoolOp, flat, kernel=[size, 1], strides=[1, 1], dilations=[1, 1],
             pads=[(size - 1) // 2, 0, size // 2, 0], count_include_pad=True)
    scaled = n.real("alpha", 1e-4) * mean.reshape(x.shape)
    base = n.real("bias", 1.0) + scaled
    return x / base ** n.real("beta", 0.75)
