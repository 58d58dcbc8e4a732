"""Samples of narrow floats and of integers of less than a byte: moved, chosen, converted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.ir import Attribute

import dialects.graph as g
from compiler.frontend.onnx.element_types import data_type_of, has_data_type
from dialects.strata import types as t
from dialects.strata.types import Array
from tests.op_samples.sample import F16, I1, I32, I64, U8, E, Random, S, Sample

_SHORT = (t.i2, t.i4, t.ui2, t.ui4)
_NUMBERS = np.array([
    np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1.0625, 1.125, 3.5, -6.0, 5.25, 0.0146, -0.0009,
    1e-7, 239.0, 248.0, 448.0, 464.0, 465.0, -57344.0, 61440.0, 1e30, -1e30], np.float32)
_MAGNITUDES = np.array([
    np.nan, np.inf, 0.0, 1.0, 1.25, 1.5, 3.0, 0.75, 2.0**-126, 3.3e38, 1.7e38], np.float32)
_INTEGERS = np.arange(-40, 41, dtype=np.float32) / 2


def random(element: Attribute, *shape: int) -> Random:
    """Random numbers of an element type."""
    return Random(shape, t.dtype_of(element), low=0 if t.is_unsigned(element) else -9)


def codes(element: Attribute) -> Array:
    """Every number of an element type of a byte or less."""
    return np.arange(1 << t.bit_width(element)).astype(np.uint8).view(t.dtype_of(element))


def onnx_cast(to: Attribute, saturate: bool, round_mode: str = "up") -> Any:
    """ONNX's own definition of Cast; that of `ml_dtypes` for formats that ONNX has not."""
    def run(*arrays: Array) -> Sequence[Array]:
        from onnx.reference.ops.op_cast import cast_to

        with np.errstate(all="ignore"):
            if not has_data_type(to):
                return [_cast(arrays[0], to, saturate)]
            code: Any = data_type_of(to)
            return [np.asarray(cast_to(arrays[0], code, saturate, round_mode))]

    return run


def _cast(x: Array, to: Attribute, saturate: bool) -> Array:
    most = t.largest(to)
    return (np.clip(x, -most, most).astype(x.dtype) if saturate else x).astype(t.dtype_of(to))


def _casts(element: Attribute) -> list[Sample]:
    return [
        S(g.CastOp, _NUMBERS, dims="n", to=element, saturate=True,
          reference=onnx_cast(element, True)),
        S(g.CastOp, _NUMBERS, dims="n", to=element, reference=onnx_cast(element, False)),
        S(g.CastOp, F16(5, 21), dims="n 21", to=element, saturate=True,
          reference=onnx_cast(element, True)),
        S(g.CastOp, I32(3, 7, low=-500, high=500), dims="n 7", to=element, saturate=True),
        S(g.CastOp, codes(element), dims="n", to=t.f32, reference=onnx_cast(t.f32, True)),
        S(g.CastOp, codes(element), dims="n", to=t.f16, reference=onnx_cast(t.f16, True)),
    ]


NARROW: list[Sample] = [
    *(row for e in t.NARROW_FLOATS if e != t.f8E8M0FNU for row in _casts(e)),
    # the smallest power of two is no normal f32, and inf is the largest number: ONNX's reference
    # gives other values there than the table of its operator
    S(g.CastOp, codes(t.f8E8M0FNU)[1:], dims="n", to=t.f32, reference=onnx_cast(t.f32, True)),
    *(S(g.CastOp, _MAGNITUDES, dims="n", to=t.f8E8M0FNU, saturate=True, round=mode)
      for mode in ("up", "down", "nearest")),
    *(S(g.CastOp, _MAGNITUDES[3:], dims="n", to=t.f8E8M0FNU, saturate=True, round=mode,
        reference=onnx_cast(t.f8E8M0FNU, True, mode)) for mode in ("up", "down", "nearest")),
    S(g.CastOp, _NUMBERS, dims="n", to=t.f8E8M0FNU),
    S(g.CastOp, codes(t.f8E5M2), dims="n", to=t.f8E4M3FN, saturate=True),
    S(g.CastOp, codes(t.f8E5M2), dims="n", to=t.f8E5M2, saturate=True),
    S(g.CastOp, I1(7), dims="n", to=t.f8E4M3FN),
    *(S(g.CastOp, _INTEGERS, dims="n", to=e, reference=onnx_cast(e, True)) for e in _SHORT),
    *(S(g.CastOp, I64(9, low=-99, high=99), dims="n", to=e, reference=onnx_cast(e, True))
      for e in _SHORT),
    *(S(g.CastOp, codes(e), dims="n", to=to, reference=onnx_cast(to, True))
      for e in _SHORT for to in (t.f32, t.ui8, t.i1)),
    S(g.CastOp, U8(21, high=255), dims="n", to=t.i4),
    S(g.CastOp, I1(7), dims="n", to=t.ui4),
    # ------------------------------------------------------------------ moved
    S(g.TransposeOp, random(t.i4, 5, 19), dims="n m", perm=[1, 0]),
    S(g.TransposeOp, random(t.f8E5M2, 3, 4, 33), dims="a b 33", perm=[2, 0, 1]),
    S(g.ConcatOp, random(t.f8E4M3FN, 3, 2), random(t.f8E4M3FN, 3, 5), dims="n 2; n m", axis=1),
    S(g.SliceOp, random(t.ui4, 7, 9), dims="n 9", starts=[1, 8], sizes=[E("n - 2"), 3],
      steps=[1, -3]),
    S(g.PadOp, random(t.i4, 3, 5), dims="n 5", low=[1, 0], high=[2, E("2*n")], mode="constant",
      value=-3.0),
    S(g.PadOp, random(t.f8E4M3FN, 3, 5), dims="n 5", low=[1, 2], high=[0, 3], mode="constant",
      value=1.5),
    S(g.PadOp, random(t.f4E2M1FN, 3, 21), dims="n 21", low=[0, 2], high=[0, 3], mode="constant",
      value=-6.0),
    S(g.GatherOp, random(t.ui2, 6, 3), np.array([[5, 0], [2, 2]], np.int64), dims="n 3; 2 k",
      axis=0),
    S(g.BroadcastOp, random(t.f8E4M3FNUZ, 3, 1), dims="n 1", shape=[2, E("n"), 7]),
    S(g.ReshapeOp, random(t.i2, 4, 6), dims="n 6", shape=[E("3*n"), 2]),
    S(g.WhereOp, I1(5, 1), random(t.i4, 7), random(t.i4, 5, 7), dims="n 1; 7; n 7"),
    S(g.WhereOp, I1(21), random(t.f8E4M3FN, 21), random(t.f8E4M3FN, 1), dims="n; n; 1"),
    S(g.EqualOp, random(t.ui4, 5, 7), random(t.ui4, 7), dims="n 7; 7"),
    S(g.BitcastOp, codes(t.f8E4M3FN), dims="n", to=t.i8),
    S(g.BitcastOp, codes(t.ui8), dims="n", to=t.f8E5M2),
    S(g.BitcastOp, codes(t.f4E2M1FN), dims="n", to=t.ui4),
    # ------------------------------------------------------------------ products, summed in f32
    S(g.MatmulOp, random(t.f8E4M3FN, 5, 70), random(t.f8E4M3FN, 70, 9), dims="m k; k n", to=t.f32,
      tolerance=1e-5),
    S(g.MatmulOp, random(t.f8E5M2, 2, 5, 33), random(t.f8E5M2, 33, 9), dims="b m 33; 33 9",
      to=t.f32, tolerance=1e-5),
    # ------------------------------------------------------------------ constants
    S(g.ConstantOp, array=np.array([-8, 7, 0], t.dtype_of(t.i4))),
    S(g.ConstantOp, array=np.tile(codes(t.ui4), 3)),
    S(g.ConstantOp, array=np.array([0.5, -448.0, np.nan]).astype(t.dtype_of(t.f8E4M3FN))),
    S(g.ConstantOp, array=codes(t.f8E5M2)),
    S(g.ConstantOp, array=codes(t.f4E2M1FN)[:5]),
]
