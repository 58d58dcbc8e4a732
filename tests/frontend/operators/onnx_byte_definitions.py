"""What the operators mean that multiply bytes, in NumPy: exact sums of integers, then floats.

A definition takes a node's inputs, None for one left out, and its attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dialects.strata.types import Array
from tests.byte_products import OPERATORS, convolve, matmul
from tests.frontend.onnx_models import C, Op
from tests.frontend.operators.onnx_contrib_definitions import attention

Attributes = Mapping[str, Any]
Inputs = Sequence[Any]
Definition = Callable[[Inputs, Attributes], "Array | list[Array]"]


def _given(inputs: Inputs, count: int) -> list[Any]:
    return [*inputs, *[None] * (count - len(inputs))]


def _zero(zero: Any) -> Any:
    return 0 if zero is None else zero


def _quantized(real: Array, zero: Array) -> Array:
    """Numbers in units of the scale, rounded to even ones where two are as near, and saturated."""
    ends = np.iinfo(zero.dtype)
    return np.clip(np.rint(real) + zero, ends.min, ends.max)


# ---------------------------------------------------------------------- ONNX
def matmul_integer(inputs: Inputs, attributes: Attributes) -> Array:
    a, b, a_zero, b_zero = _given(inputs, 4)
    return matmul(a, b, _zero(a_zero), _zero(b_zero))


def conv_integer(inputs: Inputs, attributes: Attributes) -> Array:
    x, w, x_zero, w_zero = _given(inputs, 4)
    return convolve(x, w, _zero(x_zero), _zero(w_zero), **attributes)


def qlinear_matmul(inputs: Inputs, attributes: Attributes) -> Array:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = inputs
    return _quantized(matmul(a, b, a_zero, b_zero) * (a_scale * b_scale / scale), zero)


def qlinear_conv(inputs: Inputs, attributes: Attributes) -> Array:
    """Also with the channels last, as onnxruntime's own domain permits it."""
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero, bias = _given(inputs, 9)
    more = dict(attributes)
    last = more.pop("channels_last", 0)
    whole = convolve(np.moveaxis(x, -1, 1) if last else x, w, x_zero, w_zero, **more)
    whole = np.moveaxis(whole, 1, -1) + (0 if bias is None else bias)
    y = _quantized(whole * (x_scale * w_scale / scale), zero)
    return y if last else np.moveaxis(y, -1, 1)


# ---------------------------------------------------------------------- onnxruntime's domain
def qgemm(inputs: Inputs, attributes: Attributes) -> Array:
    a, a_scale, a_zero, b, b_scale, b_zero, bias, scale, zero = _given(inputs, 9)
    left = a.T if attributes.get("transA") else a
    right = b.T if attributes.get("transB") else b
    whole = matmul(left, right, a_zero, b_zero) + (0 if bias is None else bias)
    real = whole * (a_scale * b_scale * attributes.get("alpha", 1.0))
    return real if scale is None else _quantized(real / scale, zero)


def matmul_integer_to_float(inputs: Inputs, attributes: Attributes) -> Array:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = _given(inputs, 7)
    whole = matmul(a, b, _zero(a_zero), _zero(b_zero))
    return whole * (a_scale * b_scale) + (0 if bias is None else bias)


def dynamic_quantize_matmul(inputs: Inputs, attributes: Attributes) -> Array:
    """The operand's range, with 0, becomes the codes 0 to 255, as in ONNX's DynamicQuantizeLinear.
    """
    x, b, b_scale, b_zero, bias = _given(inputs, 5)
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = (high - low) / np.float32(255)
    zero = np.rint(-low / scale)
    codes = np.clip(np.rint(x / scale) + zero, 0, 255)
    return matmul_integer_to_float([codes, b, scale, b_scale, zero, b_zero, bias], {})


def quantized_attention(inputs: Inputs, attributes: Attributes) -> list[Array]:
    """Attention of the product of bytes."""
    x, w, bias, x_scale, w_scale, mask, x_zero, w_zero, past = _given(inputs, 9)
    projected = matmul(x, w, _zero(x_zero), _zero(w_zero)) * (x_scale * w_scale) + bias
    return attention([projected, np.eye(w.shape[1]), None, mask, past], attributes)


def dynamic_quantize_lstm(inputs: Inputs, attributes: Attributes) -> list[Array]:
    """An LSTM of dequantized weights, x [s, n, i]. That onnxruntime quantizes what is multiplied
    with them is no part of what is computed, but an error of it.
    """
    x, w, r, bias, _, h, c, _, w_scale, w_zero, r_scale, r_zero = inputs
    count, size = len(w), attributes["hidden_size"]
    w, r = (((v.astype(float) - _columns(zero)) * _columns(scale)) for v, zero, scale in (
        (w, w_zero, w_scale), (r, r_zero, r_scale)))
    states = [np.zeros((count, x.shape[1], size)) if s is None else s for s in (h, c)]
    runs = [_lstm(x[::-1] if d else x, w[d], r[d], bias[d], states[0][d], states[1][d])
            for d in range(count)]
    y = np.stack([ys[::-1] if d else ys for d, (ys, _, _) in enumerate(runs)], 1)
    return [y, np.stack([run[1] for run in runs]), np.stack([run[2] for run in runs])]


def _columns(x: Array) -> Array:
    """One number for each direction [d], or for each of its columns [d, 4*h]."""
    return x.reshape(len(x), 1, -1).astype(float)


def _lstm(
    x: Array, w: Array, r: Array, bias: Array, h: Array, c: Array
) -> tuple[Array, Array, Array]:
    """The states h of all steps, and the last states. Gates: input, output, forget, cell."""
    ys = []
    for step in x.astype(float):
        parts = step @ w + h @ r + bias.reshape(2, -1).sum(0)
        i, o, f, g = np.split(parts, 4, -1)
        i, o, f = (1 / (1 + np.exp(-v)) for v in (i, o, f))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        ys.append(h)
    return np.stack(ys), h, c


BYTE_DEFINITIONS: dict[str, Definition] = {
    "MatMulInteger": matmul_integer, "ConvInteger": conv_integer, "QLinearMatMul": qlinear_matmul,
    "QLinearConv": qlinear_conv, "QGemm": qgemm, "MatMulIntegerToFloat": matmul_integer_to_float,
    "DynamicQuantizeMatMul": dynamic_quantize_matmul, "QAttention": quantized_attention,
    "DynamicQuantizeLSTM": dynamic_quantize_lstm,
}
assert BYTE_DEFINITIONS.keys() == OPERATORS


def by_definition(
    definitions: Mapping[str, Definition], sample: Op, actual: Sequence[Array]
) -> list[Array]:
    """Definitions compute in any precision; results have the types that the schemas give them."""
    values = [a.array if isinstance(a, C) else a for a in sample.arrays()]
    found = definitions[sample.op_type](values, sample.attributes)
    results = found if isinstance(found, list) else [found]
    return [np.asarray(r).astype(a.dtype) for r, a in zip(results, actual, strict=False)]
