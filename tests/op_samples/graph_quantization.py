"""Samples of quantization, and of products of quantized tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

import dialects.graph as g
from dialects.strata import types as t
from dialects.strata.types import Array
from tests import byte_products
from tests.op_samples.sample import F16, F32, I8, I32, U8, Reference, S, Sample, onnx


def _f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


_SCALE, _SCALES = np.array(0.05, np.float32), _f32(0.1, 0.07, 0.3)
_ZERO, _ZEROS = np.array(117, np.uint8), np.array([3, -5, 0], np.int8)
_BLOCKS = np.linspace(0.02, 0.2, 8, dtype=np.float32).reshape(2, 4)

_LINEAR = [
    S(g.QuantizeLinearOp, F32(4, 9), _SCALE, _ZERO, dims="n m; ; ", to=t.ui8,
      reference=onnx("QuantizeLinear")),
    S(g.QuantizeLinearOp, F32(4, 3, 5), _SCALES, _ZEROS, dims="n 3 m; 3; 3", axis=1, to=t.i8,
      reference=onnx("QuantizeLinear", axis=1)),
    S(g.QuantizeLinearOp, F32(3, 5), _SCALES, dims="3 n; 3", axis=0, to=t.ui8,
      reference=onnx("QuantizeLinear", axis=0)),
    S(g.QuantizeLinearOp, F32(2, 11), _BLOCKS, dims="2 11; 2 4", axis=1, block_size=3, to=t.i16),
    S(g.QuantizeLinearOp, F16(4, 9), np.array(0.05, np.float16), dims="n m; ", to=t.ui8,
      precision=t.f32),
    S(g.QuantizeLinearOp, I32(4, 9), _SCALE, dims="n m; ", to=t.i8),
    S(g.QuantizeLinearOp, F32(4, 9), _SCALE, dims="n m; ", to=t.i4),
    S(g.QuantizeLinearOp, F32(4, 9), np.array(0.001, np.float32), dims="n m; ", to=t.f8E4M3FN,
      saturate=True),
    S(g.DequantizeLinearOp, U8(4, 9, high=250), _SCALE, _ZERO, dims="n m; ; ", to=t.f32,
      reference=onnx("DequantizeLinear")),
    S(g.DequantizeLinearOp, I8(4, 3, 5), _SCALES, _ZEROS, dims="n 3 m; 3; 3", axis=1, to=t.f32,
      reference=onnx("DequantizeLinear", axis=1)),
    S(g.DequantizeLinearOp, I32(5, 3), _SCALES, dims="n 3; 3", axis=1, to=t.f32,
      reference=onnx("DequantizeLinear", axis=1)),
    S(g.DequantizeLinearOp, I8(2, 11), _BLOCKS, dims="2 11; 2 4", axis=1, block_size=3, to=t.f16),
]

def _matmul(*arrays: Array) -> list[Array]:
    return [byte_products.matmul(*arrays).astype(np.int32)]


def _conv(**attributes: Any) -> Reference:
    return lambda *arrays: [byte_products.convolve(*arrays, **attributes).astype(np.int32)]


_PRODUCTS = [
    S(g.MatmulOp, U8(5, 70, high=250), I8(70, 9, low=-120, high=120), dims="m k; k n", to=t.i32,
      reference=_matmul),
    S(g.ConvOp, U8(1, 3, 7, 9, high=250), I8(4, 3, 3, 3), dims="n 3 h w; 4 3 3 3",
      pads=[1, 1, 1, 1], to=t.i32, reference=_conv(pads=[1, 1, 1, 1])),
    S(g.MatmulIntegerOp, U8(5, 70, high=250), I8(70, 9), _ZERO, np.array(-3, np.int8),
      dims="m k; k n; ; ", reference=_matmul),
    S(g.MatmulIntegerOp, U8(2, 5, 7), U8(7, 3), U8(5, 1), U8(3), dims="b 5 7; 7 3; 5 1; 3",
      reference=_matmul),
    S(g.MatmulIntegerOp, I8(7), I8(7), np.array(2, np.int8), np.array(0, np.int8),
      dims="k; k; ; ", reference=_matmul),
    S(g.ConvIntegerOp, U8(1, 4, 7, 9, high=250), I8(6, 2, 3, 3), _ZERO, np.array(2, np.int8),
      dims="n 4 h w; 6 2 3 3; ; ", pads=[1, 1, 1, 1], group=2,
      reference=_conv(pads=[1, 1, 1, 1], group=2)),
    S(g.ConvIntegerOp, U8(1, 3, 7, 9, high=250), I8(4, 3, 3, 3), _ZERO, np.array(0, np.int8),
      dims="n 3 h w; 4 3 3 3; ; ", strides=[2, 2], pads=[1, 0, 1, 2],
      reference=_conv(strides=[2, 2], pads=[1, 0, 1, 2])),
    S(g.ConvIntegerOp, U8(2, 3, 9), U8(3, 1, 2), _ZERO, U8(3), dims="n 3 t_; 3 1 2; ; 3", group=3,
      reference=_conv(group=3)),
]

QUANTIZATION: list[Sample] = [*_LINEAR, *_PRODUCTS]
