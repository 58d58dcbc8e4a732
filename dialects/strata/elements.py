"""Element types of tensors: in the IR, as NumPy dtypes, and in memory.

    i1                         truth values
    i8 i16 i32 i64             signed integers; ui8 ... ui64 unsigned ones
    i2 i4 ui2 ui4              integers of less than a byte
    f16 bf16 f32 f64           floats to compute with
    f8E4M3FN f4E2M1FN ...      narrow floats, which are only stored: `NARROW_FLOATS`
    i6 ui6                     the bits of narrow floats of six, in bodies only

An element occupies whole bytes in memory. Truth values and types of fewer than 8 bits occupy one
byte, of which the low bits are significant. The `SEMANTICS` of a narrow float's type describe its
format: the bits of exponent and mantissa, the bias, and the encodings of NaN and infinities.
Encoders and decoders use this description and contain no code for individual formats.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeGuard, cast

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatSemantics,
    IndexType,
    IntegerType,
    ReducedPrecisionFloatType,
    Signedness,
    f4E2M1FN,
    f6E2M3FN,
    f6E3M2FN,
    f8E3M4,
    f8E4M3,
    f8E4M3B11FNUZ,
    f8E4M3FN,
    f8E4M3FNUZ,
    f8E5M2,
    f8E5M2FNUZ,
    f8E8M0FNU,
)
from xdsl.ir import Attribute

__all__ = [
    "ELEMENTS", "NARROW_FLOATS", "bf16", "bit_width", "byte_width", "dtype_of", "element_of",
    "f4E2M1FN", "f6E2M3FN", "f6E3M2FN", "f8E3M4", "f8E4M3", "f8E4M3B11FNUZ", "f8E4M3FN",
    "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ", "f8E8M0FNU", "f16", "f32", "f64", "holds", "i1", "i2",
    "i4", "i6", "i8", "i16", "i32", "i64", "index", "is_float", "is_half", "is_narrow_float",
    "is_short_integer", "is_unsigned", "largest", "precision", "semantics_of", "signless", "ui2",
    "ui4", "ui6", "ui8", "ui16", "ui32", "ui64", "wide_element",
]

f16, bf16, f32, f64 = Float16Type(), BFloat16Type(), Float32Type(), Float64Type()
i1, i8, i16, i32, i64 = (IntegerType(w) for w in (1, 8, 16, 32, 64))
i2, i4, i6 = (IntegerType(w) for w in (2, 4, 6))
ui2, ui4, ui6 = (IntegerType(w, Signedness.UNSIGNED) for w in (2, 4, 6))
ui8, ui16, ui32, ui64 = (IntegerType(w, Signedness.UNSIGNED) for w in (8, 16, 32, 64))
index = IndexType()

NARROW_FLOATS: dict[ReducedPrecisionFloatType, np.dtype[Any]] = {
    f8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    f8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
    f8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    f8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
    f8E8M0FNU: np.dtype(ml_dtypes.float8_e8m0fnu),
    f8E3M4: np.dtype(ml_dtypes.float8_e3m4),
    f8E4M3: np.dtype(ml_dtypes.float8_e4m3),
    f8E4M3B11FNUZ: np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    f6E2M3FN: np.dtype(ml_dtypes.float6_e2m3fn),
    f6E3M2FN: np.dtype(ml_dtypes.float6_e3m2fn),
    f4E2M1FN: np.dtype(ml_dtypes.float4_e2m1fn),
}
"""Floats of at most one byte. They are converted to f32 before any computation."""

_STORED: dict[Attribute, np.dtype[Any]] = {
    f16: np.dtype(np.float16), bf16: np.dtype(ml_dtypes.bfloat16), f32: np.dtype(np.float32),
    f64: np.dtype(np.float64), i1: np.dtype(np.bool_), i2: np.dtype(ml_dtypes.int2),
    i4: np.dtype(ml_dtypes.int4), i8: np.dtype(np.int8), i16: np.dtype(np.int16),
    i32: np.dtype(np.int32), i64: np.dtype(np.int64), ui2: np.dtype(ml_dtypes.uint2),
    ui4: np.dtype(ml_dtypes.uint4), ui8: np.dtype(np.uint8), ui16: np.dtype(np.uint16),
    ui32: np.dtype(np.uint32), ui64: np.dtype(np.uint64), **NARROW_FLOATS,
}
_ELEMENTS = {dtype: element for element, dtype in _STORED.items()}
ELEMENTS = tuple(_STORED)
"""All element types of tensors."""
_DTYPES = {**_STORED, index: np.dtype(np.int64), i6: np.dtype(np.int8), ui6: np.dtype(np.uint8)}
_SIGNLESS: dict[Attribute, Attribute] = {
    ui2: i2, ui4: i4, ui6: i6, ui8: i8, ui16: i16, ui32: i32, ui64: i64}
_UNSIGNED = frozenset((i1, *_SIGNLESS))


def dtype_of(element: Attribute) -> np.dtype[Any]:
    """The NumPy dtype of an element type. Raises KeyError for a type without one."""
    return _DTYPES[element]


def element_of(dtype: np.dtype[Any]) -> Attribute:
    """The element type of a NumPy dtype. Raises KeyError for an unsupported dtype."""
    return _ELEMENTS[np.dtype(dtype)]


_FLOATS: dict[type, int] = {Float16Type: 2, BFloat16Type: 2, Float32Type: 4, Float64Type: 8}
"""The floats that have units in processors, and their bytes."""
_PLAIN = frozenset[type]((*_FLOATS, IntegerType, IndexType))
"""The classes of element types that are no narrow floats; xDSL asks in Python code."""


def is_float(element: Attribute) -> bool:
    """True for all floats, narrow ones too."""
    return type(element) in _FLOATS or isinstance(element, ReducedPrecisionFloatType)


def is_half(element: Attribute) -> bool:
    """True for f16 and bf16."""
    return type(element) in (Float16Type, BFloat16Type)


def is_narrow_float(element: Attribute) -> TypeGuard[ReducedPrecisionFloatType]:
    return type(element) not in _PLAIN and isinstance(element, ReducedPrecisionFloatType)


@cache
def holds(wide: Attribute, narrow: Attribute) -> bool:
    """Whether one float type represents every value of another. For narrow floats, all are tried.
    """
    if not is_narrow_float(narrow):
        return wide in (f32, narrow)
    codes = np.arange(1 << bit_width(narrow), dtype=np.uint8).view(dtype_of(narrow))
    numbers = codes.astype(np.float32)
    return np.array_equal(numbers.astype(dtype_of(wide)).astype(np.float32), numbers, True)


def is_unsigned(element: Attribute) -> bool:
    """True for ui2 to ui64 and for i1 (a truth value widens without a sign)."""
    return element in _UNSIGNED


def is_short_integer(element: Attribute) -> bool:
    """True for integers of less than a byte, except truth values."""
    return type(element) is IntegerType and 1 < element.bitwidth < 8


def signless(element: Attribute) -> Attribute:
    """The type used by scalar `arith` operations: ui8 becomes i8; other types are unchanged."""
    return _SIGNLESS.get(element, element)


def byte_width(element: Attribute) -> int:
    """Bytes of one stored element, at least 1."""
    return _FLOATS.get(type(element)) or _DTYPES[element].itemsize


def bit_width(element: Attribute) -> int:
    """The number of significant bits: 1 for i1, 4 for i4 and f4E2M1FN, 64 for `index`."""
    if type(element) is IntegerType or is_narrow_float(element):
        return element.bitwidth
    return 8 * byte_width(element)


def wide_element(element: Attribute) -> Attribute:
    """The type in which elements are computed and accumulated.

    This is f32 for f16, bf16 and narrow floats, i8 or ui8 for shorter integers, and the type
    itself otherwise.
    """
    if is_half(element) or is_narrow_float(element):
        return f32
    if is_short_integer(element):
        return ui8 if is_unsigned(element) else i8
    return element


def semantics_of(element: Attribute) -> FloatSemantics:
    """The format description of a narrow float."""
    assert isinstance(element, ReducedPrecisionFloatType)
    return element.SEMANTICS


def largest(element: Attribute) -> float:
    """The largest finite number of a float type."""
    return float(cast(Any, ml_dtypes).finfo(dtype_of(element)).max)


def precision(element: Attribute) -> float:
    """The machine epsilon of a float type: the distance from 1 to the next larger number."""
    return float(cast(Any, ml_dtypes).finfo(dtype_of(element)).eps)
