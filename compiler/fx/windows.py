"""Convolutions, pools and resampling, as operators of ATen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.fx.writer import Unwritable, Writer, writes
from dialects.graph.base import GraphOp, flag_of, int_of, ints_of, literal_of, text_of
from dialects.graph.convolution import ConvOp, ConvTransposeOp
from dialects.graph.pooling import AvgPoolOp, MaxPoolOp
from dialects.graph.resize import ResizeOp
from dialects.graph.window import Window
from dialects.strata import types as t
from dialects.strata.types import TensorType, tensor_type


def _kernel(type_: TensorType) -> list[int]:
    found = [size.constant for size in type_.shape[2:]]
    return [size for size in found if size is not None]


def _padded(w: Writer, node: Any, low: Sequence[int], high: Sequence[int], value: float) -> Any:
    pads = [v for both in reversed(list(zip(low, high, strict=True))) for v in both]
    return w.call("constant_pad_nd.default", node, pads, value) if any(pads) else node


@writes(ConvOp)
def convolution(w: Writer, op: ConvOp) -> Any:
    window = Window.of(_kernel(tensor_type(op.w)), op.properties, "C3")
    given, result = w.operands(op), op.result_tensors[0]
    if tensor_type(op.x).shape[1].constant == 0:
        raise Unwritable("it has no channels, of which PyTorch makes no results")
    if tensor_type(op.x).element != result.element:
        given = [w.cast(node, w.dtype_of(result)) for node in given]
    x, low = given[0], list(window.low)
    if window.low != window.high:
        x, low = _padded(w, x, window.low, window.high, 0), [0] * window.rank
    return w.call("convolution.default", x, given[1], given[2] if len(given) > 2 else None,
                  list(window.strides), low, list(window.dilations), False, [0] * window.rank,
                  int_of(op.properties, "group", 1))


@writes(ConvTransposeOp)
def transposed(w: Writer, op: ConvTransposeOp) -> Any:
    """Pads cut borders off, and output padding adds zeros, before the bias."""
    window = Window.of(_kernel(tensor_type(op.w)), op.properties, "C3")
    if not t.is_float(op.result_tensors[0].element):
        raise Unwritable("its elements are integers")
    extra, zeros = ints_of(op.properties, "output_padding", [0] * window.rank), [0] * window.rank
    node = w.call("convolution.default", w.operand(op), w.operand(op, 1), None,
                  list(window.strides), zeros, list(window.dilations), True, zeros,
                  int_of(op.properties, "group", 1))
    node = _padded(w, node, [-v for v in window.low],
                   [e - v for e, v in zip(extra, window.high, strict=True)], 0)
    if len(op.operands) < 3:
        return node
    bias = w.call("reshape.default", w.operand(op, 2), [-1, *[1] * window.rank])
    return w.call("add.Tensor", node, bias)


def _pool_window(op: GraphOp) -> tuple[Window, bool]:
    """The window, and whether the last ones may be cut, which only PyTorch's own pads allow."""
    window, cut = Window.of(ints_of(op.properties, "kernel"), op.properties, "C3"), flag_of(
        op.properties, "ceil_mode")
    if flag_of(op.properties, "toward_zero"):
        raise Unwritable("its sizes are rounded toward zero")
    if cut and (window.low != window.high or any(
            2 * pad > size for pad, size in zip(window.low, window.kernel, strict=True))):
        raise Unwritable("its last windows are cut, and its pads differ or are large")
    return window, cut


@writes(MaxPoolOp)
def max_pool(w: Writer, op: MaxPoolOp) -> Any:
    window, cut = _pool_window(op)
    if not t.is_float(op.result_tensors[0].element):
        raise Unwritable("it pools integers")
    x, pads = w.operand(op), list(window.low)
    if not cut:
        x, pads = _padded(w, x, window.low, window.high, float("-inf")), [0] * window.rank
    return w.call(f"max_pool{window.rank}d.default", x, list(window.kernel),
                  list(window.strides), pads, list(window.dilations), cut)


@writes(AvgPoolOp)
def avg_pool(w: Writer, op: AvgPoolOp) -> Any:
    window, cut = _pool_window(op)
    if window.low != window.high or set(window.dilations) != {1}:
        raise Unwritable("its pads differ, or its windows have gaps")
    return w.call(f"avg_pool{window.rank}d.default", w.operand(op), list(window.kernel),
                  list(window.strides), list(window.low), cut,
                  flag_of(op.properties, "count_include_pad"))


@writes(ResizeOp)
def resize(w: Writer, op: ResizeOp) -> Any:
    """The forms of `torch.nn.functional.interpolate`, of dims after the second."""
    form = (text_of(op.properties, "mode"), text_of(op.properties, "coordinates"),
            text_of(op.properties, "nearest", "floor"))
    rank, shape = tensor_type(op.x).rank - 2, w.shape(op.shape.data[2:])
    plain = t.is_float(op.result_tensors[0].element) and all(
        size.constant != 0 for size in tensor_type(op.x).shape)
    scales = [float(scale) for scale in literal_of(op.properties, "scales")]
    if not plain or not 1 <= rank <= 3 or scales[:2] not in ([], [1.0, 1.0]) or tuple(
            op.shape.data[:2]) != tensor_type(op.x).shape[:2]:
        raise Unwritable("it scales integers, or other dims than the last ones")
    if form == ("nearest", "asymmetric", "floor"):
        return w.call(f"upsample_nearest{rank}d.default", w.operand(op), shape, *scales[2:])
    if form == ("nearest", "half_pixel", "round_prefer_ceil"):
        return w.call(f"_upsample_nearest_exact{rank}d.default", w.operand(op), shape, *scales[2:])
    names = {("linear", 1): "linear1d", ("linear", 2): "bilinear2d", ("linear", 3): "trilinear3d",
             ("cubic", 2): "bicubic2d"}
    if (form[0], rank) in names and form[1] in ("half_pixel", "align_corners"):
        return w.call(f"upsample_{names[form[0], rank]}.default", w.operand(op), shape,
                      form[1] == "align_corners", *scales[2:])
    raise Unwritable(f"PyTorch does not resample by {form[0]} and {form[1]}")
