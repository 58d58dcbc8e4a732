"""Convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from compiler.frontend.onnx.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.values import Value
from dialects.expr import Expr, maximum
from dialects.graph.base import GraphOp
from dialects.graph.convolution import ConvOp, ConvTransposeOp
from dialects.graph.elementwise import MulOp, PowOp
from dialects.graph.pooling import AvgPoolOp, MaxPoolIndicesOp, MaxPoolOp
from dialects.graph.reduce import ReduceMaxOp, ReduceMeanOp, ReduceSumOp
from dialects.graph.unary import AbsOp
from dialects.graph.window import Window


# ---------------------------------------------------------------------- windows
def _spatial(n: Node, x: Value, kernel: Sequence[int]) -> tuple[list[int], list[int]]:
    """Strides and dilations, one per spatial dim. Raises Fault when the kernel does not fit x."""
    rank = x.rank - 2
    strides, dilations = n.ints("strides", [1] * rank), n.ints("dilations", [1] * rank)
    for name, values in (("kernel", kernel), ("strides", strides), ("dilations", dilations)):
        if len(values) != rank or rank < 1:
            raise Fault(f"{name} {list(values)} does not fit {x.type.short}, which has "
                        f"{max(rank, 0)} spatial dims")
        if min(values) < 1:
            raise Fault(f"{name} {list(values)} must be positive")
    return strides, dilations


def _pads(
    n: Node, x: Value, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """All low pads, then all high ones, also those that `auto_pad` asks for."""
    auto = n.text("auto_pad", "NOTSET")
    if auto == "NOTSET":
        return n.ints("pads", [0] * (2 * len(kernel)))
    if auto == "VALID":
        return [0] * (2 * len(kernel))
    totals = [_same_pad(n, size, (k - 1) * d + 1, s)
              for size, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True)]
    return _two_sides(totals, more_high=_is_upper(auto))


def _same_pad(n: Node, size: Expr, extent: int, stride: int) -> int:
    """The padding with which ceil(size / stride) windows fit."""
    if stride == 1:
        return extent - 1
    total = maximum((size.ceildiv(stride) - 1) * stride + extent - size, 0)
    if total.constant is None:
        raise Fault(f"auto_pad needs padding that depends on the size {size}",
                    f"fix the size, for instance with --dim {min(size.symbols)}=224")
    return total.constant


def _is_upper(auto: str) -> bool:
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise Fault(f"unknown auto_pad '{auto}'")
    return auto == "SAME_UPPER"


def _two_sides(totals: Sequence[int], more_high: bool) -> list[int]:
    """Half of each total on either side; an odd one is larger on the high side, or on the low."""
    less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return less + more if more_high else more + less


# ---------------------------------------------------------------------- convolutions
@onnx_op("Conv")
def conv(n: Node, x: Value, w: Value, b: Value | None = None) -> Value:
    """Also of integers, for the quantized operators."""
    kernel = _kernel(n, w)
    strides, dilations = _spatial(n, x, kernel)
    pads = _pads(n, x, kernel, strides, dilations)
    return n(ConvOp, *_present(x, w, b), strides=strides, dilations=dilations, pads=pads,
             group=n.integer("group", 1))


@onnx_op("ConvTranspose")
def conv_transpose(n: Node, x: Value, w: Value, b: Value | None = None) -> Value:
    kernel = _kernel(n, w)
    strides, dilations = _spatial(n, x, kernel)
    extra = n.ints("output_padding", [0] * len(kernel))
    if n.has("output_shape") or n.text("auto_pad", "NOTSET").startswith("SAME"):
        pads, extra = _transposed_pads(n, x, kernel, strides, dilations, extra)
    else:
        pads = _pads(n, x, kernel, strides, dilations)
    return n(ConvTransposeOp, *_present(x, w, b), strides=strides, dilations=dilations, pads=pads,
             output_padding=extra, group=n.integer("group", 1))


def _transposed_pads(
    n: Node, x: Value, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    extra: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Pads, and additions at the end, with which the result has the size that is asked for."""
    sizes = x.shape[2:]
    wanted = [Expr.of(s) for s in n.ints("output_shape")[-len(sizes):]]
    wanted = wanted or [size * s for size, s in zip(sizes, strides, strict=True)]
    if not len(wanted) == len(extra) == len(sizes):
        raise Fault(f"output_shape and output_padding need {len(sizes)} entries each")
    totals: list[int] = []
    for k, size in enumerate(sizes):
        full = (size - 1) * strides[k] + (kernel[k] - 1) * dilations[k] + 1 + extra[k]
        totals.append(n.known_ints(n.of_sizes([full - wanted[k]]), "pads")[0])
    pads = _two_sides([max(t, 0) for t in totals], n.text("auto_pad") == "SAME_UPPER")
    return pads, [e + max(-t, 0) for e, t in zip(extra, totals, strict=True)]


def _kernel(n: Node, w: Value) -> list[int]:
    """The filter's spatial sizes, which `kernel_shape` may only repeat."""
    sizes = n.known_ints(n.of_sizes(w.shape[2:]), "filter sizes")
    if n.ints("kernel_shape", sizes) != sizes:
        raise Fault(f"kernel_shape {n.ints('kernel_shape')} is not that of the filter, {sizes}")
    return sizes


def _present(*values: Value | None) -> list[Value]:
    return [v for v in values if v is not None]


# ---------------------------------------------------------------------- pools
@onnx_op("MaxPool")
def max_pool(n: Node, x: Value) -> list[Value]:
    attributes = _pool_attributes(n, x)
    y = n(MaxPoolOp, x, **attributes)
    if not n.wants(1):
        return [y]
    return [y, n(MaxPoolIndicesOp, x, y, column_major=n.flag("storage_order"), **attributes)]


@onnx_op("LpPool")
def lp_pool(n: Node, x: Value) -> Value:
    """The p-norm of each window: the root of the mean of powers, times their number."""
    attributes, p = _pool_attributes(n, x), n.integer("p", 2)
    if attributes.pop("ceil_mode"):
        attributes["pads"] = _ceil_pads(n, x, **attributes)
    power = n(PowOp, n(AbsOp, x), n.scalar(p, x))
    mean = n(AvgPoolOp, power, count_include_pad=True, ceil_mode=False, **attributes)
    total = n(MulOp, mean, n.scalar(prod(attributes["kernel"]), x))
    return n(PowOp, total, n.scalar(1 / p, x))


def _ceil_pads(
    n: Node, x: Value, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    pads: Sequence[int],
) -> list[int]:
    """The pads with as many more at the end as the last windows reach over it."""
    window = Window(*map(tuple, (kernel, strides, dilations)), low=tuple(pads[:len(kernel)]),
                    high=tuple(pads[len(kernel):]))
    counts = n.known_ints(n.of_sizes(window.counts(x.shape[2:], "C5", ceil=True)), "result sizes")
    sizes = n.known_ints(n.of_sizes(x.shape[2:]), "input sizes")
    high = [max((count - 1) * strides[k] + window.extent(k) - sizes[k] - pads[k], window.high[k])
            for k, count in enumerate(counts)]
    return [*window.low, *high]


@onnx_op("AveragePool")
def average_pool(n: Node, x: Value) -> Value:
    include = n.flag("count_include_pad")
    return n(AvgPoolOp, x, count_include_pad=include, **_pool_attributes(n, x))


def _pool_attributes(n: Node, x: Value) -> dict[str, Any]:
    kernel = n.ints("kernel_shape")
    strides, dilations = _spatial(n, x, kernel)
    pads = _pads(n, x, kernel, strides, dilations)
    same = n.text("auto_pad", "NOTSET").startswith("SAME")  # their sizes divide already
    return {"kernel": kernel, "strides": strides, "dilations": dilations, "pads": pads,
            "ceil_mode": n.flag("ceil_mode") and not same}


@onnx_op("GlobalAveragePool")
def global_average_pool(n: Node, x: Value) -> Value:
    return _global_pool(n, ReduceMeanOp, x)


@onnx_op("GlobalMaxPool")
def global_max_pool(n: Node, x: Value) -> Value:
    return _global_pool(n, ReduceMaxOp, x)


@onnx_op("GlobalLpPool")
def global_lp_pool(n: Node, x: Value) -> Value:
    p = n.integer("p", 2)
    total = _global_pool(n, ReduceSumOp, n(PowOp, n(AbsOp, x), n.scalar(p, x)))
    return n(PowOp, total, n.scalar(1 / p, x))


def _global_pool(n: Node, op: type[GraphOp], x: Value) -> Value:
    if x.rank < 3:
        raise Fault(f"{x.type.short} has no spatial dims")
    return n(op, x, axes=list(range(2, x.rank)), keepdims=True)
