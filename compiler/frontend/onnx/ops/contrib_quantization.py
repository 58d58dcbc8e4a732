"""com.microsoft: quantized operators, computed in floats between two conversions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Attribute

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.contrib import contrib_op, total
from compiler.frontend.onnx.ops.contrib_convolution import channels_first, channels_last
from compiler.frontend.onnx.ops.convolution import average_pool
from compiler.frontend.onnx.ops.quantization import (
    dequantize_linear,
    matmul_integer,
    quantize_linear,
)
from compiler.frontend.onnx.ops.recurrent import lstm
from compiler.frontend.values import Value
from dialects.graph.activation import LeakyReluOp
from dialects.graph.elementwise import AddOp, MulOp
from dialects.strata import types as t
from dialects.symbolic.size_products import product

_LSTM_RANKS = (3, 3, 3, 2, 1, 3, 3, 2, (1, 2), (1, 2), (1, 2), (1, 2))
"""Numbers of dims of the inputs of DynamicQuantizeLSTM."""
_Parameters = tuple[Value, Value | None]
"""A scale, and a zero point that may be left out for 0."""


@contrib_op("QuantizeLinear")
def contrib_quantize_linear(n: Node, x: Value, scale: Value, zero: Value | None = None) -> Value:
    return quantize_linear(n, x, scale, zero)


@contrib_op("DequantizeLinear")
def contrib_dequantize_linear(
    n: Node, x: Value, scale: Value, zero: Value | None = None
) -> Value:
    return dequantize_linear(n, x, scale, zero)


def _quantized(n: Node, x: Value, parameters: _Parameters, element: Attribute) -> Value:
    scale, zero = parameters
    none = n.constant(np.zeros((), t.dtype_of(element)))
    return quantize_linear(n, x, scale, none if zero is None else zero)


# ---------------------------------------------------------------------- elementwise
@contrib_op("QLinearAdd", "QLinearMul")
def qlinear_binary(
    n: Node, a: Value, a_scale: Value, a_zero: Value | None, b: Value, b_scale: Value,
    b_zero: Value | None, scale: Value, zero: Value | None = None,
) -> Value:
    op = AddOp if n.op_type == "QLinearAdd" else MulOp
    real = n(op, dequantize_linear(n, a, a_scale, a_zero), dequantize_linear(n, b, b_scale, b_zero))
    return _quantized(n, real, (scale, zero), a.element)


@contrib_op("QLinearSigmoid")
def qlinear_sigmoid(
    n: Node, x: Value, x_scale: Value, x_zero: Value | None, scale: Value,
    zero: Value | None = None,
) -> Value:
    y = f.sigmoid(dequantize_linear(n, x, x_scale, x_zero))
    return _quantized(n, y, (scale, zero), x.element)


@contrib_op("QLinearLeakyRelu")
def qlinear_leaky_relu(
    n: Node, x: Value, x_scale: Value, x_zero: Value | None, scale: Value,
    zero: Value | None = None,
) -> Value:
    y = n(LeakyReluOp, dequantize_linear(n, x, x_scale, x_zero), alpha=n.real("alpha", 0.01))
    return _quantized(n, y, (scale, zero), x.element)


@contrib_op("QLinearWhere")
def qlinear_where(
    n: Node, condition: Value, x: Value, x_scale: Value, x_zero: Value, y: Value, y_scale: Value,
    y_zero: Value, scale: Value, zero: Value,
) -> Value:
    chosen = f.where(condition, dequantize_linear(n, x, x_scale, x_zero),
                     dequantize_linear(n, y, y_scale, y_zero))
    return _quantized(n, chosen, (scale, zero), x.element)


@contrib_op("QLinearConcat")
def qlinear_concat(n: Node, scale: Value, zero: Value, *inputs: Value) -> Value:
    """`inputs` are triples of a tensor, its scale and its zero point."""
    if not inputs or len(inputs) % 3:
        raise Fault(f"its {len(inputs)} inputs from the third on must be tensors, each with a "
                    "scale and a zero point")
    real = [dequantize_linear(n, *inputs[k:k + 3]) for k in range(0, len(inputs), 3)]
    axis = n.axis(n.integer("axis"), real[0].rank)
    return _quantized(n, f.concat(real, axis=axis), (scale, zero), inputs[0].element)


# ---------------------------------------------------------------------- pools and reductions
@contrib_op("QLinearAveragePool")
def qlinear_average_pool(
    n: Node, x: Value, x_scale: Value, x_zero: Value | None, scale: Value,
    zero: Value | None = None,
) -> Value:
    last, whole = n.flag("channels_last"), _centered(x, x_zero).cast(x_scale.element)
    y = average_pool(n, channels_first(whole) if last else whole)
    real = (channels_last(y) if last else y) * x_scale.reshape(())
    return _quantized(n, real, (scale, zero), x.element)


@contrib_op("QLinearGlobalAveragePool")
def qlinear_global_average_pool(
    n: Node, x: Value, x_scale: Value, x_zero: Value, scale: Value, zero: Value
) -> Value:
    first = 1 if n.flag("channels_last") else 2
    axes = list(range(first, first + x.rank - 2))
    return _quantized(n, _mean(n, x, (x_scale, x_zero), axes, True), (scale, zero), x.element)


@contrib_op("QLinearReduceMean")
def qlinear_reduce_mean(
    n: Node, x: Value, x_scale: Value, x_zero: Value | None, scale: Value,
    zero: Value | None = None,
) -> Value:
    y = _mean(n, x, (x_scale, x_zero), _axes(n, x), n.flag("keepdims", True))
    return _quantized(n, y, (scale, zero), x.element)


def _mean(
    n: Node, x: Value, parameters: _Parameters, axes: Sequence[int], keepdims: bool
) -> Value:
    """The mean of the numbers that x stands for. The sum of integers is exact in any order."""
    scale, zero = parameters
    whole = f.reduce_sum(_centered(x, zero), axes=axes, keepdims=keepdims)
    count = n.of_size(product([x.shape[a] for a in axes]))
    return whole.cast(scale.element) / count.cast(scale.element) * scale.reshape(())


def _centered(x: Value, zero: Value | None) -> Value:
    """x minus its zero point, in i32."""
    wide = x.cast(t.i32)
    return wide if zero is None else wide - zero.cast(t.i32).reshape(())


@contrib_op("ReduceSumInteger")
def reduce_sum_integer(n: Node, x: Value) -> Value:
    """The sum in i32, or in ui32 for an unsigned x."""
    wide = x.cast(t.ui32 if t.is_unsigned(x.element) else t.i32)
    return f.reduce_sum(wide, axes=_axes(n, x), keepdims=n.flag("keepdims", True))


def _axes(n: Node, x: Value) -> list[int]:
    given = n.ints("axes") or range(x.rank)
    return sorted({n.axis(a, x.rank) for a in given})


@contrib_op("QLinearSoftmax")
def qlinear_softmax(
    n: Node, x: Value, x_scale: Value, x_zero: Value | None, scale: Value, zero: Value
) -> Value:
    """The softmax over one axis or, if the attribute `opset` is below 13, all dims from it on."""
    axis, real = n.axis(n.integer("axis", -1), x.rank), dequantize_linear(n, x, x_scale, x_zero)
    if n.integer("opset") < 13:
        rows = real.reshape([*x.shape[:axis], product(x.shape[axis:])])
        y = f.softmax(rows, axis=axis).reshape(x.shape)
    else:
        y = f.softmax(real, axis=axis)
    return _quantized(n, y, (scale, zero), x.element)


# ---------------------------------------------------------------------- products
@contrib_op("QGemm", ranks=(2, None, None, 2))
def quantized_gemm(
    n: Node, a: Value, a_scale: Value, a_zero: Value, b: Value, b_scale: Value, b_zero: Value,
    c: Value | None = None, scale: Value | None = None, zero: Value | None = None,
) -> Value:
    """alpha * (a' @ b' + c), a product of integers that is rescaled to floats.

    The result is quantized if its scale is given. c is i32, with the scale of the product.
    """
    left = a.transpose([1, 0]) if n.flag("transA") else a
    right = b.transpose([1, 0]) if n.flag("transB") else b
    whole = total(matmul_integer(n, left, right, a_zero, b_zero), c)
    scales = [s.reshape(()) if s.type.count.constant == 1 else s for s in (a_scale, b_scale)]
    factor = f.product(scales) * n.real("alpha", 1.0)
    real = whole.cast(factor.element) * factor
    return real if scale is None else _quantized(n, real, (scale, zero), a.element)


@contrib_op("DynamicQuantizeLSTM", ranks=_LSTM_RANKS)
def dynamic_quantize_lstm(
    n: Node, x: Value, w: Value, r: Value, b: Value | None, lengths: Value | None,
    initial_h: Value | None, initial_c: Value | None, peepholes: Value | None, w_scale: Value,
    w_zero: Value, r_scale: Value, r_zero: Value,
) -> list[Value]:
    """An LSTM with dequantized weights [d, in, 4*h].

    Inputs and states stay floats. onnxruntime quantizes these as well, which only adds rounding
    errors.
    """
    real = [_weights(*given).transpose([0, 2, 1])
            for given in ((w, w_scale, w_zero), (r, r_scale, r_zero))]
    return list(lstm(n, x, *real, b, lengths, initial_h, initial_c, peepholes))


def _weights(x: Value, scale: Value, zero: Value) -> Value:
    """The dequantized x [d, in, 4*h]. Scales and zero points are [d], or [d, 4*h], per column."""
    shape = [x.shape[0], 1, scale.shape[1] if scale.rank == 2 else 1]
    centered = x.cast(t.i32)
    offset = zero.cast(t.i32).reshape(shape)
    whole = total(centered, offset * -1)
    return whole.cast(scale.element) * scale.reshape(shape)
