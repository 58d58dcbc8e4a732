"""What those operators of com.microsoft mean, in NumPy, that onnxruntime has on GPUs only.

A definition takes a node's inputs, None for one left out, and its attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dialects.strata.types import Array

Attributes = Mapping[str, Any]
Definition = Callable[[Sequence[Any], Attributes], "Array | list[Array]"]
_ERF = np.vectorize(math.erf, otypes=[np.float64])


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1 + _ERF(x / math.sqrt(2)))


def _fast_gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _softmax(x: Array, axes: int | tuple[int, ...] = -1) -> Array:
    powers = np.exp(x - x.max(axes, keepdims=True))
    return powers / powers.sum(axes, keepdims=True)


# ---------------------------------------------------------------------- activations, normalizations
def bias_split_gelu(inputs: Sequence[Any], attributes: Attributes) -> Array:
    left, right = np.split(inputs[0] + inputs[1], 2, axis=-1)
    return left * _gelu(right)


def bias_softmax(inputs: Sequence[Any], attributes: Attributes) -> Array:
    x, bias = inputs
    axis = attributes["axis"]
    if attributes["is_inner_broadcast"] and bias.ndim < x.ndim:
        outer = bias.ndim - (x.ndim - axis)
        bias = bias.reshape(*bias.shape[:outer], *[1] * (x.ndim - bias.ndim), *bias.shape[outer:])
    return _softmax(x + bias, tuple(range(axis, x.ndim)))


def group_norm(inputs: Sequence[Any], attributes: Attributes) -> Array:
    x, gamma, beta = inputs[:3]
    last = attributes.get("channels_last", 1)
    x = x if last else np.moveaxis(x, 1, -1)
    parts = x.reshape(x.shape[0], -1, attributes["groups"], x.shape[-1] // attributes["groups"])
    mean, variance = parts.mean((1, 3), keepdims=True), parts.var((1, 3), keepdims=True)
    y = ((parts - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape) * gamma + beta
    y = y / (1 + np.exp(-y)) if attributes["activation"] else y
    return y if last else np.moveaxis(y, -1, 1)


def skip_group_norm(inputs: Sequence[Any], attributes: Attributes) -> list[Array]:
    x, gamma, beta, skip, *bias = inputs
    skip = skip[:, None, None, :] if skip.ndim == 2 else skip
    added = x + skip + (bias[0] if bias else 0)
    return [group_norm([added, gamma, beta], attributes), added]


# ---------------------------------------------------------------------- attention
def _attend(q: Array, k: Array, v: Array, scale: float | None, mask: Any = 0) -> list[Array]:
    """[b, s, h*e], and the weights, of q, k and v [b, h, s, d]."""
    scores = q @ k.swapaxes(2, 3) * (scale or q.shape[-1] ** -0.5) + mask
    weights = _softmax(scores)
    y = (weights @ v).swapaxes(1, 2)
    return [y.reshape(*y.shape[:2], -1), weights]


def _heads(x: Array, count: int) -> Array:
    return x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)


def attention(inputs: Sequence[Any], attributes: Attributes) -> list[Array]:
    """Without a mask, with one of four dims and a past, or with the number of keys of each row."""
    x, weights, bias, mask, past = [*inputs, None, None, None][:5]
    projected = x @ weights + (0 if bias is None else bias)
    q, k, v = (_heads(p, attributes["num_heads"]) for p in np.split(projected, 3, axis=-1))
    if past is not None:
        k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    seen = _seen(mask, q.shape[2], k.shape[2])
    if attributes.get("unidirectional"):
        seen = seen & np.tri(q.shape[2], k.shape[2], k.shape[2] - q.shape[2], bool)
    y = _attend(q, k, v, None, np.where(seen, 0, -10000.0))[0]
    return [y] if past is None else [y, np.stack([k, v])]


def _seen(mask: Array | None, queries: int, keys: int) -> Array:
    """Which keys a query sees, [batch or 1, 1, queries or 1, keys]."""
    if mask is None:
        return np.ones((1, 1, 1, keys), bool)
    if mask.ndim == 1:
        return (np.arange(keys) < mask[:, None])[:, None, None]
    return mask[:, :, keys - queries:keys, :keys] > 0


def multi_head_attention(inputs: Sequence[Any], attributes: Attributes) -> list[Array]:
    """With packed inputs, or with a past."""
    query, key, value, *_, past_key, past_value = [*inputs, *[None] * (8 - len(inputs))]
    heads = attributes["num_heads"]
    if key is None:
        q, k, v = (query[:, :, :, j].swapaxes(1, 2) for j in range(3))
    elif value is None:
        q, k, v = _heads(query, heads), *(key[:, :, :, j].swapaxes(1, 2) for j in (0, 1))
    else:
        q, k, v = (_heads(x, heads) for x in (query, key, value))
        k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
    y, weights = _attend(q, k, v, None)
    return [y, k, v, weights]


def decoder_attention(inputs: Sequence[Any], attributes: Attributes) -> list[Array]:
    """Of keys of four dims, perhaps with a mask, or with a past."""
    query, key, value, mask, _, past_key, past_value = [*inputs, *[None] * (7 - len(inputs))]
    heads = attributes["num_heads"]
    q = _heads(query, heads)
    if key.ndim == 3:
        key, value = (np.concatenate([past, _heads(x, heads)], 2)
                      for past, x in ((past_key, key), (past_value, value)))
    added = 0 if mask is None else np.where(mask > 0, 0, -10000.0)[:, None, None]
    return [_attend(q, key, value, attributes.get("scale"), added)[0], key, value]


def gemma_rotary(inputs: Sequence[Any], attributes: Attributes) -> list[Array]:
    angles, q, q_turned, k, k_turned = (np.asarray(x, np.float64) for x in inputs)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    return [q * cos + q_turned * sin, k * cos + k_turned * sin]


def relative_position_bias(inputs: Sequence[Any], attributes: Attributes) -> Array:
    """As T5 has it, one pair of positions after the other."""
    table, queries, keys = inputs
    buckets, heads = table.shape
    both, limit = attributes.get("is_bidirectional", 0), attributes["max_distance"]
    count = buckets // 2 if both else buckets
    result = np.empty((1, heads, int(queries), int(keys)))
    for q, k in np.ndindex(int(queries), int(keys)):
        distance, offset = q - k, 0
        if both:
            offset, distance = (count if distance < 0 else 0), abs(distance)
        distance, exact = max(distance, 0), count // 2
        if distance >= exact:
            far = math.log(distance / exact) / math.log(limit / exact) * (count - exact)
            distance = min(exact + int(np.float32(far)), count - 1)
        result[0, :, q, k] = table.reshape(heads, buckets)[:, distance + offset]
    return result


# ---------------------------------------------------------------------- products
def matmul_bnb4(inputs: Sequence[Any], attributes: Attributes) -> Array:
    """Without transB; the tables are those of bitsandbytes."""
    x, packed, largest = inputs
    fp4 = np.array([0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4])
    nf4 = np.array([
        -1.0, -0.69619280, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0.0,
        0.07958030, 0.16093020, 0.24611230, 0.33791524, 0.44070983, 0.56261700, 0.72295684, 1.0])
    codes = np.stack([packed >> 4, packed & 15], 1).reshape(-1)
    real = (nf4 if attributes["quant_type"] else np.concatenate([fp4, -fp4]))[codes]
    scales = np.repeat(largest, attributes["block_size"])
    return x @ (real * scales).reshape(attributes["N"], attributes["K"])


def mul_integer(inputs: Sequence[Any], attributes: Attributes) -> Array:
    a, a_zero, b, b_zero = (0 if x is None else np.asarray(x, np.int32)
                            for x in [*inputs, None][:4])
    return ((a - a_zero) * (b - b_zero)).astype(np.int32)


def reduce_sum_integer(inputs: Sequence[Any], attributes: Attributes) -> Array:
    [x] = inputs
    return x.sum(tuple(attributes["axes"]), np.int32 if x.dtype == np.int8 else np.uint32,
                 keepdims=bool(attributes["keepdims"]))


def qlinear_reduce_mean(inputs: Sequence[Any], attributes: Attributes) -> Array:
    x, x_scale, x_zero, scale, zero = inputs
    real = (x.astype(np.float32) - x_zero) * x_scale
    mean = real.mean(tuple(attributes["axes"]), keepdims=bool(attributes["keepdims"]))
    return np.clip(np.round(mean / scale) + zero, 0, 255).astype(np.uint8)


def nhwc_conv(inputs: Sequence[Any], attributes: Attributes) -> Array:
    """Window by window."""
    x, w, b, z = [*inputs, None, None][:4]
    top, left, bottom, right = attributes["pads"]
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    down, across = attributes["strides"]
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (1, 2))
    y = np.einsum("nhwcij,ocij->nhwo", windows[:, ::down, ::across], w) + b
    return y if z is None else np.maximum(y + z, 0)


# ---------------------------------------------------------------------- others
def is_all_finite(inputs: Sequence[Any], attributes: Attributes) -> Array:
    tests = [np.isnan] * (not attributes.get("isinf_only")) + [np.isinf] * (
        not attributes.get("isnan_only"))
    return np.array(not any(test(x).any() for x in inputs for test in tests))


def rfft(inputs: Sequence[Any], attributes: Attributes) -> Array:
    spectrum = np.fft.rfft(inputs[0])
    return np.stack([spectrum.real, spectrum.imag], -1)


def complex_mul(inputs: Sequence[Any], attributes: Attributes) -> Array:
    a, b = (x[..., 0] + 1j * x[..., 1] for x in inputs)
    return np.stack([(a * b).real, (a * b).imag], -1)


DEFINITIONS: dict[str, Definition] = {
    "BiasSplitGelu": bias_split_gelu, "BiasAdd": lambda inputs, _: sum(inputs),
    "BiasSoftmax": bias_softmax, "GroupNorm": group_norm, "SkipGroupNorm": skip_group_norm,
    "Attention": attention, "MultiHeadAttention": multi_head_attention,
    "DecoderMaskedMultiHeadAttention": decoder_attention, "GemmaRotaryEmbedding": gemma_rotary,
    "RelativePositionBias": relative_position_bias, "MatMulBnb4": matmul_bnb4,
    "FusedMatMulActivation": lambda inputs, _: np.maximum(inputs[0] @ inputs[1].T, 0),
    "GemmFastGelu": lambda inputs, _: _fast_gelu(inputs[0] @ inputs[1] + inputs[2]),
    "MulInteger": mul_integer, "ReduceSumInteger": reduce_sum_integer,
    "QLinearReduceMean": qlinear_reduce_mean, "NhwcConv": nhwc_conv, "NhwcFusedConv": nhwc_conv,
    "TorchEmbedding": lambda inputs, _: inputs[0][inputs[1]], "IsAllFinite": is_all_finite,
    "Rfft": rfft, "ComplexMul": complex_mul,
    "Irfft": lambda inputs, _: np.fft.irfft(inputs[0][..., 0] + 1j * inputs[0][..., 1]),
    "ComplexMulConj": lambda inputs, _: complex_mul([inputs[0], inputs[1] * [1, -1]], {}),
}
