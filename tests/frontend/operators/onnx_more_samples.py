"""Samples of ordering, scattering, sampling, quantization, signals and recurrent cells."""

from __future__ import annotations

import numpy as np

from tests.frontend.onnx_models import C, F, f, i32, i64, op

X = f(2, 3, 4)
IMAGE = f(2, 3, 8, 6)
TIES = C([[1.0, 3.0, 3.0, -2.0], [0.0, 0.0, 0.0, 0.0]])


def _u8(*shape: int) -> C:
    return C((np.arange(np.prod(shape)) * 37 % 256).astype(np.uint8).reshape(shape))


def _line(*shape: int) -> C:
    return C(np.linspace(-1, 1, int(np.prod(shape)), dtype="f").reshape(shape))


FUNCTIONS = [
    *[op(name, f(3, 4, low=-0.9, high=0.9), opsets=(9, 22))
      for name in ("Asin", "Acos", "Atan", "Sinh", "Asinh", "Atanh")],
    op("Acosh", f(3, 4, low=1.1), opsets=(9, 22)),
    *[op("BitShift", _u8(3, 4), C(np.uint8([0, 1, 3, 7])), opsets=(11,), direction=way)
      for way in ("LEFT", "RIGHT")],
]

ORDERING = [
    *[op(name, X, opsets=(7, 11, 13), axis=1, keepdims=k)
      for name in ("ArgMax", "ArgMin") for k in (0, 1)],
    *[op(name, TIES, opsets=(12, 13), axis=-1, select_last_index=1)
      for name in ("ArgMax", "ArgMin")],
    *[op("CumSum", X, C(1), opsets=(11, 14), exclusive=e, reverse=r)
      for e in (0, 1) for r in (0, 1)],
    op("TopK", X, opsets=(9,), outputs=2, axis=1, k=2),
    op("TopK", X, C([2]), opsets=(10, 11), outputs=2, axis=1),
    op("TopK", i64(3, 7), C([4]), outputs=2, largest=0),
    op("CumSum", X, np.array(-2), opsets=(14,), reverse=1, symbolic=False),
    op("CumSum", X, np.array([2], np.int32), opsets=(14,), exclusive=1, symbolic=False),
    op("Hardmax", X, opsets=(7, 11, 13)), op("Hardmax", TIES, axis=1),
    op("EyeLike", f(3, 5), opsets=(9, 22)), op("EyeLike", i32(5, 3), k=-1, dtype=1),
    op("OneHot", i64(2, 3), C(4), C([0.5, 2.0]), opsets=(9, 11)),
    op("OneHot", i64(2, 3), C(4), C([0, 1]), axis=0),
    op("Compress", X, C([True, False, True]), opsets=(9, 11), axis=1),
    op("Compress", f(5), C([True, False, True]), symbolic=False),
    op("ReverseSequence", f(5, 3, 2), C([1, 5, 3]), opsets=(10,), symbolic=False),
    op("ReverseSequence", f(3, 5), C([1, 5, 3]), batch_axis=0, time_axis=1),
]

SCATTERS = [
    *[op(name, f(3, 5), C([[1, -1, 0]]), f(1, 3), opsets=(v,), axis=1, symbolic=False)
      for name, v in (("Scatter", 9), ("ScatterElements", 11))],
    *[op("ScatterElements", f(3, 5), C([[1, 1, 0], [2, 1, -3]]), f(2, 3), opsets=(18,), axis=1,
         reduction=how, symbolic=False) for how in ("add", "mul", "max", "min")],
    op("ScatterND", f(4, 5), C([[1], [-1]]), f(2, 5), opsets=(11, 13)),
    *[op("ScatterND", f(4, 5), C([[1, 2], [1, 2], [0, 0]]), f(3), opsets=(18,), reduction=how,
         symbolic=False) for how in ("add", "mul", "max", "min")],
    op("MaxUnpool", C([[[[1.0, 2.0], [3.0, 4.0]]]]), C([[[[5, 7], [13, 15]]]]), opsets=(9, 11),
       kernel_shape=[2, 2], strides=[2, 2]),
    op("MaxPool", IMAGE, outputs=2, kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 2]),
    op("MaxPool", IMAGE, outputs=2, kernel_shape=[2, 2], storage_order=1),
]

POOLS = [
    op("LpPool", IMAGE, opsets=(11, 18), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
    op("LpPool", IMAGE, opsets=(18,), kernel_shape=[3, 3], strides=[2, 2], p=3),
    op("GlobalLpPool", IMAGE, p=3), op("GlobalLpPool", IMAGE),
    op("Det", f(3, 4, 4), opsets=(11, 22), tolerance=1e-3,
       symbolic=False), op("Det", f(1, 1)),
    op("Col2Im", f(1, 12, 16), C([5, 5]), C([2, 2]), opsets=(18,), symbolic=False),
    op("Col2Im", f(2, 6, 4), C([4, 6]), C([3, 1]), opsets=(18,), strides=[2, 3], pads=[1, 0, 0, 0],
       symbolic=False),
    op("Einsum", f(3, 4), f(4, 5), equation="ij,jk->ik"),
    op("Einsum", f(2, 3, 4), f(2, 4, 5), f(5), equation="...ij,...jk,k"),
    op("Einsum", f(4, 4, 2), equation="iij->ij"), op("Einsum", f(3, 4), equation="ij->"),
    op("Einsum", f(3), f(4), equation="i,j->ji"), op("Einsum", f(3, 4), equation="ba"),
]

SAMPLING = [
    *(op("GridSample", F((1, 2, 4, 5), dtype=np.float16), F((1, 3, 2, 2), -0.9, 0.9, np.float16),
         opsets=(20,), tolerance=1e-2, mode=mode, padding_mode=padding)
      for mode, padding in (("linear", "zeros"), ("cubic", "zeros"), ("linear", "border"))),
    op("RoiAlign", F((1, 2, 5, 5), dtype=np.float16), C([[0, 0, 3, 3]], np.float16), C([0]),
       opsets=(16,), tolerance=1e-2, output_height=2, output_width=2, sampling_ratio=2),
    *[op("GridSample", IMAGE, f(2, 5, 4, 2, low=-1.4, high=1.4), opsets=(16,), mode=mode,
         padding_mode=padding, align_corners=corners, tolerance=2e-4)
      for mode in ("nearest", "bilinear", "bicubic")
      for padding in ("zeros", "border", "reflection") for corners in (0, 1)],
    op("AffineGrid", f(2, 2, 3), C([2, 3, 4, 5]), opsets=(20,)),
    op("AffineGrid", f(2, 2, 3), np.array([2, 3, 4, 5]), opsets=(20,), symbolic=False),
    op("AffineGrid", f(2, 3, 4), np.array([2, 3, 4, 2, 6]), opsets=(20,), align_corners=1,
       symbolic=False),
    op("AffineGrid", f(2, 3, 4), C([2, 3, 4, 5, 6]), opsets=(20,), align_corners=1),
    op("RoiAlign", IMAGE, C([[0.0, 1.0, 5.0, 6.0], [1.0, 0.0, 3.0, 3.0]]), C([1, 0]),
       opsets=(10, 16), output_height=2, output_width=3, sampling_ratio=2, spatial_scale=0.7),
    op("RoiAlign", IMAGE, C([[0.0, 1.0, 5.0, 6.0]]), C([1]), opsets=(16,), mode="max",
       output_height=2, output_width=2, sampling_ratio=2,
       coordinate_transformation_mode="output_half_pixel"),
]

QUANTIZED = [
    op("DequantizeLinear", _u8(3, 4), C(0.1), C(np.uint8(7)), opsets=(10, 13)),
    op("DequantizeLinear", _u8(2, 3, 4), C([0.1, 0.2, 0.3]), C(np.uint8([7, 1, 0])),
       opsets=(13, 19)),
    op("QuantizeLinear", X, C(0.02), C(np.uint8(100)), opsets=(10, 13)),
    op("QuantizeLinear", X, C([0.1, 0.2, 0.3]), C(np.int8([7, -1, 0])), opsets=(13, 19)),
    op("QuantizeLinear", X, C(0.5)), op("DynamicQuantizeLinear", X, opsets=(11,), outputs=3),
    op("MatMulInteger", _u8(3, 4), _u8(4, 5), C(np.uint8(7)), C(np.uint8(9)), opsets=(10,)),
    op("ConvInteger", _u8(1, 2, 5, 5), _u8(3, 2, 2, 2), C(np.uint8(7)), C(np.uint8(9)),
       opsets=(10,), pads=[1, 0, 0, 1]),
    op("QLinearMatMul", _u8(3, 4), C(0.1), C(np.uint8(100)), _u8(4, 5), C(0.2), C(np.uint8(90)),
       C(3.0), C(np.uint8(120)), opsets=(10,)),
    op("QLinearConv", _u8(1, 2, 5, 5), C(0.1), C(np.uint8(100)), _u8(3, 2, 2, 2), C(0.2),
       C(np.uint8(90)), C(5.0), C(np.uint8(120)), C([3, -500, 90], np.int32), opsets=(10,)),
]

SIGNALS = [
    op("DFT", f(2, 6, 1), opsets=(17,), axis=1, tolerance=1e-4, symbolic=False),
    op("DFT", f(2, 6, 2), opsets=(17,), axis=1, inverse=1, tolerance=1e-4, symbolic=False),
    op("DFT", f(2, 6, 1), opsets=(17,), axis=1, onesided=1, tolerance=1e-4, symbolic=False),
    op("DFT", f(2, 6, 1), C(5), C(1), opsets=(20,), symbolic=False, tolerance=1e-4),
    *[op("DFT", f(2, 6, parts), opsets=(20,), tolerance=1e-4, open_sizes=(6,), **more)
      for parts, more in ((1, {}), (2, {"inverse": 1}), (1, {"onesided": 1}),
                          (2, {"inverse": 1, "onesided": 1}))],
    *[op("DFT", f(2, 6, 1), np.array(points), C(1), opsets=(20,), symbolic=False, tolerance=1e-4)
      for points in (4, 6, 9)],
    op("STFT", f(2, 20, 1), C(4), _line(8), opsets=(17,), tolerance=1e-4),
    op("STFT", f(2, 20, 1), C(3), None, C(6), opsets=(17,), onesided=0, tolerance=1e-4),
    op("STFT", f(2, 20, 2), C(3), _line(6), opsets=(17,), onesided=0, tolerance=1e-4,
       symbolic=False),
    op("MelWeightMatrix", C(8), C(16), C(8192), C(0.0), C(4096.0), opsets=(17,)),
]

_STEPS = f(4, 2, 3)
RECURRENT = [
    op("RNN", _STEPS, _line(1, 5, 3), _line(1, 5, 5), hidden_size=5, outputs=2, opsets=(7, 14),
       symbolic=False),
    op("RNN", _STEPS, _line(2, 5, 3), _line(2, 5, 5), _line(2, 10), C([2, 4], np.int32),
       f(2, 2, 5), hidden_size=5, outputs=2, direction="bidirectional", symbolic=False,
       activations=["LeakyRelu", "Affine"], activation_alpha=[0.2, 0.5], activation_beta=[0.1]),
    op("GRU", _STEPS, _line(1, 15, 3), _line(1, 15, 5), hidden_size=5, outputs=2, opsets=(7, 14),
       symbolic=False),
    op("GRU", _STEPS, _line(2, 15, 3), _line(2, 15, 5), _line(2, 30), C([4, 3], np.int32),
       f(2, 2, 5), hidden_size=5, outputs=2, direction="bidirectional", linear_before_reset=1,
       symbolic=False),
    op("GRU", _STEPS, _line(1, 15, 3), _line(1, 15, 5), _line(1, 30), hidden_size=5, outputs=2,
       direction="reverse", clip=0.5, symbolic=False),
    op("LSTM", _STEPS, _line(1, 20, 3), _line(1, 20, 5), _line(1, 40), C([2, 4], np.int32),
       f(1, 2, 5), f(1, 2, 5), _line(1, 15), hidden_size=5, outputs=3, symbolic=False),
    op("LSTM", _STEPS, _line(2, 20, 3), _line(2, 20, 5), hidden_size=5, outputs=3, clip=0.3,
       direction="bidirectional", symbolic=False),
    op("LSTM", _STEPS, _line(1, 20, 3), _line(1, 20, 5), hidden_size=5, outputs=3,
       activations=["HardSigmoid", "Relu", "Softsign"], symbolic=False),
]

RESIZES = [
    *[op("Resize", IMAGE, None, C([1.0, 1.0, 0.6, 0.8]), opsets=(18,), mode=mode, antialias=1,
         symbolic=False) for mode in ("linear", "cubic")],
    op("Resize", IMAGE, None, C([1.0, 1.0, 1.5, 0.8]), opsets=(13,), mode="cubic",
       exclude_outside=1, cubic_coeff_a=-0.5, symbolic=False),
    op("Resize", IMAGE, C([0, 0, 0.2, 0.3, 1, 1, 0.7, 1.2], np.float32), None, C([2, 3, 4, 5]),
       opsets=(13,), mode="linear", coordinate_transformation_mode="tf_crop_and_resize",
       extrapolation_value=9.0, symbolic=False),
]

WITHOUT_RUNTIME = {"BitCast", "CumProd", "DeformConv", "TensorScatter"}
"""Operators that this onnxruntime has not; ONNX's node tests check them."""

MORE_SAMPLES = [*FUNCTIONS, *ORDERING, *SCATTERS, *POOLS, *SAMPLING, *QUANTIZED, *SIGNALS,
                *RECURRENT, *RESIZES]
