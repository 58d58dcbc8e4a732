"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.node import fixed
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.torch.ops.ordering import position
from compiler.frontend.values import Value
from dialects.graph.convolution import ConvOp, ConvTransposeOp
from dialects.graph.ordering import ArgMaxOp
from dialects.graph.pooling import AvgPoolOp, MaxPoolIndicesOp, MaxPoolOp
from dialects.graph.reduce import ReduceMaxOp, ReduceMeanOp
from dialects.graph.shape import PadOp
from dialects.graph.unary import IsnanOp
from dialects.graph.window import Window
from dialects.strata.types import Array, f64, i32, i64, is_float
from dialects.symbolic.expr import Size
from dialects.symbolic.size_products import product


def spread(n: Node, values: Sequence[Size], rank: int, what: str) -> list[int]:
    """One integer per spatial dim. A single integer applies to all of them."""
    found = n.integers(values, what)
    return found * rank if len(found) == 1 else found


@aten_op("aten.convolution.default")
def convolution(
    n: Node, x: Value, weight: Value, bias: Value | None, stride: Sequence[Size],
    padding: Sequence[Size], dilation: Sequence[Size], transposed: bool,
    output_padding: Sequence[Size], groups: int,
) -> Value:
    rank = weight.rank - 2
    strides, pads, dilations = (spread(n, v, rank, what) for v, what in (
        (stride, "strides"), (padding, "pads"), (dilation, "dilations")))
    operands = [v for v in (x, weight, bias) if v is not None]
    if transposed:
        extra = spread(n, output_padding, rank, "output padding")
        return n(ConvTransposeOp, *operands, strides=strides, dilations=dilations,
                 pads=pads * 2, output_padding=extra, group=groups)
    kernel = n.integers(weight.shape[2:], "filter sizes")
    n.whole_windows(x, Window(*map(tuple, (kernel, strides, dilations, pads, pads))))
    return n(ConvOp, *operands, strides=strides, dilations=dilations, pads=pads * 2, group=groups)


@aten_op(*(f"aten.conv{rank}d.default" for rank in (1, 2, 3)))
def plain_convolution(
    n: Node, x: Value, weight: Value, bias: Value | None, stride: Sequence[Size],
    padding: Sequence[Size], dilation: Sequence[Size], groups: int,
) -> Value:
    rank = weight.rank - 2
    found = convolution(n, _batched(x, rank), weight, bias, stride, padding, dilation, False,
                        [0], groups)
    return found if x.rank == found.rank else found.reshape(found.shape[1:])


# ---------------------------------------------------------------------- pools
def _batched(x: Value, rank: int) -> Value:
    """x [n, c, s...], with a batch dim added if it lacks one."""
    return x if x.rank == rank + 2 else x.reshape([1, *x.shape])


def _window(
    n: Node, x: Value, kernel: Sequence[Size], stride: Sequence[Size], padding: Sequence[Size],
    ceil_mode: bool,
) -> dict[str, Any]:
    """The attributes of a pool.

    With ceil_mode, PyTorch allows a window that is larger than the padded x, and truncates it.
    """
    rank = x.rank - 2
    sizes, pads = spread(n, kernel, rank, "kernel sizes"), spread(n, padding, rank, "pads")
    strides = spread(n, stride or sizes, rank, "strides")
    if ceil_mode:
        room = [s.constant if s.constant is None else s.constant + 2 * p
                for s, p in zip(x.shape[2:], pads, strict=True)]
        sizes = [k if most is None else min(k, most) for k, most in zip(sizes, room, strict=True)]
    return {"kernel": sizes, "strides": strides, "dilations": [1] * rank, "pads": pads * 2,
            "ceil_mode": ceil_mode}


def _check_room(n: Node, x: Value, window: Mapping[str, Any]) -> None:
    """Add a run-time check that a window fits, unless ceil_mode allows it to be incomplete."""
    if not window["ceil_mode"]:
        kernel, strides, dilations, pads = (
            tuple(window[k]) for k in ("kernel", "strides", "dilations", "pads"))
        rank = len(kernel)
        n.whole_windows(x, Window(kernel, strides, dilations, pads[:rank], pads[rank:]))


@aten_op(*(f"aten.max_pool{k}d_with_indices.default" for k in (2, 3)),
         *(f"aten.max_pool{k}d.default" for k in (1, 2, 3)))
def max_pool(
    n: Node, x: Value, kernel: Sequence[Size], stride: Sequence[Size], padding: Sequence[Size],
    dilation: Sequence[Size], ceil_mode: bool,
) -> list[Value]:
    """The pooled x and, if used, the positions of the maxima, counted in each plane."""
    rank = int(n.op.split("pool")[1][0])
    x = _batched(x, rank)
    window = _window(n, x, kernel, stride, padding, ceil_mode)
    window["dilations"] = spread(n, dilation, rank, "dilations")
    _check_room(n, x, window)
    pooled = n(MaxPoolOp, x, **window)
    if not n.wants(1):
        return [pooled.reshape(n.shape)]
    places = n(MaxPoolIndicesOp, x, pooled, last_nan=True, **window)
    count = x.type.count.constant
    element = i32 if count is not None and count < 1 << 31 else i64  # few bits are fast
    inside = places.cast(element) % n.of_size(product(x.shape[2:])).cast(element)
    return [v.reshape(n.shape) for v in (pooled, inside.cast(i64))]


@aten_op(*(f"aten.avg_pool{k}d.default" for k in (1, 2, 3)))
def avg_pool(
    n: Node, x: Value, kernel: Sequence[Size], stride: Sequence[Size], padding: Sequence[Size],
    ceil_mode: bool, count_include_pad: bool, divisor: int | None = None,
) -> Value:
    """Integers are averaged as f64; what a mean that is whole may lack for rounding is added before
    it is truncated."""
    if not is_float(x.element):
        wide = avg_pool(n, x.cast(f64), kernel, stride, padding, ceil_mode, count_include_pad,
                        divisor)
        return (wide * (1 + 2.0**-48)).cast(x.element)
    x = _batched(x, int(n.op.split("pool")[1][0]))
    window = _window(n, x, kernel, stride, padding, ceil_mode)
    _check_room(n, x, window)
    if divisor is not None:
        return _divided_sums(n, x, divisor, window).reshape(n.shape)
    pooled = n(AvgPoolOp, x, count_include_pad=count_include_pad, **window)
    return pooled.reshape(n.shape)


def _divided_sums(n: Node, x: Value, divisor: int, window: Mapping[str, Any]) -> Value:
    """The sums of windows by `divisor`, however many elements of a window are in x.

    x is padded so far that every window lies inside, so that averages are sums by one number.
    """
    pads, strides = window["pads"][:x.rank - 2], window["strides"]
    after = [p + (s - 1 if window["ceil_mode"] else 0) for p, s in zip(pads, strides, strict=True)]
    x = n(PadOp, x, low=[0, 0, *pads], high=[0, 0, *after], mode="constant", value=0.0)
    pooled = n(AvgPoolOp, x, count_include_pad=True, **{
        **window, "pads": [0] * 2 * len(pads), "ceil_mode": False})
    for axis, size in enumerate(n.shape[-len(pads):], start=2):  # PyTorch drops windows of pads
        pooled = pooled.part(axis, 0, size)
    return pooled * n.scalar(prod(window["kernel"]) / divisor, x.element)


@aten_op(*(f"aten.{name}adaptive_avg_pool{k}d.default" for k in (1, 2, 3) for name in ("", "_")))
def adaptive_avg_pool(n: Node, x: Value, sizes: Sequence[Size]) -> Value:
    return _adaptive(n, x, ReduceMeanOp, sizes)


@aten_op(*(f"aten.adaptive_max_pool{k}d.default" for k in (1, 2, 3)))
def adaptive_max_pool(n: Node, x: Value, sizes: Sequence[Size]) -> list[Value]:
    if not n.wants(1):
        return [_adaptive(n, x, ReduceMaxOp, sizes)]
    return _largest_parts(n, x, n.integers(sizes, "result sizes"))


def _largest_parts(n: Node, x: Value, wanted: Sequence[int]) -> list[Value]:
    """The largest element of each part, and its place among the spatial dims; of several NaN, that
    of the last one.

    Parts are rows of places, filled up to one length by their first place.
    """
    lead = x.shape[:x.rank - len(wanted)]
    places = _places_of_parts(n.integers(x.shape[len(lead):], "sizes"), wanted)
    count, length = places.shape
    flat = x.reshape([*lead, product(x.shape[len(lead):])])
    rows = f.gather(flat, n.constant(places), axis=len(lead))
    first = position(n, ArgMaxOp, rows, len(lead) + 1, False)
    own = first + n.range(count) * length
    at = f.gather(n.constant(places.reshape(-1)), own, axis=0)
    if is_float(x.element):
        empty = n(IsnanOp, rows)
        last = n(ReduceMaxOp, f.where(empty, n.constant(places), n.scalar(-1, i64)),
                 axes=[len(lead) + 1], keepdims=False)
        at = f.where(last < 0, at, last)
    largest = n(ReduceMaxOp, rows, axes=[len(lead) + 1], keepdims=False)
    return [largest.reshape(n.shape), at.reshape(n.shape)]


def _places_of_parts(sizes: Sequence[int], wanted: Sequence[int]) -> Array:
    """The row-major places [parts, most] of the elements of each part of a grid."""
    places = np.zeros((1, 1), np.int64)
    for size, count in zip(sizes, wanted, strict=True):
        start = np.arange(count) * size // count
        end = -((np.arange(1, count + 1) * -size) // count)
        reached = start[:, None] + np.arange(int((end - start).max(initial=1)))
        inside = np.where(reached < end[:, None], reached, start[:, None])
        joined = places[:, None, :, None] * size + inside[None, :, None, :]
        parts, cells = joined.shape[:2], joined.shape[2:]
        places = joined.reshape(int(np.prod(parts)), int(np.prod(cells)))
    return places


def _adaptive(
    n: Node, x: Value, op: type[ReduceMeanOp | ReduceMaxOp], sizes: Sequence[Size]
) -> Value:
    """Cut each spatial dim into parts of almost equal size, and reduce each part.

    Neighbouring parts may overlap by one element.
    """
    axes = list(range(x.rank - len(sizes), x.rank))
    wanted = n.integers(sizes, "result sizes")
    if 0 in wanted:
        return n.scalar(0.0, x.element).broadcast(n.shape)
    whole = [a for a, s in zip(axes, wanted, strict=True) if s == 1]
    if whole:
        x = n(op, x, axes=whole, keepdims=True)
    for axis, count in zip(axes, wanted, strict=True):
        if count > 1:
            x = _cut_and_reduce(n, x, axis, count, op)
    return x


def _cut_and_reduce(
    n: Node, x: Value, axis: int, count: int, op: type[ReduceMeanOp | ReduceMaxOp]
) -> Value:
    size = fixed(x.shape[axis], "sizes")
    if size == count:
        return x
    if size % count == 0:
        parts = x.reshape([*x.shape[:axis], count, size // count, *x.shape[axis + 1:]])
        return n(op, parts, axes=[axis + 1], keepdims=False)
    bounds = [(k * size // count, -(-(k + 1) * size // count)) for k in range(count)]
    return f.concat((n(op, x.part(axis, low, high - low), axes=[axis], keepdims=True)
                     for low, high in bounds), axis=axis)
