"""Samples of the operators of onnxruntime's own domain, com.microsoft."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.frontend.onnx_models import C, F, Op, b, f, i8, i32, op, u8

X = f(2, 3, 4)
HALF = F((2, 3, 8), dtype=np.float16)
IMAGE = f(2, 3, 8, 6)
LAST = f(2, 8, 6, 4)


def ms(op_type: str, *operands: Any, **more: Any) -> Op:
    return op(op_type, *operands, opsets=(1,), domain="com.microsoft", **more)


def defined(op_type: str, *operands: Any, **more: Any) -> Op:
    """One that onnxruntime has no kernel for on CPUs."""
    return ms(op_type, *operands, defined=True, **more)


def n32(*values: int) -> C:
    return C(values, np.int32)


def _scale(value: float | Sequence[float]) -> C:
    return C(value, np.float32)


ACTIVATIONS = [
    ms("Gelu", X), ms("BiasGelu", f(2, 3, 8), f(8)), ms("FastGelu", X), ms("FastGelu", X, f(4)),
    ms("QuickGelu", X), ms("QuickGelu", X, alpha=0.5), ms("ScaledSiLU", X, alpha=0.7),
    ms("ScaledSiLU", X, _scale(1.5)), defined("BiasAdd", X, f(4), X),
    defined("BiasSplitGelu", f(2, 3, 8), f(8), open_sizes=(2, 3)),
    defined("BiasSplitGelu", f(2, 3, 8), f(8)),
    defined("BiasSoftmax", f(2, 3, 4, 5), f(2, 1, 1, 5), axis=3, is_inner_broadcast=1),
    defined("BiasSoftmax", f(2, 3, 4, 5), f(4, 5), axis=2, is_inner_broadcast=0),
    defined("BiasSoftmax", f(2, 3, 4, 5), f(2, 5), axis=3, is_inner_broadcast=1),
]

NORMALIZATIONS = [
    op("LayerNormalization", X, f(4), f(4), opsets=(11, 17)),
    op("SimplifiedLayerNormalization", X, f(4), opsets=(11, 17)),
    op("SimplifiedLayerNormalization", X, f(3, 4), axis=1, epsilon=0.1, outputs=2),
    op("SimplifiedLayerNormalization", HALF, F((8,), dtype=np.float16), tolerance=4e-3),
    ms("SkipLayerNormalization", X, X, f(4)), ms("SkipLayerNormalization", X, X, f(4), f(4)),
    ms("SkipLayerNormalization", X, f(3, 4), f(4), f(4), f(4), epsilon=0.01),
    ms("SkipLayerNormalization", X, f(1, 3, 4), f(4), None, f(4)),
    ms("SkipSimplifiedLayerNormalization", X, X, f(4)),
    ms("SkipSimplifiedLayerNormalization", f(6, 4), f(6, 4), f(4), f(4), epsilon=1e-5),
    ms("SkipSimplifiedLayerNormalization", HALF, HALF, *[F((8,), dtype=np.float16)] * 2,
       tolerance=1e-2),
    ms("GatedRMSNorm", f(2, 3, 8), f(4), f(2, 3, 8)),
    ms("GatedRMSNorm", f(2, 3, 4), f(4), X, activation="sigmoid", epsilon=0.1),
    ms("EmbedLayerNormalization", i32(2, 3, low=0, high=9), i32(2, 3, low=0, high=2), f(9, 8),
       f(5, 8), f(2, 8), f(8), f(8), C([[1, 1, 0], [1, 0, 0]], np.int32), outputs=3),
    ms("EmbedLayerNormalization", i32(2, 3, low=0, high=9), None, f(9, 8), f(5, 8), None, f(8),
       f(8), outputs=2),
    ms("EmbedLayerNormalization", i32(2, 3, low=0, high=9), None, f(9, 8), f(5, 8), None, f(8),
       f(8), None, i32(2, 3, low=0, high=5), outputs=2, epsilon=0.01),
    ms("QEmbedLayerNormalization", i32(2, 3, low=0, high=9), i32(2, 3, low=0, high=2),
       *map(C, (np.arange(s, dtype=np.uint8).reshape(-1, 8) for s in (72, 40, 16))),
       *[C(np.arange(8, dtype=np.uint8))] * 2, C([[1, 1, 0], [1, 0, 0]], np.int32),
       *[_scale(0.01 * k) for k in range(1, 6)], *[C(10 * k, np.uint8) for k in range(5)],
       outputs=2),
    defined("GroupNorm", f(2, 3, 4, 8), f(8), f(8), groups=4, activation=0, open_sizes=(2, 3, 4)),
    defined("GroupNorm", f(2, 8, 3, 4), f(8), f(8), groups=2, activation=1, channels_last=0,
            open_sizes=(2, 3, 4)),
    defined("SkipGroupNorm", f(2, 3, 4, 8), f(8), f(8), f(2, 8), f(8), groups=4, activation=1,
            outputs=2, open_sizes=(2, 3, 4)),
    defined("SkipGroupNorm", f(2, 3, 4, 8), f(8), f(8), f(2, 3, 4, 8), groups=4, activation=0,
            open_sizes=(2, 3, 4)),
]

# Projected: 3 heads of 4. Past: 5. So the keys are 7 with a past, and 2 without.
_A = [f(6, 2, 8), f(8, 36, low=-1, high=1), f(36)]
_PAST = f(2, 6, 3, 5, 4)
_MASK = C(np.tril(np.ones((6, 7), np.int32)))
_ROW = f(6, 2, 12)
_ROWS = [_ROW] * 3
_STATE = f(6, 3, 5, 4)


def _attention(
    *operands: Any, op_type: str = "Attention", open_sizes: tuple[int, ...] = (6, 2, 5),
    **more: Any,
) -> Op:
    return ms(op_type, *operands, open_sizes=open_sizes, num_heads=3, **more)


ATTENTIONS = [
    _attention(*_A), _attention(*_A[:2], defined=True),
    _attention(*_A, unidirectional=1, scale=0.3),
    _attention(*_A, None, _PAST, outputs=2), _attention(*_A, None, _PAST, unidirectional=1,
                                                        outputs=2),
    _attention(*_A, outputs=2),
    _attention(*_A, n32(1, 2, 2, 1, 1, 2)),
    _attention(*_A, n32(*[2] * 6, *[0, 1] * 3), symbolic=False),
    _attention(*_A, C(np.tri(6, 2, 0, np.int32)), unidirectional=1),
    _attention(*_A, _MASK, _PAST, outputs=2, unidirectional=1, mask_filter_value=-50.0),
    _attention(*_A, C(np.tri(12, 7, 3, np.int32).reshape(6, 2, 7)), _PAST, outputs=2),
    _attention(*_A, None, None, f(1, 3, 2, 2)), _attention(*_A, None, None, f(6, 1, 2, 2)),
    _attention(f(6, 2, 8), f(8, 33), f(33), qkv_hidden_sizes=[9, 9, 15]),
    _attention(*_A, C(np.tri(7, dtype=np.int32).reshape(1, 1, 7, 7).repeat(6, 0)), _PAST,
               outputs=2, defined=True),
    _attention(u8(6, 2, 8), i8(8, 36), f(36), _scale(0.01), _scale(0.005), None, C(128, np.uint8),
               C(3, np.int8), op_type="QAttention"),
    _attention(u8(6, 2, 8), C(np.arange(288).astype(np.int8).reshape(8, 36)), f(36), _scale(0.01),
               _scale(np.linspace(0.001, 0.01, 36).tolist()), n32(1, 2, 2, 1, 1, 2),
               C(7, np.uint8), None, _PAST, op_type="QAttention", outputs=2, unidirectional=1),
    _attention(*_A, None, _PAST, outputs=2, open_sizes=()),
    _attention(u8(6, 2, 8), i8(8, 36), f(36), _scale(0.01), _scale(0.005), None, C(128, np.uint8),
               C(3, np.int8), op_type="QAttention", open_sizes=()),
]


def _multi(*operands: Any, **more: Any) -> Op:
    return _attention(*operands, op_type="MultiHeadAttention", **more)


MULTI_HEADS = [
    _multi(*_ROWS), _multi(*_ROWS, f(36)), _multi(*_ROWS, unidirectional=1, scale=0.2),
    _multi(_ROW, f(6, 5, 12), f(6, 5, 9)), _multi(_ROW, f(6, 5, 12), f(6, 5, 9), f(33)),
    _multi(_ROW, f(6, 5, 12), f(6, 5, 12), None, i32(6, low=1, high=6)),
    _multi(_ROW, f(6, 5, 12), f(6, 5, 12), None, C(np.tri(6, 5, dtype=np.int32))),
    _multi(_ROW, f(6, 5, 12), f(6, 5, 12), None, C(np.tri(12, 5, 0, np.int32).reshape(6, 2, 5)),
           f(1, 3, 2, 5)),
    _multi(_ROW, _STATE, _STATE), _multi(_ROW, _STATE, _STATE, outputs=1),
    _multi(*_ROWS, None, None, None, _STATE, _STATE, outputs=3),
    _multi(*_ROWS, f(36), _MASK, f(6, 3, 2, 7), _STATE, _STATE, outputs=3, unidirectional=1),
    _multi(*_ROWS, None, None, None, _STATE, _STATE, outputs=4, defined=True),
    _multi(f(7, 6, 3, 3, 4), defined=True),
    _multi(f(7, 6, 12), f(7, 5, 3, 2, 4), symbolic=False, defined=True),
    _multi(*_ROWS, open_sizes=()),
    _multi(*_ROWS, open_sizes=(9,)), _multi(_ROW, f(6, 5, 12), f(6, 5, 9), open_sizes=(6, 9)),
    _multi(*_ROWS, f(36), None, None, _STATE, _STATE, outputs=3, open_sizes=()),
    _multi(_ROW, f(6, 5, 12), f(6, 5, 9), f(33), open_sizes=()),
    _multi(f(7, 6, 3, 3, 4), defined=True, open_sizes=(4, 6, 7)),
]


def _decoder(*operands: Any, **more: Any) -> Op:
    return _attention(*operands, op_type="DecoderMaskedMultiHeadAttention", **more)


_ONE = [f(6, 1, 12)] * 3
_LENGTH = F((1,), 3, 4, np.int32)

DECODERS = [
    _decoder(*_ONE, None, None, _STATE, _STATE, _LENGTH, past_present_share_buffer=1, outputs=3),
    _decoder(*_ONE, C(np.tri(6, 4, dtype=np.int32)), f(1, 3, 1, 4), _STATE, _STATE, _LENGTH, None,
             None, f(36), past_present_share_buffer=1, outputs=3, mask_filter_value=-3.0),
    _decoder(f(6, 1, 12), _STATE, _STATE, scale=0.3, defined=True),
    _decoder(f(6, 1, 12), _STATE, _STATE, C(np.tri(6, 5, dtype=np.int32)), defined=True),
    _decoder(*_ONE, None, None, _STATE, _STATE, outputs=3, defined=True),
    _decoder(*_ONE, None, None, _STATE, _STATE, outputs=3, defined=True, open_sizes=(4, 12)),
]

ROTARY = [
    ms("RotaryEmbedding", f(2, 3, 24), C([1]), f(7, 4), f(7, 4), open_sizes=(2, 3, 7)),
    ms("RotaryEmbedding", f(2, 3, 24), C([[0, 1, 2], [4, 6, 5]]), f(7, 4), f(7, 4), interleaved=1,
       open_sizes=(2, 3, 7)),
    ms("RotaryEmbedding", f(2, 3, 24), C([1]), f(7, 2), f(7, 2), num_heads=3,
       rotary_embedding_dim=4, scale=2.0, open_sizes=(3, 7)),
    ms("RotaryEmbedding", f(2, 5, 3, 8), C([1]), f(7, 4), f(7, 4), open_sizes=(2, 3, 5, 7)),
    ms("RotaryEmbedding", F((2, 3, 24), dtype=np.float16), C([1]),
       *[F((7, 4), -1, 1, np.float16)] * 2, open_sizes=(2, 3, 7), tolerance=4e-3),
    ms("RotaryEmbedding", f(2, 3, 24), C([1]), f(7, 4), f(7, 4), open_sizes=(24,)),
    ms("RotaryEmbedding", f(2, 3, 24), C([1]), f(7, 4), f(7, 4)),
    ms("RotaryEmbedding", f(2, 3, 24), C([1]), f(7, 2), f(7, 2), num_heads=3,
       rotary_embedding_dim=4, interleaved=1, open_sizes=(24,)),
    defined("GemmaRotaryEmbedding", f(2, 3, 4), *[F((2, 5, 3, 4), dtype=np.float16)] * 4, outputs=2,
       tolerance=4e-3),
    defined("RelativePositionBias", f(32, 3), C(40), C(40), max_distance=20, open_sizes=(9,)),
    defined("RelativePositionBias", f(8, 3), C(5), C(7), max_distance=20, is_bidirectional=1,
       open_sizes=(9,)),
]


def _grouped(
    length: int, past: int, lengths: Sequence[int], *more: Any, packed: bool = False,
    size: int = 16, dtype: Any = np.float32, most: float = 3.0,
    open_sizes: tuple[int, ...] | None = None, **options: Any,
) -> Op:
    """4 heads in 2 groups; the longest length decides on the cache's size."""
    batch, whole = len(lengths), max(max(lengths), length)
    rows = [8 * size] if packed else [4 * size, 2 * size, 2 * size]
    given = [F((batch, length, row), -most, most, dtype) for row in rows]
    given += [None] * (3 - len(rows))
    state = [F((batch, 2, past, size), dtype=dtype)] * 2 if past else [None, None]
    return ms("GroupQueryAttention", *given, *state, n32(*[k - 1 for k in lengths]),
              C(whole, np.int32), *more, num_heads=4, kv_num_heads=2, outputs=3,
              open_sizes=(batch, length, past) if open_sizes is None else open_sizes, **options)


def _experts(
    rows: tuple[int, ...] = (5,), fused: int = 1, bias: bool = True, **options: Any
) -> Op:
    """Three experts, which are 16 wide, for rows of 8."""
    biases = [f(3, 16 * fused), f(3, 8)] if bias else [None, None]
    return ms("MoE", f(*rows, 8), f(int(np.prod(rows)), 3), f(3, 16 * fused, 8), biases[0],
              f(3, 8, 16), biases[1], tolerance=2e-4, **options)


def _half(*shape: int) -> F:
    return F(shape, dtype=np.float16)


_ALIKE = np.array([[0.5, 0.5005, -0.1], [0.25, 0.2502, -3], [1, 0, 0.999]], np.float16)
"""Scores whose softmax has equal halves, but of which one is the largest."""

EXPERTS = [
    _experts(), _experts((2, 3), k=2, activation_type="gelu", bias=False),
    _experts(k=2, activation_type="silu", normalize_routing_weights=1),
    _experts((1,), k=3, activation_type="identity"),
    _experts(k=2, fused=2, activation_type="swiglu", swiglu_fusion=1),
    _experts(k=2, fused=2, activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.7,
             activation_beta=1.0, swiglu_limit=0.5),
    ms("MoE", _half(3, 8), C(_ALIKE), _half(3, 16, 8), _half(3, 16), _half(3, 8, 16), _half(3, 8),
       normalize_routing_weights=1, tolerance=4e-3)]


def _hidden(low: float) -> C:
    """What hides the first two keys, so that the first two queries see nothing."""
    return C(np.float32(np.where(np.arange(5) < 2, low, 0.0) * np.ones((1, 1, 5, 1))))


_ANGLES = [f(17, 8, low=-1, high=1)] * 2

GROUPED = [
    _grouped(5, 0, [5] * 3), _grouped(5, 0, [5] * 3, packed=True, scale=0.2),
    _grouped(5, 6, [5] * 3), _grouped(1, 6, [7] * 3), _grouped(1, 6, [7, 3, 5]),
    _grouped(1, 11, [7, 3, 5]), _grouped(5, 11, [5] * 3), _grouped(3, 6, [9]),
    _grouped(1, 6, [7, 3, 5], packed=True), _grouped(1, 6, [7, 3, 5], *_ANGLES, do_rotary=1),
    _grouped(5, 6, [5] * 3, *_ANGLES, do_rotary=1), _grouped(3, 6, [9], *_ANGLES, do_rotary=1),
    _grouped(5, 0, [5] * 3, *_ANGLES, do_rotary=1, rotary_interleaved=1, packed=True),
    _grouped(1, 6, [7, 3, 5], *_ANGLES, do_rotary=1, size=32),
    _grouped(1, 6, [7, 3, 5], *_ANGLES, C([[6], [1], [9]]), do_rotary=1),
    _grouped(5, 6, [5] * 2, *_ANGLES, C([[0, 1, 2, 3, 4]] * 2), do_rotary=1),
    _grouped(3, 6, [9], local_window_size=4), _grouped(5, 0, [5] * 3, local_window_size=2),
    _grouped(1, 6, [7, 3, 5], softcap=5.0), _grouped(5, 0, [5] * 3, smooth_softmax=1),
    _grouped(1, 6, [7, 3, 5], None, None, None, f(3, 4, 1, 7)),
    _grouped(5, 0, [5] * 3, None, None, None, f(1, 1, 5, 5), softcap=5.0),
    _grouped(1, 6, [7, 3, 5], None, None, None, None, f(4)),
    _grouped(5, 0, [5] * 3, open_sizes=(32, 64)),
    _grouped(5, 6, [5] * 3, *_ANGLES, do_rotary=1, packed=True, open_sizes=(128,)),
    _grouped(3, 6, [9], causal=0), _grouped(5, 0, [5] * 3, causal=0),
    _grouped(3, 6, [9], dtype=np.float16, tolerance=6e-3),
    _grouped(5, 0, [5] * 3, dtype=np.float16, most=300.0, tolerance=6e-3),
    _grouped(5, 0, [5] * 3, None, None, None, _hidden(-np.inf)),
    _grouped(5, 0, [5] * 3, None, None, None, _hidden(float(np.finfo(np.float32).min))),
    _grouped(5, 0, [5] * 3, local_window_size=0),
]

# ---------------------------------------------------------------------- products and convolutions
def _bits(rows: int, size: int, block: int, bits: int, *more: Any, **options: Any) -> Op:
    """A product with weights [rows, size] of some bits."""
    blocks = -(-size // block)
    return ms("MatMulNBits", f(2, 3, size), u8(rows, blocks, block * bits // 8),
              f(rows, blocks, low=0.01, high=0.1), *more, N=rows, K=size, block_size=block,
              bits=bits, open_sizes=(2, 3), tolerance=2e-4, **options)


def _bnb(kind: int, **options: Any) -> Op:
    width = 48 if options.get("transB", 1) else 9
    return ms("MatMulBnb4", f(2, 3, width), u8(216), f(27, low=0.01, high=0.1), N=9, K=48,
              block_size=16, quant_type=kind, open_sizes=(2, 3), **options)


PRODUCTS = [
    ms("FusedMatMul", f(3, 4), f(4, 5), alpha=0.5), ms("FusedMatMul", f(4, 3), f(4, 5), transA=1),
    ms("FusedMatMul", f(2, 3, 4), f(2, 5, 4), transB=1), ms("FusedMatMul", f(4), f(2, 4, 5)),
    ms("FusedMatMul", f(3, 2, 4), f(2, 4, 5), transBatchA=1),
    ms("FusedMatMul", f(4, 2, 3), f(5, 2, 4), transBatchA=1, transA=1, transBatchB=1, transB=1),
    ms("TransposeMatMul", f(2, 4, 3), f(2, 5, 4), transA=1, transB=1, alpha=2.0),
    defined("FusedMatMulActivation", f(3, 4), f(5, 4), transB=1, activation="Relu"),
    ms("FusedGemm", f(3, 4), f(4, 5), f(5), activation="Relu", alpha=0.5, beta=2.0),
    ms("FusedGemm", f(4, 3), f(4, 5), transA=1, activation="LeakyRelu", activation_alpha=0.2),
    *[ms("FusedGemm", f(3, 4), f(4, 5), f(3, 5), activation=name, tolerance=2e-4)
      for name in ("Tanh", "Sigmoid", "Softplus", "Softsign")],
    ms("FusedGemm", f(3, 4), f(4, 5), activation="Elu", activation_alpha=0.5),
    ms("FusedGemm", f(3, 4), f(4, 5), activation="HardSigmoid", activation_alpha=0.1,
       activation_beta=0.4),
    defined("GemmFastGelu", X, f(4, 5), f(5)),
    *[_bits(5, 40, 16, bits) for bits in (2, 4, 8)], _bits(5, 32, 16, 4, u8(5, 1)),
    _bits(5, 48, 16, 4, u8(5, 2)), _bits(5, 48, 16, 8, u8(5, 3)), _bits(5, 48, 16, 2, u8(5, 1)),
    _bits(5, 48, 16, 4, f(5, 3, low=0, high=15)), _bits(5, 48, 16, 4, None, None, f(5)),
    _bits(5, 48, 16, 4, None, n32(*[0, 1, 2] * 16)),
    *[_bnb(kind) for kind in (0, 1)], *[_bnb(kind, transB=0, defined=True) for kind in (0, 1)],
    ms("MatMulInteger16", F((2, 3, 4), -99, 99, np.int16), F((4, 5), -99, 99, np.int16)),
    ms("MatMulIntegerToFloat", u8(2, 3, 4), i8(4, 5), _scale(0.1), _scale(0.02)),
    ms("MatMulIntegerToFloat", u8(2, 3, 4), u8(4, 5), _scale(0.1), f(5, low=0.01, high=0.1),
       C(9, np.uint8), C(range(5), np.uint8), f(5), open_sizes=(2, 3, 4)),
    ms("DynamicQuantizeMatMul", f(2, 3, 4), i8(4, 5), _scale(0.02), tolerance=1e-4),
    ms("DynamicQuantizeMatMul", f(2, 3, 4), u8(4, 5), f(5, low=0.01, high=0.1),
       C(range(5), np.uint8), f(5), tolerance=1e-4, open_sizes=(2, 3, 4)),
    defined("MulInteger", u8(3, 4), C(9, np.uint8), u8(4)),
    defined("MulInteger", i8(3, 4), None, i8(4), C(-3, np.int8)),
]

_FILTER = f(4, 3, 3, 2)
_WINDOW = {"pads": [1, 0, 1, 1], "strides": [2, 1]}

CONVOLUTIONS = [
    ms("FusedConv", IMAGE, _FILTER, f(4), activation="Relu", open_sizes=(8, 6)),
    ms("FusedConv", IMAGE, _FILTER, f(4), f(2, 4, 4, 6), activation="Tanh", open_sizes=(8,),
       tolerance=1e-4, **_WINDOW),
    *[ms("FusedConv", IMAGE, _FILTER, None, open_sizes=(8,), activation=name, tolerance=1e-4,
         activation_params=values)
      for name, values in (("LeakyRelu", [0.3]), ("Clip", [-1.0, 2.0]),
                           ("HardSigmoid", [0.1, 0.6]))],
    defined("NhwcConv", LAST, f(5, 4, 3, 2), f(5), open_sizes=(8, 6), **_WINDOW),
    defined("NhwcFusedConv", LAST, f(5, 4, 3, 2), f(5), f(2, 4, 6, 5), activation="Relu",
            open_sizes=(8,), **_WINDOW),
    ms("NhwcMaxPool", u8(2, 8, 6, 4), kernel_shape=[3, 2], open_sizes=(8, 6), **_WINDOW),
]


# ---------------------------------------------------------------------- quantized operators
def _q(op_type: str, *operands: Any, **more: Any) -> Op:
    """Results of quantization may differ by a step where numbers lie between two."""
    return ms(op_type, *operands, steps=1, **more)


def _z(value: int, signed: bool = False) -> C:
    return C(value, np.int8 if signed else np.uint8)


_IN, _OUT = (_scale(0.05), _z(120)), (_scale(0.04), _z(100))
_SIGNED = (_scale(0.03), _z(-7, signed=True))

QUANTIZED = [
    *[_q(name, u8(2, 3, 4), *_IN, u8(3, 1), _scale(0.02), _z(9), *_OUT)
      for name in ("QLinearAdd", "QLinearMul")],
    *[_q(name, i8(3, 4), _scale(0.05), _z(5, signed=True), i8(4), *_SIGNED, *_SIGNED)
      for name in ("QLinearAdd", "QLinearMul")],
    _q("QLinearSigmoid", u8(3, 4), *_IN, _scale(0.004), _z(0)),
    _q("QLinearSigmoid", i8(3, 4), *_SIGNED, _scale(0.008), _z(-9, signed=True)),
    _q("QLinearLeakyRelu", u8(3, 4), *_IN, *_OUT, alpha=0.2),
    _q("QLinearLeakyRelu", i8(3, 4), *_SIGNED, *_SIGNED),
    _q("QLinearWhere", b(3, 4), u8(3, 4), *_IN, u8(3, 1), _scale(0.02), _z(9), *_OUT),
    _q("QLinearConcat", *_OUT, u8(2, 3), *_IN, u8(2, 5), _scale(0.02), _z(9), axis=1),
    _q("QLinearAveragePool", u8(2, 3, 8, 6), *_IN, *_OUT, kernel_shape=[3, 2], pads=[1, 0, 1, 1],
       strides=[2, 1], open_sizes=(8, 6)),
    _q("QLinearAveragePool", i8(2, 8, 6, 3), *_SIGNED, *_SIGNED, kernel_shape=[2, 2],
       channels_last=1, count_include_pad=1, pads=[1, 1, 1, 1], open_sizes=(8, 6)),
    _q("QLinearGlobalAveragePool", u8(2, 3, 8, 6), *_IN, *_OUT),
    _q("QLinearGlobalAveragePool", u8(2, 8, 6, 3), *_IN, *_OUT, channels_last=1),
    _q("QLinearReduceMean", u8(2, 3, 4), *_IN, *_OUT, axes=[1], keepdims=0, defined=True),
    defined("ReduceSumInteger", i8(2, 3, 4), axes=[0, -1], keepdims=1),
    defined("ReduceSumInteger", u8(2, 3, 4), axes=[1], keepdims=0),
    _q("QLinearSoftmax", u8(2, 3, 4), *_IN, _scale(1 / 256), _z(0), opset=13, axis=1),
    _q("QLinearSoftmax", i8(2, 3, 4), *_SIGNED, _scale(1 / 256), _z(-128, True), opset=11, axis=1),
    _q("QGemm", u8(3, 4), *_IN, u8(4, 5), _scale(0.01), _z(99), None, *_OUT, alpha=2.0),
    _q("QGemm", i8(4, 3), *_SIGNED, i8(5, 4), _scale([0.01, 0.02, 0.03, 0.01, 0.02]),
       C([0] * 5, np.int8), i32(5), transA=1, transB=1, open_sizes=(3, 4)),
    _q("QLinearConv", u8(2, 8, 6, 3), *_IN, i8(4, 3, 3, 2), *_SIGNED, _scale(1.0), _z(99), i32(4),
       channels_last=1, open_sizes=(8, 6)),
    _q("QLinearConv", u8(2, 3, 8, 6), *_IN, u8(4, 3, 3, 2), _scale(0.01), _z(77), _scale(1.0),
       _z(99), open_sizes=(8, 6), **_WINDOW),
    *[_q("QuantizeLinear", f(3, 4), _scale(0.05), C(3, dtype))
      for dtype in (np.uint8, np.int8, np.uint16, np.int16)],
    _q("QuantizeLinear", f(3, 4), _scale([0.1, 0.2, 0.3]), C([1, 2, 3], np.uint8), axis=0,
       open_sizes=(4,)),
    *[ms("DequantizeLinear", F((3, 4), 0, 99, dtype), _scale(0.05), C(3, dtype))
      for dtype in (np.uint8, np.int8, np.uint16, np.int16)],
    ms("DequantizeLinear", i32(3, 4), _scale(0.05)),
    ms("GatherBlockQuantized", u8(7, 16), i32(2, 3, low=0, high=7), f(7, 2, low=0.01, high=0.1),
       block_size=16, bits=4, quantize_axis=1, open_sizes=(2, 3)),
    ms("GatherBlockQuantized", u8(7, 48), i32(5, low=0, high=7), f(7, 3, low=0.01, high=0.1),
       u8(7, 3), block_size=16, bits=8, quantize_axis=1, open_sizes=(5,)),
    ms("DynamicQuantizeLSTM", f(3, 2, 4), i8(1, 4, 20), i8(1, 5, 20), f(1, 40), None, None, None,
       None, _scale([0.01]), C([0], np.int8), _scale([0.01]), C([0], np.int8), hidden_size=5,
       outputs=3, tolerance=0.03, symbolic=False),
    ms("DynamicQuantizeLSTM", f(3, 2, 4), u8(2, 4, 20), u8(2, 5, 20), f(2, 40), None, f(2, 2, 5),
       f(2, 2, 5), None, f(2, 20, low=0.005, high=0.01), C([[128] * 20] * 2, np.uint8),
       f(2, 20, low=0.005, high=0.01), C([[128] * 20] * 2, np.uint8), hidden_size=5,
       direction="bidirectional", outputs=3, tolerance=0.03, symbolic=False),
]

# ---------------------------------------------------------------------- others
_REGIONS = np.float32([[0.1, 0.2, 0.9, 0.7], [-0.2, 0.0, 0.5, 1.4], [0.8, 0.9, 0.2, 0.1]])

OTHERS = [
    ms("SampleOp", X), ms("Trilu", f(2, 4, 5)), ms("Trilu", f(4, 5), C(1), upper=0),
    ms("GatherND", f(3, 4, 5), C([[0, 1], [2, 3]])), ms("ExpandDims", X, C(1, np.int32)),
    ms("ExpandDims", X, C(-1, np.int32)), ms("Pad", f(3, 4), C([0, 2, 1, 0]), C([1.5])),
    ms("Pad", f(3, 4), C([[0, 2, 1, 0]]), mode="reflect", symbolic=False),
    ms("Range", C(2), C(9)), ms("Range", C(2.0), C(4.0), C(0.5)),
    defined("TorchEmbedding", f(7, 4), C([[0, 6, 3]])), ms("UnfoldTensor", X, size=2),
    ms("UnfoldTensor", f(3, 9, 4), dim=1, size=3, step=2),
    defined("IsAllFinite", X, f(3)), defined("IsAllFinite", X, C([np.inf])),
    defined("IsAllFinite", np.float32([[1.0, np.nan]]), isinf_only=1),
    defined("IsAllFinite", np.float32([[1.0, np.inf]]), isnan_only=1),
    ms("GridSample", IMAGE, f(2, 5, 4, 2, low=-1.2, high=1.2), mode="bilinear", tolerance=1e-4),
    ms("GridSample", IMAGE, f(2, 5, 4, 2, low=-1.2, high=1.2), mode="bicubic",
       padding_mode="border", align_corners=1, tolerance=1e-4),
    defined("Rfft", f(2, 3, 10), signal_ndim=1, open_sizes=(2, 3), tolerance=1e-4),
    defined("Irfft", f(2, 3, 6, 2), signal_ndim=1, open_sizes=(3,), tolerance=1e-4),
    *[defined(name, f(3, 2), f(3, 2), symbolic=False) for name in ("ComplexMul", "ComplexMulConj")],
    *[ms("CDist", f(3, 4), f(5, 4), metric=name, tolerance=1e-4)
      for name in ("euclidean", "sqeuclidean")],
    ms("Inverse", f(2, 3, 4, 4), open_sizes=(2, 3), tolerance=2e-3),
    ms("Inverse", np.float32([[0.0, 2.0], [3.0, 0.0]]), symbolic=False), ms("Inverse", f(1, 1)),
    *[ms("CropAndResize", IMAGE, _REGIONS, n32(0, 1, 0), n32(4, 5), mode=mode,
         extrapolation_value=-9.0, tolerance=1e-4) for mode in ("bilinear", "nearest")],
    ms("CropAndResize", IMAGE, _REGIONS, n32(0, 1, 0), n32(1, 3)),
]

EXPERIMENTAL = [
    op("Affine", f(2, 3), opsets=(1, 6), alpha=2.0, beta=-1.0),
    op("Scale", f(2, 3), opsets=(1, 6), scale=2.0),
    op("ScaledTanh", f(2, 3), opsets=(1, 6), alpha=2.0, beta=0.5),
    op("ParametricSoftplus", f(2, 3), opsets=(1, 6), alpha=2.0, beta=0.5),
    op("ThresholdedRelu", f(2, 3), opsets=(1, 6), alpha=0.5),
    op("ImageScaler", f(2, 3, 4, 5), opsets=(1, 6), scale=2.0, bias=[1.0, 0.0, -1.0],
       open_sizes=(2, 4, 5)),
    op("Crop", f(2, 3, 7, 6), opsets=(1, 6), border=[1, 0, 2, 3]),
    op("Crop", f(2, 3, 7, 6), opsets=(1, 6), border=[1, 2, 0, 0], scale=[4, 3]),
]
"""Operators that ONNX has dropped."""

SAMPLES = [*EXPERIMENTAL, *ACTIVATIONS, *NORMALIZATIONS, *ATTENTIONS, *MULTI_HEADS, *DECODERS,
           *ROTARY, *GROUPED, *EXPERTS, *PRODUCTS, *CONVOLUTIONS, *QUANTIZED, *OTHERS]
