"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeVar

from compiler.frontend.faults import Fault
from compiler.frontend.node import fixed
from compiler.frontend.onnx.node import Node, rounded_once
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value
from dialects.graph.base import GraphOp
from dialects.graph.convolution import ConvOp, ConvTransposeOp
from dialects.graph.pooling import AvgPoolOp, MaxPoolIndicesOp, MaxPoolOp
from dialects.graph.reduce import ReduceMaxOp, ReduceMeanOp, ReduceSumOp
from dialects.graph.shape import PadOp
from dialects.graph.window import Window
from dialects.semantics.numerics import lowest
from dialects.symbolic.expr import Expr, maximum

_Pad = TypeVar("_Pad", int, Expr)
_OVER_THE_END = ("ceil_mode", "toward_zero")
"""The attributes of a pool that let windows extend beyond the end of the padded x."""


# ---------------------------------------------------------------------- windows
def _spatial(n: Node, x: Value, kernel: Sequence[int]) -> tuple[list[int], list[int]]:
    """Strides and dilations, one per spatial dim. Raises Fault if the kernel does not fit x."""
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
) -> list[Expr]:
    """All low pads, then all high ones, from the attributes `pads` or `auto_pad`."""
    auto = n.text("auto_pad", "NOTSET")
    if auto == "NOTSET":
        return list(map(Expr.of, n.ints("pads", [0] * (2 * len(kernel)))))
    if auto == "VALID":
        return [Expr.of(0)] * (2 * len(kernel))
    totals = [_same_pad(size, (k - 1) * d + 1, s)
              for size, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True)]
    return _two_sides(totals, more_high=_is_upper(auto))


def _same_pad(size: Expr, extent: int, stride: int) -> Expr:
    """The padding with which ceil(size / stride) windows fit."""
    if stride == 1:
        return Expr.of(extent - 1)
    total = (size.ceildiv(stride) - 1) * stride + extent - size
    return total if extent >= stride else maximum(total, 0)


def _is_upper(auto: str) -> bool:
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise Fault(f"auto_pad is '{auto}'; it must be NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    return auto == "SAME_UPPER"


def _two_sides(totals: Sequence[_Pad], more_high: bool) -> list[_Pad]:
    """Half of each total on either side.

    An odd total is larger on the high side if `more_high`, and on the low side otherwise.
    """
    less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return less + more if more_high else more + less


def _window(
    kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int]
) -> Window:
    rank = len(kernel)
    return Window(*map(tuple, (kernel, strides, dilations, pads[:rank], pads[rank:])))


def _constant(n: Node, pads: Sequence[Expr]) -> list[int]:
    return n.known_ints(n.of_sizes(pads), "pads")


def _explicit(n: Node, x: Value, pads: Sequence[Expr], fill: float) -> tuple[Value, list[int]]:
    """x and constant pads. If pads depend on sizes, x is padded explicitly, and the pads are 0."""
    known = [p.constant for p in pads if p.constant is not None]
    if len(known) == len(pads):
        return x, known
    low, high = ([0, 0, *side] for side in (pads[:x.rank - 2], pads[x.rank - 2:]))
    return n(PadOp, x, low=low, high=high, mode="constant", value=fill), [0] * len(pads)


# ---------------------------------------------------------------------- convolutions
@onnx_op("Conv")
def conv(n: Node, x: Value, w: Value, b: Value | None = None) -> Value:
    x, attributes = conv_attributes(n, x, w)
    return n(ConvOp, *_present(x, w, b), **attributes)


def conv_attributes(
    n: Node, x: Value, w: Value, fill: float = 0.0
) -> tuple[Value, dict[str, Any]]:
    """x and the attributes of a convolution.

    If pads depend on sizes, x gets borders of `fill` instead.
    """
    kernel = _kernel(n, w)
    strides, dilations = _spatial(n, x, kernel)
    x, pads = _explicit(n, x, _pads(n, x, kernel, strides, dilations), fill)
    n.whole_windows(x, _window(kernel, strides, dilations, pads))
    return x, {"strides": strides, "dilations": dilations, "pads": pads,
               "group": n.integer("group", 1)}


@onnx_op("ConvTranspose")
def conv_transpose(n: Node, x: Value, w: Value, b: Value | None = None) -> Value:
    kernel = _kernel(n, w)
    strides, dilations = _spatial(n, x, kernel)
    extra = n.ints("output_padding", [0] * len(kernel))
    if n.has("output_shape") or n.text("auto_pad", "NOTSET").startswith("SAME"):
        pads, extra = _transposed_pads(n, x, kernel, strides, dilations, extra)
    else:
        pads = _constant(n, _pads(n, x, kernel, strides, dilations))
    return n(ConvTransposeOp, *_present(x, w, b), strides=strides, dilations=dilations, pads=pads,
             output_padding=extra, group=n.integer("group", 1))


def _transposed_pads(
    n: Node, x: Value, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    extra: Sequence[int],
) -> tuple[list[int], list[int]]:
    """The pads and the output padding that give the requested result size."""
    sizes = x.shape[2:]
    wanted = [Expr.of(s) for s in n.ints("output_shape")[-len(sizes):]]
    wanted = wanted or [size * s for size, s in zip(sizes, strides, strict=True)]
    if not len(wanted) == len(extra) == len(sizes):
        raise Fault(f"output_shape and output_padding need {len(sizes)} entries each")
    totals: list[Expr] = []
    for k, size in enumerate(sizes):
        full = (size - 1) * strides[k] + (kernel[k] - 1) * dilations[k] + 1 + extra[k]
        totals.append(full - wanted[k])
    known = _constant(n, totals)
    pads = _two_sides([max(t, 0) for t in known], n.text("auto_pad") == "SAME_UPPER")
    return pads, [e + max(-t, 0) for e, t in zip(extra, known, strict=True)]


def _kernel(n: Node, w: Value) -> list[int]:
    """The spatial sizes of the filter. Raises Fault if `kernel_shape` differs from them."""
    sizes = n.known_ints(n.of_sizes(w.shape[2:]), "filter sizes")
    if n.ints("kernel_shape", sizes) != sizes:
        raise Fault(f"kernel_shape {n.ints('kernel_shape')} is not that of the filter, {sizes}")
    return sizes


def _present(*values: Value | None) -> list[Value]:
    return [v for v in values if v is not None]


# ---------------------------------------------------------------------- pools
@onnx_op("MaxPool")
def max_pool(n: Node, x: Value) -> list[Value]:
    attributes, pads = _pool_attributes(n, x)
    if not n.wants(1):
        x, attributes["pads"] = _explicit(n, x, pads, float(lowest(x.type.dtype)))
        return [n(MaxPoolOp, x, **attributes)]
    attributes["pads"] = _constant(n, pads)
    y = n(MaxPoolOp, x, **attributes)
    places = n(MaxPoolIndicesOp, x, y, **attributes)
    return [y, _column_major(n, x, places) if n.flag("storage_order") else places]


def _column_major(n: Node, x: Value, numbers: Value) -> Value:
    """Convert row-major indices into x to indices whose first spatial dim varies fastest."""
    rest, along = numbers, dict[int, Value]()
    sizes = {dim: n.of_size(x.shape[dim]) for dim in range(x.rank - 1, 1, -1)}
    for dim, size in sizes.items():
        rows = rest / size
        along[dim] = rest - rows * size
        rest = rows
    for dim, size in sizes.items():
        rest = rest * size + along[dim]
    return rest


@onnx_op("LpPool")
@rounded_once
def lp_pool(n: Node, x: Value) -> Value:
    """The p-norm of each window, from the mean of the powers times the window's size."""
    (attributes, pads), p = _pool_attributes(n, x), _power(n)
    x, attributes["pads"] = _explicit(n, x, pads, 0.0)
    x, attributes["pads"] = _explicit(n, x, _reached(x, **attributes), 0.0)
    if attributes.pop("ceil_mode", False):
        attributes["toward_zero"] = True  # all windows fit now, if there are any
    power = abs(x) ** p
    mean = n(AvgPoolOp, power, count_include_pad=True, **attributes)
    total = mean * prod(attributes["kernel"])
    return total ** (1 / p)


def _reached(
    x: Value, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    pads: Sequence[int], **over: bool,
) -> list[Expr]:
    """The pads, with the high ones extended so that the last windows fit."""
    window = _window(kernel, strides, dilations, pads)
    counts = window.counts(x.shape[2:], "C5", *(over.get(flag, False) for flag in _OVER_THE_END))
    if not any(over.values()):
        return list(map(Expr.of, pads))
    high = [maximum((count - 1) * strides[k] + window.extent(k) - x.shape[2 + k] - pads[k],
                    window.high[k]) for k, count in enumerate(counts)]
    return [*map(Expr.of, window.low), *high]


@onnx_op("AveragePool")
def average_pool(n: Node, x: Value) -> Value:
    """If pads do not count, but x is padded explicitly, the mean is divided by a mean of ones.

    The mean of ones is the part of each window that is inside of x.
    """
    attributes, pads = _pool_attributes(n, x)
    include = n.flag("count_include_pad")
    padded, attributes["pads"] = _explicit(n, x, pads, 0.0)
    mean = n(AvgPoolOp, padded, count_include_pad=include, **attributes)
    if include or padded is x:
        return mean
    one = [Expr.of(1)] * 2
    ones, _ = _explicit(n, n.scalar(1, x).broadcast([*one, *x.shape[2:]]), pads, 0.0)
    return mean / n(AvgPoolOp, ones, count_include_pad=True, **attributes)


def _pool_attributes(n: Node, x: Value) -> tuple[dict[str, Any], list[Expr]]:
    """The attributes of a pool without its pads, and the pads.

    The number of windows is a quotient rounded toward zero, as in ONNX's shape inference and in
    onnxruntime: a single window may be larger than the padded x.
    """
    kernel = n.ints("kernel_shape")
    strides, dilations = _spatial(n, x, kernel)
    pads = _pads(n, x, kernel, strides, dilations)
    attributes = {"kernel": kernel, "strides": strides, "dilations": dilations}
    if not n.text("auto_pad", "NOTSET").startswith("SAME"):  # no window extends beyond those pads
        attributes |= _over_the_end(n, x, kernel, strides, dilations, pads)
    return attributes, pads


def _over_the_end(
    n: Node, x: Value, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    pads: Sequence[Expr],
) -> dict[str, bool]:
    """The attribute that lets windows extend beyond the end of the padded x, if it is needed.

    Raises Fault for pads that are not constant, except in ceil_mode.
    """
    if n.flag("ceil_mode"):
        return {"ceil_mode": True}
    window = _window(kernel, strides, dilations, [fixed(p, "pads") for p in pads])
    return {} if window.fits(x.shape[2:]) else {"toward_zero": True}


@onnx_op("GlobalAveragePool")
def global_average_pool(n: Node, x: Value) -> Value:
    return _global_pool(n, ReduceMeanOp, x)


@onnx_op("GlobalMaxPool")
def global_max_pool(n: Node, x: Value) -> Value:
    return _global_pool(n, ReduceMaxOp, x)


@onnx_op("GlobalLpPool")
@rounded_once
def global_lp_pool(n: Node, x: Value) -> Value:
    p = _power(n)
    total = _global_pool(n, ReduceSumOp, abs(x) ** p)
    return total ** (1 / p)


def _power(n: Node) -> float:
    """The order p of a norm, which is a float in opset 1. Raises Fault for one that is not above 0.
    """
    order = n.integer("p", 2) if n.version > 1 else n.real("p", 2.0)
    if not order > 0:
        raise Fault(f"its norm has the order p = {order}, which must be positive")
    return order


def _global_pool(n: Node, op: type[GraphOp], x: Value) -> Value:
    if x.rank < 3:
        raise Fault(f"{x.type.short} has no spatial dims")
    return n(op, x, axes=list(range(2, x.rank)), keepdims=True)
