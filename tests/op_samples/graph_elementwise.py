"""Samples of elementwise operations, casts and activations."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import dialects.graph as g
from dialects.strata import types as t
from tests.op_samples.sample import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I32,
    I64,
    U8,
    S,
    Sample,
    onnx,
    torch,
)

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 3e38, 1e-40], np.float32)
COLUMN, ROW = SPECIAL[:, None], SPECIAL[None, :]
TIES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 8388609.0], np.float32)
WIDE = np.linspace(-30, 30, 241, dtype=np.float32)

_ARITHMETIC = {g.AddOp: "Add", g.SubOp: "Sub", g.MulOp: "Mul", g.DivOp: "Div", g.MaxOp: "Max",
               g.MinOp: "Min"}
_COMPARISONS = {g.EqualOp: "Equal", g.LessOp: "Less", g.LessEqualOp: "LessOrEqual",
                g.GreaterOp: "Greater", g.GreaterEqualOp: "GreaterOrEqual"}
_LOGIC = {g.AndOp: "And", g.OrOp: "Or", g.XorOp: "Xor"}


def _arithmetic() -> list[Sample]:
    rows: list[Sample] = []
    for op, name in _ARITHMETIC.items():
        rows += [
            S(op, F32(5, 7), F32(7), dims="n 7; 7", reference=onnx(name)),
            S(op, F32(3, 1, 5), F32(2, 1), dims="a 1 b; c 1", reference=onnx(name)),
            S(op, F32(), F32(13), dims="; n", reference=onnx(name)),
            S(op, F32(0, 3), F32(1, 3), dims="n 3; 1 3", reference=onnx(name)),
            S(op, COLUMN, ROW, dims="m 1; 1 n", reference=onnx(name)),
            S(op, F64(3, 5), F64(3, 5), dims="n m; n m", reference=onnx(name)),
            S(op, F16(3, 37), F16(37), dims="n m; m", reference=torch(_BY_NAME[name])),
            S(op, BF16(3, 37), BF16(37), dims="n m; m", reference=torch(_BY_NAME[name])),
            S(op, I64(4, 3), I64(3, low=1), dims="n 3; 3", reference=onnx(name)),
            S(op, I32(4, 3), I32(3, low=-9, high=-1), dims="n 3; 3", reference=onnx(name)),
        ]
    return rows


_BY_NAME = {
    "Add": lambda m, x, y: x + y, "Sub": lambda m, x, y: x - y, "Mul": lambda m, x, y: x * y,
    "Div": lambda m, x, y: x / y, "Max": lambda m, x, y: m.maximum(x, y),
    "Min": lambda m, x, y: m.minimum(x, y),
}

_SIGNED = np.array([-7, -6, -1, 0, 1, 6, 7], np.int64)
_DIVISORS = np.array([-3, -2, 2, 3], np.int64)[:, None]
_FRACTIONS = np.array([-7.25, -3.0, -0.5, 0.0, 0.5, 3.0, 7.25, np.inf, np.nan], np.float32)

_DIVISION = [
    S(g.DivOp, _SIGNED, _DIVISORS, dims="n; m 1", reference=onnx("Div")),
    S(g.DivOp, U8(31), U8(31, low=1, high=200), dims="n; n", reference=onnx("Div")),
    S(g.ModOp, _SIGNED, _DIVISORS, dims="n; m 1", reference=onnx("Mod", fmod=0)),
    S(g.ModOp, _FRACTIONS, _FRACTIONS[:, None], dims="n; m 1",
      reference=torch(lambda m, x, y: m.remainder(x, y))),
    S(g.FmodOp, np.array([1e10, -1e10, 3e38, 7.5], np.float32),
      np.array([3.7, 3.7, 1e-3, -2], np.float32), reference=onnx("Mod", fmod=1)),
    S(g.FmodOp, _SIGNED, _DIVISORS, dims="n; m 1", reference=onnx("Mod", fmod=1)),
    S(g.FmodOp, _FRACTIONS, _FRACTIONS[:, None], dims="n; m 1", reference=onnx("Mod", fmod=1)),
    S(g.FmodOp, F16(19), F16(1), dims="n; 1"),
    S(g.PowOp, np.abs(WIDE), np.float32([2.5]), dims="n; 1", reference=onnx("Pow")),
    S(g.PowOp, COLUMN, ROW, dims="m 1; 1 n", reference=onnx("Pow")),
    S(g.PowOp, I64(11), I64(11, low=0, high=5), dims="n; n", reference=onnx("Pow")),
    S(g.PowOp, np.int32([-2, -1, 0, 1, 2]), np.int32([[-3], [-2], [0], [3]]), dims="n; m 1"),
    S(g.PowOp, BF16(11, low=0.1), BF16(), dims="n;"),
]

_TRUTH = [
    *(S(op, I1(3, 5), I1(5), dims="n 5; 5", reference=onnx(name)) for op, name in _LOGIC.items()),
    *(S(op, I32(3, 5), I32(3, 1), dims="n 5; n 1", reference=onnx(f"Bitwise{name}"))
      for op, name in _LOGIC.items()),
    *(S(op, COLUMN, ROW, dims="m 1; 1 n", reference=onnx(name))
      for op, name in _COMPARISONS.items()),
    *(S(op, I64(3, 17), I64(17), dims="n m; m", reference=onnx(name))
      for op, name in _COMPARISONS.items()),
    *(S(op, F16(17), F16(17), dims="n; n") for op in _COMPARISONS),
    S(g.EqualOp, I1(7), I1(7), dims="n; n", reference=onnx("Equal")),
    S(g.NotOp, I1(3, 5), dims="n m", reference=onnx("Not")),
    S(g.NotOp, I8(17), dims="n", reference=onnx("BitwiseNot")),
    S(g.WhereOp, I1(5, 1), F32(7), F32(5, 7), dims="n 1; 7; n 7", reference=onnx("Where")),
    S(g.WhereOp, I1(), I64(3), I64(), dims="; n;", reference=onnx("Where")),
    S(g.WhereOp, I1(0, 5), F16(5), F16(1), dims="n 5; 5; 1"),
]

_UNARY = {g.NegOp: "Neg", g.AbsOp: "Abs", g.SignOp: "Sign", g.ExpOp: "Exp", g.LogOp: "Log",
          g.SqrtOp: "Sqrt", g.ReciprocalOp: "Reciprocal", g.TanhOp: "Tanh", g.ErfOp: "Erf",
          g.SinOp: "Sin", g.CosOp: "Cos", g.FloorOp: "Floor", g.CeilOp: "Ceil",
          g.RoundOp: "Round", g.SigmoidOp: "Sigmoid"}
_OUTSIDE_ONNX = (g.Log1pOp, g.Expm1Op, g.Exp2Op, g.Log2Op, g.Log10Op)
_TESTS = {g.IsnanOp: "IsNaN", g.IsinfOp: "IsInf"}
_WITHOUT_SPECIALS = {g.SignOp, g.SinOp, g.CosOp}
"""onnxruntime gives 0 for the sign of NaN; NumPy and onnxruntime reduce 3e38 differently."""


def _unary() -> list[Sample]:
    rows: list[Sample] = []
    for op, name in (_UNARY | _TESTS).items():
        special = None if op in _WITHOUT_SPECIALS else onnx(name)
        rows += [
            S(op, F32(3, 11), dims="n m", reference=onnx(name)),
            S(op, SPECIAL, dims="n", reference=special),
            S(op, F32(), reference=onnx(name)),
            S(op, F32(0), dims="n", reference=onnx(name)),
            S(op, F16(19), dims="n"),
            S(op, BF16(19), dims="n"),
        ]
        if op not in (g.IsnanOp, g.IsinfOp):
            rows.append(S(op, F64(2, 9), dims="n 9"))
    return rows


_MORE_UNARY = [
    *(S(op, WIDE, dims="n", reference=onnx(_UNARY[op]))
      for op in (g.ExpOp, g.TanhOp, g.ErfOp, g.SinOp, g.CosOp, g.SigmoidOp, g.RoundOp)),
    S(g.RoundOp, TIES, dims="n", reference=onnx("Round")),
    *(S(op, np.int32([-2**31, -3, 0, 2**31 - 1]), dims="n", reference=onnx(_UNARY[op]))
      for op in (g.NegOp, g.AbsOp, g.SignOp)),
    S(g.SignOp, I64(9), dims="n", reference=onnx("Sign")),
    S(g.AbsOp, U8(9), dims="n", reference=onnx("Abs")),
    *(S(op, x, dims="n") for op in _OUTSIDE_ONNX
      for x in (F32(33), SPECIAL, F16(19), BF16(19), F64(9))),
]

_INVERSE = np.linspace(-1, 1, 33, dtype=np.float32)
_TRIGONOMETRY: dict[type[g.TanOp], tuple[str, np.ndarray]] = {
    g.TanOp: ("Tan", WIDE), g.AsinOp: ("Asin", _INVERSE), g.AcosOp: ("Acos", _INVERSE),
    g.AtanOp: ("Atan", WIDE), g.SinhOp: ("Sinh", WIDE), g.CoshOp: ("Cosh", WIDE),
    g.AsinhOp: ("Asinh", WIDE), g.AcoshOp: ("Acosh", WIDE), g.AtanhOp: ("Atanh", _INVERSE),
}
_TRIGONOMETRIC = [
    sample for op, (name, x) in _TRIGONOMETRY.items() for sample in (
        S(op, x, dims="n", reference=onnx(name), tolerance=1e-4),
        S(op, SPECIAL[:7], dims="n"),
        S(op, F32(0), dims="n"),
        S(op, F32(), reference=onnx(name)),
        S(op, F16(19), dims="n"),
        S(op, BF16(19), dims="n"),
        S(op, F64(2, 9), dims="n 9"),
    )
]

_SHIFTED, _SHIFTS = np.uint8([[1], [129], [255]]), np.uint8([0, 1, 7, 8, 255])
_BITS = [
    S(g.ShiftLeftOp, _SHIFTED, _SHIFTS[:3], dims="n 1; 3", reference=onnx(
        "BitShift", direction="LEFT")),
    S(g.ShiftRightOp, _SHIFTED, _SHIFTS[:3], dims="n 1; 3", reference=onnx(
        "BitShift", direction="RIGHT")),
    *(S(op, _SHIFTED, _SHIFTS, dims="n 1; m") for op in (g.ShiftLeftOp, g.ShiftRightOp)),
    *(S(op, np.int32([[-7], [5]]), np.int32([-1, 0, 3, 31, 32]), dims="n 1; m")
      for op in (g.ShiftLeftOp, g.ShiftRightOp)),
    S(g.PhiloxOp, np.int64([[0], [1 << 40], [-1]]), np.int64([0, 7, -(1 << 50)]), dims="n 1; m",
      draw=0),
    S(g.PhiloxOp, I64(3, 17), I64(), dims="n 17;", draw=(1 << 32) - 1),
    S(g.BitcastOp, SPECIAL, dims="n", to=t.i32),
    S(g.BitcastOp, np.int32([0, -1, 1078530011]), dims="n", to=t.f32),
    S(g.BitcastOp, I8(3, 5), dims="n 5", to=t.ui8),
    S(g.BitcastOp, F16(7), dims="n", to=t.bf16),
    S(g.BitcastOp, F64(), to=t.ui64),
    S(g.BitcastOp, I1(9), dims="n", to=t.i8),
    S(g.BitcastOp, U8(9, high=3), dims="n", to=t.i1),
]

_INTEGRAL = np.array([-3.9, -1.0, -0.2, 0.0, 0.7, 2.5, 100.6], np.float32)
_CASTS = [
    *(S(g.CastOp, _INTEGRAL, dims="n", to=to, reference=onnx("Cast", to=code))
      for to, code in ((t.i64, 7), (t.i32, 6), (t.i8, 3), (t.i1, 9), (t.f16, 10), (t.f64, 11))),
    S(g.CastOp, SPECIAL, dims="n", to=t.i1, reference=onnx("Cast", to=9)),
    S(g.CastOp, SPECIAL, dims="n", to=t.f16, reference=onnx("Cast", to=10)),
    S(g.CastOp, WIDE, dims="n", to=t.bf16,
      reference=torch(lambda m, x: x.to(m.bfloat16))),
    S(g.CastOp, I64(3, 5), dims="n 5", to=t.f32, reference=onnx("Cast", to=1)),
    S(g.CastOp, I64(3, 5, low=-300, high=300), dims="n 5", to=t.i8, reference=onnx("Cast", to=3)),
    S(g.CastOp, I64(3, 5, low=-300, high=300), dims="n 5", to=t.ui8, reference=onnx("Cast", to=2)),
    S(g.CastOp, I1(7), dims="n", to=t.f32, reference=onnx("Cast", to=1)),
    S(g.CastOp, I1(7), dims="n", to=t.i64, reference=onnx("Cast", to=7)),
    S(g.CastOp, U8(7, high=255), dims="n", to=t.i32, reference=onnx("Cast", to=6)),
    S(g.CastOp, BF16(7), dims="n", to=t.f32, reference=torch(lambda m, x: x.float())),
    S(g.CastOp, F16(7), dims="n", to=t.bf16, reference=torch(lambda m, x: x.to(m.bfloat16))),
    S(g.CastOp, BF16(7), dims="n", to=t.i32, reference=torch(lambda m, x: x.to(m.int32))),
    S(g.CastOp, F64(0, 2), dims="n 2", to=t.f32, reference=onnx("Cast", to=1)),
]

_ACTIVATIONS = [
    (g.ReluOp, {}, onnx("Relu")),
    (g.LeakyReluOp, {"alpha": 0.1}, onnx("LeakyRelu", alpha=0.1)),
    (g.EluOp, {"alpha": 1.5}, onnx("Elu", alpha=1.5)),
    (g.HardSigmoidOp, {"alpha": 0.2, "beta": 0.5}, onnx("HardSigmoid", alpha=0.2, beta=0.5)),
    (g.HardSwishOp, {}, onnx("HardSwish")),
    (g.GeluOp, {"approximate": "none"}, onnx("Gelu", approximate="none")),
    (g.GeluOp, {"approximate": "tanh"}, onnx("Gelu", approximate="tanh")),
    (g.SiluOp, {}, torch(lambda m, x: m.nn.functional.silu(x))),
    (g.SoftplusOp, {}, onnx("Softplus")),
]
_FINITE = np.array([np.nan, -80.0, -3.0, -0.0, 0.0, 3.0, 80.0], np.float32)


def _activations() -> list[Sample]:
    rows: list[Sample] = []
    for op, attributes, reference in _ACTIVATIONS:
        rows += [
            S(op, F32(3, 41), dims="n m", reference=reference, **attributes),
            S(op, WIDE, dims="n", reference=reference, **attributes),
            S(op, _FINITE, dims="n", **attributes),
            S(op, F32(2, 0), dims="n m", **attributes),
            S(op, F16(29), dims="n", **attributes),
            S(op, BF16(29), dims="n", **attributes),
            S(op, F64(29), dims="n", **attributes),
        ]
    return rows


_LOW, _HIGH = np.array(-0.5, np.float32), np.array(0.75, np.float32)
_CLIPS = [
    S(g.ReluOp, I32(11), dims="n", reference=onnx("Relu")),
    S(g.ClipOp, F32(3, 11), _LOW, _HIGH, dims="n m;;", reference=onnx("Clip"), has_min=True,
      has_max=True),
    S(g.ClipOp, F32(3, 11), _LOW, dims="n m;", reference=onnx("Clip"), has_min=True),
    S(g.ClipOp, F32(3, 11), _HIGH, dims="n m;", reference=onnx("Clip", 0, None, 1), has_max=True),
    S(g.ClipOp, F32(3, 11), dims="n m", reference=onnx("Clip")),
    S(g.ClipOp, F32(3, 11), _HIGH, _LOW, dims="n m;;", has_min=True, has_max=True),
    S(g.ClipOp, SPECIAL, _LOW, _HIGH, dims="n;;", has_min=True, has_max=True),
    S(g.ClipOp, I64(17), np.array(-2), np.array(3), dims="n;;", reference=onnx("Clip"),
      has_min=True, has_max=True),
    S(g.ClipOp, BF16(17), _LOW.astype(ml_dtypes.bfloat16), dims="n;", has_min=True),
]

ELEMENTWISE = [*_arithmetic(), *_DIVISION, *_TRUTH, *_unary(), *_MORE_UNARY, *_TRIGONOMETRIC,
               *_BITS, *_CASTS, *_activations(), *_CLIPS]
