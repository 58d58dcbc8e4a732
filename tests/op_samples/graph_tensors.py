"""Samples of constants, reductions, matmul, normalization, shape, gather and LSTM operations."""

from __future__ import annotations

import numpy as np

import dialects.graph as g
from dialects.strata import types as t
from tests.op_samples.sample import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I32,
    I64,
    U8,
    E,
    Random,
    S,
    Sample,
    onnx,
    torch,
)

_WITH_NAN = np.array([[1.0, np.nan, -np.inf], [np.inf, 2.0, -3.0]], np.float32)
_ALL_LOWEST = np.full((2, 3), -np.inf, np.float32)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


_CONSTANTS = [
    S(g.ConstantOp, array=np.array([1.5, np.nan, -np.inf, -0.0, 1e-20], np.float32)),
    S(g.ConstantOp, array=np.array(7, np.int64)),
    S(g.ConstantOp, array=np.array([[True], [False]])),
    S(g.ConstantOp, array=np.zeros((0, 4), np.float16)),
    S(g.ConstantOp, array=np.arange(34, dtype=np.float64).reshape(2, 17)),
    S(g.SizesOp, F32(5, 7), dims="n m", used=0, values=[E("n"), E("2*m + 1"), 3], shape=[3]),
    S(g.SizesOp, F32(5, 7), dims="n m", used=0, values=[E("n*m")], shape=[], to=t.f32),
    S(g.SizesOp, F32(5), dims="n", used=0, values=[], shape=[0], to=t.i32),
    S(g.RangeOp, F32(5), dims="n", used=0, start=2, step=-3, count=E("n + 2")),
    S(g.RangeOp, F32(5), dims="n", used=0, start=E("n"), step=E("n"), count=4, to=t.f32),
    S(g.RangeOp, F32(5), dims="n", used=0, start=0, step=1, count=0, to=t.i32),
]

_REDUCTIONS = {g.ReduceSumOp: "ReduceSum", g.ReduceMaxOp: "ReduceMax", g.ReduceMinOp: "ReduceMin",
               g.ReduceProdOp: "ReduceProd", g.ReduceMeanOp: "ReduceMean"}


def _reductions() -> list[Sample]:
    rows: list[Sample] = []
    for op, name in _REDUCTIONS.items():
        def reference(*axes: int, keep: int, name: str = name):
            return onnx(name, 0, _ints(*axes), keepdims=keep)

        rows += [
            S(op, F32(5, 7), dims="n m", axes=[1], keepdims=True, reference=reference(1, keep=1)),
            S(op, F32(5, 3, 2), dims="a b c", axes=[0, 2], keepdims=False,
              reference=reference(0, 2, keep=0)),
            S(op, F32(3, 5, 7), dims="a 5 c", axes=[0, 1, 2], keepdims=False,
              reference=reference(0, 1, 2, keep=0)),
            S(op, F32(4, 1), dims="n 1", axes=[1], keepdims=False, reference=reference(1, keep=0)),
            S(op, F32(0, 5), dims="n 5", axes=[1], keepdims=True),
            S(op, F32(3, 0), dims="3 n", axes=[1], keepdims=False),
            S(op, F32(3), dims="n", axes=[], keepdims=False),
            S(op, _WITH_NAN, dims="n 3", axes=[1], keepdims=False),
            S(op, I64(3, 5), dims="n 5", axes=[0], keepdims=True, reference=reference(0, keep=1)),
            S(op, I32(3, 5), dims="n 5", axes=[1], keepdims=False, reference=reference(1, keep=0)),
            S(op, F16(3, 129), dims="n m", axes=[1], keepdims=False),
            S(op, BF16(3, 129), dims="n m", axes=[1], keepdims=False),
            S(op, F64(3, 31), dims="n m", axes=[1], keepdims=False,
              reference=reference(1, keep=0)),
        ]
    return rows


_MORE_REDUCTIONS = [
    S(g.ReduceMaxOp, I1(3, 5), dims="n 5", axes=[1], keepdims=False),
    S(g.ReduceMinOp, U8(3, 5), dims="n 5", axes=[1], keepdims=False),
    S(g.ReduceSumOp, np.full((1, 2048), 40.0, np.float16), dims="n m", axes=[1]),
]

_MATMULS = [
    *(S(g.MatmulOp, F32(*a), F32(*b), dims=dims, reference=onnx("MatMul"))
      for a, b, dims in (
        ((5, 7), (7, 3), "m k; k n"), ((7,), (7,), "k; k"), ((7,), (7, 3), "k; k 3"),
        ((5, 7), (7,), "m 7; 7"), ((2, 5, 7), (7, 3), "b m 7; 7 3"),
        ((2, 1, 5, 7), (3, 7, 4), "a 1 m 7; b 7 4"), ((0, 7), (7, 3), "m 7; 7 3"),
        ((1, 1), (1, 1), "m 1; 1 n"), ((2, 7), (3, 7, 1), "m 7; b 7 1"),
        ((31, 129), (129, 65), "m k; k n"))),
    S(g.MatmulOp, F32(3, 0), F32(0, 2), dims="m k; k n"),
    S(g.MatmulOp, F64(5, 17), F64(17, 3), dims="m k; k n", reference=onnx("MatMul")),
    S(g.MatmulOp, I32(5, 7), I32(7, 3), dims="m k; k n", reference=onnx("MatMul")),
    S(g.MatmulOp, F16(5, 300), F16(300, 3), dims="m k; k n", tolerance=2e-2),
    S(g.MatmulOp, BF16(5, 300), BF16(300, 3), dims="m k; k n", tolerance=0.25,
      reference=torch(lambda m, a, b: a @ b)),
    S(g.GroupedMatmulOp, F32(9, 33), F32(3, 33, 5), np.array([2, 2, 7], np.int32),
      dims="n 33; e 33 m; e"),
    S(g.GroupedMatmulOp, BF16(40, 64), BF16(4, 64, 24), np.array([1, 17, 17, 40], np.int64),
      dims="n 64; 4 64 24; 4", tolerance=2e-1,
      reference=torch(lambda m, a, b, ends: m._grouped_mm(a, b, ends.int()))),
    S(g.GroupedMatmulOp, F16(5, 16), F16(7, 16, 8), np.arange(7, dtype=np.int32),
      dims="5 16; 7 16 8; 7", tolerance=2e-2),
]


def _softmaxes() -> list[Sample]:
    rows: list[Sample] = []
    for op, name in ((g.SoftmaxOp, "Softmax"), (g.LogSoftmaxOp, "LogSoftmax")):
        rows += [
            S(op, F32(5, 37), dims="n m", axis=1, reference=onnx(name, axis=1)),
            S(op, F32(2, 3, 5), dims="a b c", axis=1, reference=onnx(name, axis=1)),
            S(op, F32(3, 1), dims="n 1", axis=1, reference=onnx(name, axis=1)),
            S(op, F32(3, 5) , dims="n 5", axis=0, reference=onnx(name, axis=0)),
            S(op, np.float32([[1000.0, 999.0, -1000.0]]), dims="n 3", axis=1,
              reference=onnx(name, axis=1)),
            S(op, _WITH_NAN, dims="n 3", axis=1),
            S(op, _ALL_LOWEST, dims="n 3", axis=1),
            S(op, F32(0, 5), dims="n 5", axis=1),
            S(op, F32(2, 0), dims="n m", axis=1),
            S(op, F16(3, 67), dims="n m", axis=1),
            S(op, BF16(3, 67), dims="n m", axis=1),
            S(op, F64(3, 67), dims="n m", axis=1, reference=onnx(name, axis=1)),
        ]
    return rows


def _layer_norm(*operands: Random, dims: str, axis: int, known: bool = True) -> Sample:
    reference = onnx("LayerNormalization", axis=axis, epsilon=1e-5) if known else None
    return S(g.LayerNormOp, *operands, dims=dims, axis=axis, epsilon=1e-5, reference=reference)


def _batch_norm(make: object, *shape: int, dims: str, known: bool = True) -> Sample:
    assert callable(make)
    channel = make(shape[1])
    reference = onnx("BatchNormalization", epsilon=1e-5) if known else None
    return S(g.BatchNormOp, make(*shape), channel, channel, channel,
             make(shape[1], low=0.1, high=2.0), dims=dims, epsilon=1e-5, reference=reference)


_NORMALIZATIONS = [
    _layer_norm(F32(5, 37), F32(37), F32(37), dims="n 37; 37; 37", axis=1),
    _layer_norm(F32(5, 37), F32(37), dims="n m; m", axis=1),
    _layer_norm(F32(2, 3, 5, 7), F32(5, 7), F32(5, 7), dims="a b 5 7; 5 7; 5 7", axis=2),
    _layer_norm(F32(0, 5), F32(5), F32(5), dims="n 5; 5; 5", axis=1, known=False),
    _layer_norm(F32(3, 1), F32(1), F32(1), dims="n 1; 1; 1", axis=1, known=False),
    _layer_norm(F16(5, 37), F16(37), F16(37), dims="n 37; 37; 37", axis=1, known=False),
    _layer_norm(BF16(5, 37), BF16(37), BF16(37), dims="n 37; 37; 37", axis=1, known=False),
    _layer_norm(F64(5, 37), F64(37), F64(37), dims="n 37; 37; 37", axis=1),
    _batch_norm(F32, 2, 3, 5, 7, dims="n 3 h w; 3; 3; 3; 3"),
    _batch_norm(F32, 3, 5, dims="n c; c; c; c; c"),
    _batch_norm(F32, 0, 3, 5, dims="n 3 h; 3; 3; 3; 3", known=False),
    _batch_norm(F16, 2, 3, 5, dims="n 3 h; 3; 3; 3; 3", known=False),
    _batch_norm(F64, 2, 3, 5, dims="n 3 h; 3; 3; 3; 3"),
]


def _lstm(direction: str, dirs: int, given: str, seq: int = 5, hidden: int = 4) -> Sample:
    """`given` has the letters of the optional operands: b, h, c."""
    optional = {"b": F32(dirs, 8 * hidden), "h": F32(dirs, 3, hidden), "c": F32(dirs, 3, hidden)}
    dims = f"{seq} n 6; {dirs} {4 * hidden} 6; {dirs} {4 * hidden} {hidden}"
    dims += "".join(f"; {dirs} {8 * hidden if k == 'b' else f'n {hidden}'}" for k in given)
    layout = [3 + given.index(k) if k in given else None for k in "bhc"]
    reference = onnx("LSTM", 0, 1, 2, layout[0], None, layout[1], layout[2], outputs=3,
                     hidden_size=hidden, direction=direction)
    flags = {name: k in given for k, name in
             zip("bhc", ("has_bias", "has_initial_h", "has_initial_c"), strict=True)}
    return S(g.LstmOp, F32(seq, 3, 6), F32(dirs, 4 * hidden, 6), F32(dirs, 4 * hidden, hidden),
             *(optional[k] for k in given), dims=dims, hidden_size=hidden, direction=direction,
             reference=reference, **flags)


_LSTMS = [_lstm("forward", 1, ""), _lstm("reverse", 1, "b"), _lstm("bidirectional", 2, "bhc"),
          _lstm("forward", 1, "hc", seq=1), _lstm("bidirectional", 2, "bc", hidden=1)]

_SHAPES = [
    S(g.ReshapeOp, F32(5, 6), dims="n 6", shape=[E("n"), 2, 3],
      reference=onnx("Reshape", 0, _ints(5, 2, 3))),
    S(g.ReshapeOp, F32(3, 4, 5), dims="a b 5", shape=[E("a*b"), 5]),
    S(g.ReshapeOp, F32(1), shape=[]),
    S(g.ReshapeOp, I64(0, 3), dims="n 3", shape=[3, E("n"), 7]),
    S(g.ReshapeOp, BF16(6), dims="2*n", shape=[2, E("n")]),
    S(g.TransposeOp, F32(3, 5), dims="n m", perm=[1, 0], reference=onnx("Transpose", perm=[1, 0])),
    S(g.TransposeOp, F16(2, 3, 5, 1), dims="a b c 1", perm=[0, 2, 3, 1]),
    S(g.TransposeOp, I1(2, 0, 3), dims="a b 3", perm=[2, 0, 1]),
    S(g.TransposeOp, F32(), perm=[]),
    S(g.BroadcastOp, F32(2, 1), dims="2 1", shape=[7, 2, 3],
      reference=onnx("Expand", 0, _ints(7, 2, 3))),
    S(g.BroadcastOp, F32(5, 1), dims="n 1", shape=[2, E("n"), E("n + 1")]),
    S(g.BroadcastOp, I64(), shape=[0, 3]),
    S(g.SliceOp, F32(7, 9), dims="n 9", starts=[1, 0], sizes=[E("n - 2"), 3], steps=[1, 3],
      reference=onnx("Slice", 0, _ints(1, 0), _ints(6, 9), _ints(0, 1), _ints(1, 3))),
    S(g.SliceOp, F32(7), dims="n", starts=[E("n - 1")], sizes=[E("n")], steps=[-1],
      reference=onnx("Slice", 0, _ints(-1), _ints(-100), _ints(0), _ints(-1))),
    S(g.SliceOp, I32(11), dims="n", starts=[9], sizes=[4], steps=[-3]),
    S(g.SliceOp, F32(4, 3), dims="n 3", starts=[0, 5], sizes=[E("n"), 0], steps=[1, 1]),
    S(g.SliceOp, F32(), starts=[], sizes=[], steps=[]),
    S(g.FramesOp, F32(2, 11), dims="n 11", axis=1, size=4, step=3,
      reference=torch(lambda m, x: x.unfold(1, 4, 3))),
    S(g.FramesOp, I64(9, 2), dims="n 2", axis=0, size=3, step=2,
      reference=torch(lambda m, x: x.unfold(0, 3, 2).transpose(1, 2))),
    S(g.FramesOp, BF16(4), dims="n", axis=0, size=4, step=5),
    S(g.PadOp, F32(3, 5), dims="n 5", low=[E("n - 1"), 0], high=[2, E("2*n")], mode="constant",
      value=1.5),
    S(g.PadOp, F32(3, 5), dims="n m", low=[E("n - 1"), 0], high=[0, E("m - 1")], mode="reflect"),
    *(S(g.PadOp, F32(3, 5), dims="n 5", low=[1, 2], high=[0, 3], mode=mode, value=1.5,
        reference=onnx("Pad", 0, _ints(1, 2, 0, 3), np.array(1.5, np.float32), mode=mode))
      for mode in ("constant", "edge", "wrap")),
    S(g.PadOp, F32(3, 5), dims="n m", low=[1, 2], high=[0, 3], mode="reflect",
      reference=onnx("Pad", 0, _ints(1, 2, 0, 3), mode="reflect")),
    S(g.PadOp, I64(0, 2), dims="n 2", low=[1, 0], high=[0, 1], mode="constant", value=3.0),
    S(g.PadOp, BF16(3), dims="n", low=[1], high=[1], mode="constant", value=float("-inf")),
    S(g.PadOp, F16(1), dims="n", low=[2], high=[2], mode="edge"),
    S(g.ConcatOp, F32(3, 2), F32(3, 5), F32(3, 0), dims="n 2; n m; n 0", axis=1,
      reference=onnx("Concat", axis=1)),
    S(g.ConcatOp, F32(3, 2), dims="n 2", axis=0),
    S(g.ConcatOp, I64(2, 3), I64(1, 3), dims="a 3; b 3", axis=0, reference=onnx("Concat", axis=0)),
    S(g.ConcatOp, BF16(2, 3), BF16(2, 1), dims="n 3; n 1", axis=1),
]

_GATHERS = [
    S(g.GatherOp, F32(7, 5), I64(2, 3, low=-7, high=7), dims="7 5; n 3", axis=0,
      reference=onnx("Gather", axis=0)),
    S(g.GatherOp, F32(3, 7, 2), I32(4, low=-7, high=7), dims="n 7 2; m", axis=1,
      reference=onnx("Gather", axis=1)),
    S(g.GatherOp, I64(7), np.array(-1), dims="7;", axis=0, reference=onnx("Gather", axis=0)),
    S(g.GatherOp, F16(7, 5), np.zeros((0,), np.int64), dims="7 5; n", axis=1),
    S(g.GatherOp, BF16(7, 5), np.array([[6]]), dims="n 5; 1 1", axis=0),
    S(g.GatherElementsOp, F32(3, 7), I64(3, 4, low=-7, high=7), dims="n 7; n 4", axis=1,
      reference=onnx("GatherElements", axis=1)),
    S(g.GatherElementsOp, F32(7, 5), I64(2, 3, low=-7, high=7), dims="7 5; m 3", axis=0,
      reference=onnx("GatherElements", axis=0)),
    S(g.GatherElementsOp, F32(3, 7), np.zeros((3, 0), np.int64), dims="n 7; n 0", axis=1),
    S(g.GatherNdOp, F32(5, 7, 3), I64(4, 2, low=-5, high=5), dims="5 7 3; n 2", batch_dims=0,
      reference=onnx("GatherND", batch_dims=0)),
    S(g.GatherNdOp, F32(2, 7, 3), I64(2, 4, 1, low=-7, high=7), dims="n 7 3; n 4 1", batch_dims=1,
      reference=onnx("GatherND", batch_dims=1)),
    S(g.GatherNdOp, F32(2, 3, 5), I64(2, 3, 1, low=0, high=5), dims="2 3 5; 2 3 1", batch_dims=2,
      reference=onnx("GatherND", batch_dims=2)),
    S(g.GatherNdOp, F32(5, 7), I64(2, low=0, high=5), dims="5 7; 2"),
    S(g.GatherNdOp, F32(2, 3), np.zeros((4, 0), np.int64), dims="2 3; n 0"),
    S(g.GatherNdOp, F32(2, 3), np.zeros((2, 4, 0), np.int64), dims="n 3; n 4 0", batch_dims=1),
]

TENSORS = [*_CONSTANTS, *_reductions(), *_MORE_REDUCTIONS, *_MATMULS, *_softmaxes(),
           *_NORMALIZATIONS, *_LSTMS, *_SHAPES, *_GATHERS]
