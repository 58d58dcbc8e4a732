"""Layer, group, RMS, batch, instance and weight normalization."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.group_norm import Normalized, group_normalized, moments
from compiler.frontend.node import fixed
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.torch.ops.elementwise import HALVES
from compiler.frontend.values import Value
from dialects.graph.elementwise import MaxOp
from dialects.graph.normalization import BatchNormOp, LayerNormOp
from dialects.strata import types as t
from dialects.symbolic.expr import Size

_EPSILON: dict[Attribute, float] = {
    t.f16: 2.0**-10, t.bf16: 2.0**-7, t.f32: 2.0**-23, t.f64: 2.0**-52,
}
"""The default epsilon of rms_norm: the distance from 1 to the next larger number."""


def _affine(x: Value, weight: Value | None, bias: Value | None) -> Value:
    """x * weight + bias, where either may be missing."""
    x = x if weight is None else x * weight.cast(x.element)
    return x if bias is None else x + bias.cast(x.element)


# ---------------------------------------------------------------------- layer and group
@aten_op("aten.layer_norm.default", ignored=("cudnn_enable",))
def layer_norm(
    n: Node, x: Value, sizes: Sequence[Size], weight: Value | None, bias: Value | None,
    epsilon: float,
) -> Value:
    scale = n.scalar(1.0, x.element) if weight is None else weight.cast(x.element)
    shift = [] if bias is None else [bias.cast(x.element)]
    return n(LayerNormOp, x, scale, *shift, axis=x.rank - len(sizes), epsilon=float(epsilon))


@aten_op("aten.native_layer_norm.default")
def native_layer_norm(
    n: Node, x: Value, sizes: Sequence[Size], weight: Value | None, bias: Value | None,
    epsilon: float,
) -> list[Value]:
    """(normalized, mean, 1 / deviation), of which graphs with gradients use all."""
    if not n.used - {0}:
        return [layer_norm(n, x, sizes, weight, bias, epsilon)]
    wide = _wide(x)
    center, _, factor = _moments(wide, list(range(x.rank - len(sizes), x.rank)), epsilon)
    return [_affine((wide - center) * factor, weight, bias), center, factor]


def _wide(x: Value) -> Value:
    return x.cast(t.f32) if x.element in HALVES else x


def _moments(x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value, Value]:
    """The mean, variance and 1 / deviation over some dims, which are kept as 1."""
    center, spread = moments(x, axes)
    return center, spread, f.reciprocal(f.sqrt(spread + float(epsilon)))


def _exact_moments(
    n: Node, x: Value, axes: Sequence[int], epsilon: float
) -> tuple[Value, Value, Value]:
    """The same in f64. Of f32, both sums are made of one reading of x: f64 holds every square, and
    has the digits that the difference of the mean of squares and the square of the mean loses."""
    if x.element == t.f64:
        return _moments(x, axes, epsilon)
    wide = x.cast(t.f64)
    center = f.reduce_mean(wide, axes=axes, keepdims=True)
    squares = f.reduce_mean(wide * wide, axes=axes, keepdims=True)
    spread = n(MaxOp, squares - center * center, n.scalar(0.0, t.f64))
    return center, spread, f.reciprocal(f.sqrt(spread + float(epsilon)))


@aten_op("aten.group_norm.default", ignored=("cudnn_enabled",))
def group_norm(
    n: Node, x: Value, groups: int, weight: Value | None, bias: Value | None, epsilon: float
) -> Value:
    """Normalize each group of channels of each item."""
    return _group_norm(n, x, groups, weight, bias, epsilon).result.cast(x.element)


@aten_op("aten.native_group_norm.default")
def native_group_norm(
    n: Node, x: Value, weight: Value | None, bias: Value | None, batch: Size, channels: Size,
    area: Size, groups: int, epsilon: float,
) -> list[Value]:
    """(normalized, mean, 1 / deviation), the last two as [batch, groups]."""
    if not n.used - {0}:
        return [group_norm(n, x, groups, weight, bias, epsilon)]
    return list(_group_norm(n, x, groups, weight, bias, epsilon))


def _group_norm(
    n: Node, x: Value, groups: int, weight: Value | None, bias: Value | None, epsilon: float
) -> Normalized:
    """The normalization in f32 for halves."""
    kind = t.f32 if x.element in HALVES else x.element
    return group_normalized(
        x, groups, weight, bias, float(epsilon), kind, channels_last=n.channels_last)


@aten_op("aten.rms_norm.default", "aten._fused_rms_norm.default")
def rms_norm(
    n: Node, x: Value, sizes: Sequence[Size], weight: Value | None, epsilon: float | None
) -> Value | list[Value]:
    """x / sqrt(mean(x^2) + epsilon) * weight, computed in f32 for halves."""
    wide = _wide(x)
    axes = list(range(x.rank - len(sizes), x.rank))
    mean = f.reduce_mean(wide * wide, axes=axes, keepdims=True)
    limit = _EPSILON[x.element] if epsilon is None else float(epsilon)
    factor = f.reciprocal(f.sqrt(mean + limit))
    result = _affine(wide * factor, weight, None)
    return [result] if "_fused" in n.op else result


# ---------------------------------------------------------------------- batch and instance
@aten_op("aten._native_batch_norm_legit_no_training.default")
def native_batch_norm(
    n: Node, x: Value, weight: Value | None, bias: Value | None, mean: Value, variance: Value,
    momentum: float, epsilon: float,
) -> list[Value]:
    """(normalized, mean, 1 / deviation), the last two without elements on the CPU."""
    made = [_batch_norm(n, x, weight, bias, mean, variance, epsilon)]
    if n.used - {0}:
        statistics = _statistics((mean, _wide(variance)), False, epsilon)
        kept = [r is not None and r.shape == mean.shape for r in n.results[1:3]]
        made += [v if full else n.scalar(0.0, v.element).broadcast([0])
                 for v, full in zip(statistics, kept, strict=True)]
    return made


@aten_op("aten.batch_norm.default")
def batch_norm(
    n: Node, x: Value, weight: Value | None, bias: Value | None, mean: Value | None,
    variance: Value | None, training: bool, momentum: float, epsilon: float,
) -> Value:
    if mean is None or variance is None:
        return _by_batch(n, x, weight, bias, epsilon)[0][0]
    if training:
        raise Fault("it is in training mode, in which it updates its running statistics",
                    "export the model with model.eval()")
    return _batch_norm(n, x, weight, bias, mean, variance, epsilon)


def _batch_norm(
    n: Node, x: Value, weight: Value | None, bias: Value | None, mean: Value, variance: Value,
    epsilon: float,
) -> Value:
    def parameter(given: Value | None, default: float) -> Value:
        if given is None:
            return n.scalar(default, wide.element).broadcast(mean.shape)
        return given.cast(wide.element)

    wide = _wide(x)
    return n(BatchNormOp, wide, parameter(weight, 1.0), parameter(bias, 0.0),
             parameter(mean, 0.0), parameter(variance, 1.0), epsilon=float(epsilon))


@aten_op("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_running_statistics(
    n: Node, x: Value, weight: Value | None, bias: Value | None, training: bool, momentum: float,
    epsilon: float,
) -> list[Value]:
    """(normalized, mean, 1 / deviation), in f32 for halves.

    Layers without running statistics have those of the batch in evaluation, too, where `training`
    is false.
    """
    return _by_batch(n, x, weight, bias, epsilon)[0]


@aten_op("aten._native_batch_norm_legit_functional.default")
def batch_norm_in_training(
    n: Node, x: Value, weight: Value | None, bias: Value | None, mean: Value, variance: Value,
    training: bool, momentum: float, epsilon: float,
) -> list[Value]:
    """(normalized, mean, 1 / deviation, new running mean, new running variance), in f32 for halves.

    The running variance is that of a sample, with count - 1. Without training, the running ones
    are used and stay.
    """
    if not training:
        made = native_batch_norm(n, x, weight, bias, mean, variance, momentum, epsilon)
        return [*made, *[made[0]] * (3 - len(made)), mean, variance]
    made, spread = _by_batch(n, x, weight, bias, epsilon)
    count = x.type.count // x.shape[1]
    new = [v * momentum + old.cast(v.element) * (1 - momentum)
           for v, old in ((made[1], mean), (spread * count / (count - 1), variance))]
    return [*made, *new]


def _by_batch(
    n: Node, x: Value, weight: Value | None, bias: Value | None, epsilon: float
) -> tuple[list[Value], Value]:
    """(normalized, mean, 1 / deviation) and the variance, by the statistics of the batch itself.

    Sums are f64, as in PyTorch: an error in a mean is the same in a whole channel, and later sums
    do not average it out.
    """
    wide, axes = _wide(x), [0, *range(2, x.rank)]
    center, spread, factor = _exact_moments(n, wide, axes, epsilon)
    parameters = [None if p is None else n.channelwise(p, x.rank) for p in (weight, bias)]
    mean, variance, each = (v.reshape([x.shape[1]]) for v in (center, spread, factor))
    center, factor = center.cast(wide.element), factor.cast(wide.element)
    return [_affine((wide - center) * factor, *parameters), mean.cast(wide.element),
            each.cast(wide.element)], variance.cast(wide.element)


@aten_op("aten.native_batch_norm_backward.default")
def batch_norm_gradients(
    n: Node, gradient: Value, x: Value, weight: Value | None, mean: Value | None,
    variance: Value | None, batch_mean: Value | None, batch_factor: Value | None, training: bool,
    epsilon: float, wanted: Sequence[bool],
) -> list[Value]:
    """The gradients of x, weight and bias, in f32 for halves, with sums in f64 as in PyTorch.

    `batch_mean`, `batch_factor`: the mean and 1 / deviation of the batch, if it was in training.
    """
    gradient, x, axes = _wide(gradient), _wide(x), [0, *range(2, x.rank)]
    center, factor = (n.channelwise(v.cast(x.element), x.rank) for v in _statistics(
        (batch_mean, batch_factor) if training else (mean, variance), training, epsilon))
    total, product = (f.reduce_sum(v.cast(t.f64), axes=axes, keepdims=True)
                      for v in (gradient, gradient * (x - center)))
    slope = factor if weight is None else factor * n.channelwise(weight.cast(x.element), x.rank)
    passed, count = gradient, x.type.count // x.shape[1]
    if training:
        means = [(v / n.scalar(count, t.f64)).cast(x.element) for v in (total, product)]
        passed = gradient - means[0] - (x - center) * (factor * factor * means[1])
    own = [v.cast(x.element).reshape([x.shape[1]]) for v in (product * factor.cast(t.f64), total)]
    return [passed * slope, *own]


def _statistics(
    given: Sequence[Value | None], training: bool, epsilon: float
) -> tuple[Value, Value]:
    """The mean and 1 / deviation of a batch, or of running statistics."""
    center, second = given
    if center is None or second is None:
        raise Fault("it lacks statistics")
    return center, second if training else f.reciprocal(f.sqrt(second + epsilon))


@aten_op("aten.instance_norm.default")
def instance_norm(
    n: Node, x: Value, weight: Value | None, bias: Value | None, mean: Value | None,
    variance: Value | None, use_input: bool, momentum: float, epsilon: float,
) -> Value:
    if not use_input and mean is not None and variance is not None:
        return _batch_norm(n, x, weight, bias, mean, variance, epsilon)
    return group_norm(n, x, fixed(x.shape[1], "channels"), weight, bias, epsilon)


# ---------------------------------------------------------------------- weights
@aten_op("aten._weight_norm_interface.default", "aten._weight_norm.default")
def weight_norm(n: Node, direction: Value, size: Value, axis: int) -> Value | list[Value]:
    """direction * size / norm, where norm is the 2-norm of direction over all dims but one.

    For an axis of -1, as which PyTorch passes `dim=None`, it is the norm over all dims.
    """
    kept = None if axis == -1 else n.axis(axis, direction.rank)
    axes = [k for k in range(direction.rank) if k != kept]
    total = f.reduce_sum(direction * direction, axes=axes, keepdims=True)
    norm = f.sqrt(total)
    result = direction * (size / norm)
    return [result, norm] if "_interface" in n.op else result
