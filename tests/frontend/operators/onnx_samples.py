"""Samples of every ONNX operator that the frontend imports itself, at opsets that differ."""

from __future__ import annotations

import numpy as np

from tests.frontend.onnx_models import C, b, f, i32, i64, op

X = f(2, 3, 4)
IMAGE = f(2, 3, 8, 6)
INF = C([[1.0, np.inf, -np.inf, np.nan]])

ELEMENTWISE = [
    *[op(name, X, opsets=(7, 13)) for name in ("Abs", "Ceil", "Cos", "Exp", "Floor", "Neg", "Sin",
                                               "Sigmoid", "Tanh", "Tan")],
    op("Erf", X, opsets=(9, 13)), op("Sign", X, opsets=(9, 13)), op("Round", X, opsets=(11, 22)),
    op("Cosh", X, opsets=(9, 22)), op("Log", f(3, 4, low=0.1), opsets=(7, 13)),
    op("Sqrt", f(3, 4, low=0.1), opsets=(7, 13)),
    op("Reciprocal", f(3, 4, low=0.1), opsets=(7, 13)),
    op("IsNaN", INF, opsets=(9, 20)), op("IsInf", INF, opsets=(10, 20)),
    op("IsInf", INF, detect_negative=0), op("IsInf", INF, detect_positive=0),
    op("IsInf", INF, detect_positive=0, detect_negative=0),
    op("Not", b(3, 4)), op("BitwiseNot", i32(3, 4), opsets=(18,)),
    *[op(name, X, f(3, 1), opsets=(7, 14)) for name in ("Add", "Sub", "Mul")],
    op("Div", X, f(3, 1, low=0.5), opsets=(7, 14)),
    op("Div", i64(3, 4), C([3, -2, 5, 7]), opsets=(14,)), op("Add", i32(3, 4), i32(4)),
    *[op(name, b(3, 4), b(4)) for name in ("And", "Or", "Xor")],
    *[op(name, i32(3, 4), i32(4), opsets=(18,))
      for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")],
    *[op(name, X, f(3, 4), opsets=(9, 13)) for name in ("Less", "Greater")],
    *[op(name, i64(3, 4), i64(4), opsets=(12, 16)) for name in ("LessOrEqual", "GreaterOrEqual")],
    op("Equal", i64(3, 4), i64(4), opsets=(7, 13)), op("Equal", b(3, 4), b(4)),
    *[op(name, X, f(3, 1), f(4), opsets=(8, 13)) for name in ("Max", "Min", "Sum", "Mean")],
    op("Max", i64(3, 4), i64(4)), op("Mean", X, opsets=(8,)), op("Sum", X),
    op("Where", b(3, 1), X, f(4), opsets=(9, 16)),
    op("Mod", i64(3, 4), C([3, -2, 5, -7])), op("Mod", X, f(4, low=0.5), fmod=1),
    op("Mod", i32(3, 4), C([3, -2, 5, -7], np.int32), fmod=1),
    op("Pow", f(3, 4, low=0.1), f(4), opsets=(7, 13)),
    op("Pow", f(3, 4), C([2, 3, 0, 1])), op("Pow", f(3, 4), C(2, np.int32)),
    op("Pow", i64(3, 4, low=1), C(2.0)), op("Pow", i32(3, 4), C(2)),
]

ACTIVATIONS = [
    *[op(name, X, opsets=(7, 13)) for name in ("Relu", "Softplus", "Softsign")],
    op("HardSigmoid", X, opsets=(7, 22)), op("HardSigmoid", X, alpha=0.1, beta=0.3),
    op("HardSwish", X, opsets=(14, 22)), op("Mish", X, opsets=(18,)),
    op("LeakyRelu", X, opsets=(7, 16), alpha=0.2), op("LeakyRelu", X), op("Elu", X, alpha=0.7),
    op("Selu", X), op("Selu", X, alpha=1.5, gamma=0.7), op("ThresholdedRelu", X, opsets=(10,)),
    op("ThresholdedRelu", X, opsets=(22,), alpha=0.3), op("PRelu", X, f(4), opsets=(7, 16)),
    op("PRelu", X, C([[0.1], [0.2], [0.3]])), op("Gelu", X, opsets=(20,)),
    op("Gelu", X, opsets=(20,), approximate="tanh"), op("Swish", X, opsets=(24,)),
    op("Swish", X, opsets=(24,), alpha=0.5), op("Celu", X, opsets=(12,)),
    op("Shrink", X, opsets=(9,), bias=0.3), op("Clip", X, opsets=(7,), min=-1.0, max=0.5),
    op("Clip", X, opsets=(7,), max=0.5), op("Clip", X, opsets=(11, 13)),
    op("Clip", X, C(-1.0), opsets=(11, 13)), op("Clip", X, None, C(1.0), opsets=(11, 13)),
    op("Clip", X, C(-1.0), C(1.0)), op("Clip", i64(3, 4), C(-1), C(2)),
    *[op(name, X, opsets=(7, 11, 13)) for name in ("Softmax", "LogSoftmax")],
    *[op(name, X, opsets=(11, 13), axis=a) for name in ("Softmax", "LogSoftmax") for a in (0, 1)],
    op("Softmax", X, opsets=(11, 13), axis=-2),
]

SHAPES = [
    op("Reshape", X, C([4, 6]), opsets=(7, 14), symbolic=False),
    op("Reshape", X, C([0, -1]), opsets=(7, 14, 21)), op("Reshape", X, C([-1])),
    op("Reshape", f(0, 3), C([3, 0]), opsets=(14,), allowzero=1),
    *[op("Flatten", X, opsets=(9, 13), axis=a) for a in (0, 1, 2, 3)],
    op("Flatten", X, opsets=(11, 21), axis=-2),
    op("Squeeze", f(1, 3, 1, 4), opsets=(7, 11)), op("Squeeze", f(1, 3, 1, 4), axes=[0, 2],
                                                     opsets=(7, 11)),
    op("Squeeze", f(1, 3, 1, 4), C([0, -2]), opsets=(13, 21)), op("Squeeze", f(1, 3, 1)),
    op("Unsqueeze", X, opsets=(7, 11), axes=[0, 3]), op("Unsqueeze", X, C([-1, 1])),
    op("Transpose", X, opsets=(7, 21)), op("Transpose", X, perm=[1, 2, 0]),
    op("Concat", X, f(2, 5, 4), opsets=(7, 13), axis=1), op("Concat", X, X, axis=-1),
    op("Expand", f(3, 1), C([2, 1, 4]), opsets=(8, 13)), op("Expand", X, C([1])),
    op("Tile", X, C([2, 1, 3]), opsets=(7, 13)),
    op("ConstantOfShape", C([2, 3]), opsets=(9, 21)),
    op("Shape", X, opsets=(7, 13)), op("Shape", X, opsets=(15,), start=1),
    op("Shape", X, opsets=(15,), start=-2, end=-1), op("Size", X),
    op("Range", C(2), C(11), C(3), opsets=(11,)), op("Range", C(2.0), C(0.5), C(-0.25)),
    op("Range", C(5), C(0), C(-2)), op("Range", C(5), C(0), C(2)),
    op("Trilu", f(2, 4, 5), opsets=(14,)), op("Trilu", f(4, 5), C(-1), opsets=(14,), upper=0),
    op("Trilu", i64(4, 4), C(1), opsets=(14,)),
    op("DepthToSpace", f(2, 8, 3, 5), opsets=(11, 13), blocksize=2),
    op("DepthToSpace", f(2, 8, 3, 5), blocksize=2, mode="CRD"),
    op("SpaceToDepth", f(2, 3, 4, 6), blocksize=2, symbolic=False),
    op("Slice", X, opsets=(7,), starts=[1, 0], ends=[3, 2], axes=[1, 2]),
    op("Slice", X, opsets=(7,), starts=[0, -2], ends=[2, 9]),
    op("Slice", X, C([0, -3]), C([2**63 - 1, -1]), C([0, 2]), opsets=(10, 13)),
    op("Slice", X, C([-1]), C([-(2**63)]), C([-1]), C([-1]), opsets=(10, 13)),
    op("Slice", X, C([3]), C([0]), C([2]), C([-2])), op("Slice", X, C([5]), C([9]), C([1])),
    op("Slice", X, C([0]), C([4]), C([2]), C([3])),
    op("Split", f(2, 6), opsets=(7, 11, 13), outputs=3, axis=1),
    op("Split", f(2, 6), opsets=(7, 11), outputs=2, axis=1, split=[2, 4], symbolic=False),
    op("Split", f(2, 6), C([2, 4]), outputs=2, axis=-1, symbolic=False),
    op("Split", f(7, 2), opsets=(18,), outputs=3, num_outputs=3),
    op("Pad", X, opsets=(7,), pads=[0, 1, 2, 0, 0, 3], value=1.5),
    op("Pad", X, C([0, 1, 2, 0, 0, 3]), C(1.5), opsets=(11, 13)),
    op("Pad", X, C([0, -1, 2, 0, 1, -1]), opsets=(11, 13)),
    op("Pad", X, C([0, 1, 2, 0, 0, 3]), opsets=(11, 13), mode="reflect"),
    op("Pad", X, C([0, 1, 2, 0, 0, 3]), opsets=(11, 13), mode="edge"),
    op("Pad", X, C([1, 2, 0, 3]), None, C([1, -1]), opsets=(18,)),
    op("Pad", X, C([1, 2, 0, 3]), None, np.array([1, -3]), opsets=(18,), symbolic=False),
    op("Pad", X, np.array([1, -1, 0, 3]), None, np.array([-1, 0]), opsets=(18,), symbolic=False,
       mode="edge"),
    op("Pad", X, C([5, 0, 9, 7, 3, 4]), opsets=(19,), mode="wrap", symbolic=False),
    op("Pad", X, C([0, 1, 2, 0, 0, 3]), f(), opsets=(13,)),
]

REDUCTIONS = [
    *[op(f"Reduce{name}", f(2, 3, 4, low=0.1), opsets=(7, 11), axes=[1])
      for name in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum",
                   "LogSumExp")],
    *[op(f"Reduce{name}", f(2, 3, 4, low=0.1), C([0, -1]), opsets=(18, 20), keepdims=0)
      for name in ("Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")],
    op("ReduceSum", X, C([-1])), op("ReduceSum", X, noop_with_empty_axes=1),
    op("ReduceSum", X, keepdims=0), op("ReduceMean", X, opsets=(11,), axes=[-1, 0], keepdims=0),
    op("ReduceSum", i64(3, 4), C([0])), op("ReduceMax", i32(3, 4), opsets=(13,), axes=[0]),
]

CONTRACTIONS = [
    op("MatMul", f(2, 3, 4), f(4, 5), opsets=(7, 13)), op("MatMul", f(4), f(4, 5)),
    op("MatMul", f(2, 1, 3, 4), f(5, 4, 2)),
    op("Gemm", f(3, 4), f(4, 5), C([np.nan, np.inf, 0.0, 1.0, -np.inf]), beta=0.0),
    op("Gemm", f(3, 4), f(4, 5), f(5), opsets=(7, 11, 13)), op("Gemm", f(3, 4), f(4, 5)),
    op("Gemm", f(4, 3), f(5, 4), f(3, 1), transA=1, transB=1, alpha=0.5, beta=2.0),
    op("Gather", X, C([[0, 2], [-1, 1]]), opsets=(11, 13), axis=1),
    op("Gather", X, C(1), axis=-1), op("Gather", i64(5, 2), i64(3, low=0, high=5)),
    op("GatherElements", X, i64(2, 2, 4, low=-3, high=3), axis=1, opsets=(11, 13)),
    op("GatherND", X, C([[0, 1], [1, 2]]), opsets=(11, 13)),
    op("GatherND", X, C([[1], [2]]), opsets=(12, 13), batch_dims=1),
]

W = C(np.linspace(-1, 1, 72, dtype="f").reshape(4, 3, 3, 2))
CONVOLUTIONS = [
    op("Conv", IMAGE, W, opsets=(7, 11, 22)), op("Conv", IMAGE, C(np.ones((6, 1, 3, 3), "f")),
                                                 C(np.ones(6, "f")), group=3, pads=[1, 1, 1, 1]),
    op("Conv", IMAGE, W, strides=[2, 1], dilations=[1, 2], pads=[1, 0, 2, 1]),
    op("Conv", IMAGE, W, auto_pad="SAME_UPPER", strides=[2, 2]),
    op("Conv", IMAGE, C(np.ones((4, 3, 1, 1), "f")), auto_pad="SAME_LOWER", strides=[3, 2]),
    op("Conv", IMAGE, W, auto_pad="SAME_LOWER"), op("Conv", IMAGE, W, auto_pad="VALID"),
    op("Conv", f(1, 2, 9), C(np.ones((3, 2, 4), "f")), kernel_shape=[4], strides=[2]),
    op("ConvTranspose", IMAGE, C(np.ones((3, 2, 3, 2), "f")), opsets=(7, 11), strides=[2, 2]),
    op("ConvTranspose", IMAGE, C(np.ones((3, 2, 3, 3), "f")), C(np.ones(2, "f")),
       strides=[2, 2], pads=[1, 0, 1, 1], output_padding=[1, 0]),
    op("ConvTranspose", IMAGE, C(np.ones((3, 1, 3, 3), "f")), group=3, strides=[2, 2],
       output_shape=[16, 13], symbolic=False),
    op("ConvTranspose", IMAGE, C(np.ones((3, 1, 3, 3), "f")), strides=[2, 2],
       auto_pad="SAME_UPPER"),
    op("MaxPool", IMAGE, opsets=(7, 8, 12), kernel_shape=[3, 2], strides=[2, 1]),
    op("MaxPool", IMAGE, opsets=(10, 12), kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2],
       ceil_mode=1),
    op("MaxPool", IMAGE, kernel_shape=[2, 2], dilations=[2, 1]),
    op("MaxPool", IMAGE, kernel_shape=[3, 3], auto_pad="SAME_UPPER", strides=[2, 2]),
    op("AveragePool", IMAGE, kernel_shape=[3, 3], auto_pad="SAME_LOWER", strides=[2, 2]),
    op("AveragePool", IMAGE, kernel_shape=[3, 3], auto_pad="SAME_UPPER", strides=[2, 2],
       count_include_pad=1),
    op("AveragePool", IMAGE, opsets=(7, 10, 11), kernel_shape=[3, 3], pads=[1, 1, 0, 1]),
    op("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 0, 1], count_include_pad=1),
    op("AveragePool", IMAGE, opsets=(19,), kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1),
    op("GlobalAveragePool", IMAGE), op("GlobalMaxPool", IMAGE),
]

CHANNELS = (f(3), f(3), f(3), f(3, low=0.2))
NORMALIZATIONS = [
    op("BatchNormalization", IMAGE, *CHANNELS, opsets=(7, 9, 14, 15)),
    op("BatchNormalization", f(4, 3), *CHANNELS, epsilon=0.01),
    op("LayerNormalization", X, f(4), f(4), opsets=(17,)),
    op("LayerNormalization", X, f(3, 4), opsets=(17,), axis=1, epsilon=0.01),
    op("LayerNormalization", X, f(4), f(4), opsets=(17,), outputs=3),
    op("RMSNormalization", X, f(4), opsets=(23,)),
    op("InstanceNormalization", IMAGE, f(3), f(3)),
    op("GroupNormalization", f(2, 6, 4, 3), C(np.arange(6, dtype="f")), C(np.ones(6, "f")),
       opsets=(21,), num_groups=3, symbolic=False),
    op("GroupNormalization", f(2, 6, 4, 3), C(np.arange(3, dtype="f")), C(np.ones(3, "f")),
       opsets=(18,), num_groups=3, symbolic=False),
    op("LpNormalization", X), op("LpNormalization", X, axis=1, p=1),
    op("LRN", f(2, 7, 4, 3), opsets=(7, 13), size=3, alpha=0.1, beta=0.6, bias=1.5),
    op("LRN", f(2, 7, 4, 3), size=5), op("MeanVarianceNormalization", IMAGE),
]

LSTM = (f(5, 2, 3), C(np.linspace(-1, 1, 48, dtype="f").reshape(1, 16, 3)),
        C(np.linspace(1, -1, 64, dtype="f").reshape(1, 16, 4)))
BOTH = (f(5, 2, 3), C(np.linspace(-1, 1, 96, dtype="f").reshape(2, 16, 3)),
        C(np.linspace(1, -1, 128, dtype="f").reshape(2, 16, 4)))
RECURRENT = [
    op("LSTM", *LSTM, hidden_size=4, outputs=3, opsets=(7, 14, 22)),
    op("LSTM", *LSTM, C(np.ones((1, 32), "f")), None, f(1, 2, 4), f(1, 2, 4), hidden_size=4,
       outputs=3, symbolic=False),
    op("LSTM", *LSTM, hidden_size=4, direction="reverse", outputs=2),
    op("LSTM", *BOTH, hidden_size=4, direction="bidirectional", outputs=3),
    op("LSTM", *LSTM, None, C([5, 5], np.int32), hidden_size=4, symbolic=False),
]

RESIZES = [
    op("Upsample", IMAGE, opsets=(7,), scales=[1.0, 1.0, 2.0, 3.0], mode="nearest"),
    op("Upsample", IMAGE, C([1.0, 1.0, 2.0, 3.0]), opsets=(9,), mode="linear"),
    op("Resize", IMAGE, C([1.0, 1.0, 2.0, 3.0]), opsets=(10,), mode="nearest"),
    op("Resize", IMAGE, C([1.0, 1.0, 0.5, 0.6]), opsets=(10,), mode="nearest"),
    *[op("Resize", IMAGE, None, C([1.0, 1.0, 2.0, 1.5]), opsets=(13, 18), mode=mode,
         coordinate_transformation_mode=how)
      for mode in ("nearest", "linear", "cubic")
      for how in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")],
    *[op("Resize", IMAGE, None, C([1.0, 1.0, 0.6, 1.4]), mode="nearest", nearest_mode=rule)
      for rule in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")],
    op("Resize", IMAGE, C([], np.float32), C([], np.float32), C([2, 3, 5, 9]), opsets=(11, 13),
       mode="linear"),
    op("Resize", IMAGE, None, None, C([5, 9]), opsets=(18,), axes=[2, 3], mode="linear"),
    op("Resize", IMAGE, None, None, C([5, 9]), opsets=(18,), axes=[2, 3], mode="linear",
       keep_aspect_ratio_policy="not_larger", symbolic=False),
]

CONTROL = [
    op("Identity", X, opsets=(7, 14)), op("Dropout", X, opsets=(7, 10), outputs=1),
    op("Dropout", X, C(0.3), opsets=(12, 13), outputs=2),
    op("Cast", X, opsets=(7, 13), to=7), op("Cast", i64(3, 4), to=9), op("Cast", X, to=11),
    op("Cast", X, to=10, tolerance=1e-3), op("Cast", b(3, 4), to=1),
    op("CastLike", X, i32(1), opsets=(15, 19)),
]

SAMPLES = [*ELEMENTWISE, *ACTIVATIONS, *SHAPES, *REDUCTIONS, *CONTRACTIONS, *CONVOLUTIONS,
           *NORMALIZATIONS, *RECURRENT, *RESIZES, *CONTROL]
