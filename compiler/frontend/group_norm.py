"""Group normalization, as the operators of ONNX and PyTorch share it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from xdsl.ir import Attribute

from compiler.frontend import formulas as f
from compiler.frontend.values import Value, combined
from dialects.graph.elementwise import MaxOp
from dialects.strata import types as t
from dialects.symbolic.expr import Size
from dialects.symbolic.size_products import product

SHORT_GROUP = 1 << 14
"""Groups of so many elements are read as one row, if they lie in one: one kernel fewer than by
channel. Longer rows would be read twice."""


class Normalized(NamedTuple):
    """x * scale + shift [n, c, ...], and the statistics behind it, [n, groups]."""

    result: Value
    mean: Value
    factor: Value
    """1 / deviation."""


def group_normalized(
    x: Value, groups: Size, weight: Value | None, bias: Value | None, epsilon: float,
    element: Attribute, *, channels_last: bool = False,
) -> Normalized:
    """Normalize each group of channels of each item of x [n, c, ...], in arithmetic of `element`.

    `weight` and `bias`: [c]. `channels_last`: x probably lies with its channels last. x itself is
    never taken apart into its groups, only what belongs to its channels is: so what follows is
    computed where x is, in whatever order its dims lie.
    """
    batch, channels = x.shape[0], x.shape[1] // groups
    parts = [batch, groups, channels]
    flat = [batch, x.shape[1], *[1] * (x.rank - 2)]
    weight, bias = (None if p is None else p.cast(element).reshape([groups, channels])
                    for p in (weight, bias))
    count = channels * product(x.shape[2:])
    if not channels_last and count.constant is not None and count.constant <= SHORT_GROUP:
        mean, spread = moments(x.reshape([batch, groups, count]).cast(element), [2])
        factor = f.reciprocal(f.sqrt(spread + epsilon))
        y = x.cast(element)
        for value, apply in ((mean, Value.__sub__), (factor, Value.__mul__),
                             (weight, Value.__mul__), (bias, Value.__add__)):
            y = y if value is None else apply(y, value.broadcast(parts).reshape(flat))
    else:
        mean, spread = _of_channels(x.cast(element), parts, channels_last)
        factor = f.reciprocal(f.sqrt(spread + epsilon))
        scale = (factor if weight is None else factor * weight).broadcast(parts)
        shift = mean * scale * -1.0 if bias is None else bias - mean * scale
        y = x.cast(element) * scale.reshape(flat) + shift.reshape(flat)
    return Normalized(y, *(v.reshape([batch, groups]) for v in (mean, factor)))


def _of_channels(x: Value, parts: list[Size], channels_last: bool) -> tuple[Value, Value]:
    """The mean and variance of groups, [n, groups, 1], of those of their channels, so that x is
    read once.

    With channels last, a channel's elements are too far apart to be kept, and f64 has the digits
    that the difference of the mean of squares and the square of the mean loses. Otherwise the
    variances are combined (Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm
    for Computing Sample Variances", 1979).
    """
    axes = range(2, x.rank)
    if not channels_last or x.element == t.f64:
        means, spreads = (v.reshape(parts) for v in moments(x, axes))
        mean = f.reduce_mean(means, [2], keepdims=True)
        apart = means - mean
        return mean, f.reduce_mean(spreads + apart * apart, [2], keepdims=True)
    wide = x.cast(t.f64)
    mean, squares = (
        f.reduce_mean(f.reduce_mean(v, list(axes)).reshape(parts), [2], keepdims=True)
        for v in (wide, wide * wide))
    spread = combined(MaxOp, squares - mean * mean, 0.0)
    return mean.cast(x.element), spread.cast(x.element)


def moments(x: Value, axes: Iterable[int]) -> tuple[Value, Value]:
    """The mean and the variance over some dims, which are kept as 1."""
    mean = f.reduce_mean(x, list(axes), keepdims=True)
    return mean, f.reduce_mean((x - mean) * (x - mean), list(axes), keepdims=True)
