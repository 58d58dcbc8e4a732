"""Numeric rules that the `evaluate` methods of graph operations share.

Operations on half-precision floats (f16, bf16) compute in f32 and round once, at the end.
Conversions of narrow floats and of integers of less than a byte widen them in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dialects.semantics.carriers import Carrier, as_array, as_in
from dialects.strata import types as t
from dialects.strata.types import Array, TensorType

_WIDE = {t.dtype_of(e): t.dtype_of(t.wide_element(e)) for e in t.ELEMENTS}


def widen(array: Array) -> Array:
    """Convert to the dtype for computation: f32 for f16 and bf16; most others are unchanged."""
    return array.astype(_WIDE.get(array.dtype, array.dtype), copy=False)


def rounded(array: Any, type_: TensorType) -> Array:
    """Round `array` to the dtype of its tensor type; values that are too large become inf."""
    with np.errstate(all="ignore"):
        return as_array(array).astype(type_.dtype, copy=False)


def in_f64(formula: Callable[..., Any]) -> Callable[..., Array]:
    """A function of floats that is computed in f64 and rounded to the dtype of its first operand.

    NumPy's functions of f32 are not exact where the result is a small integer.
    """
    def apply(*operands: Array) -> Array:
        found = formula(*(as_array(x, np.float64) for x in operands))
        return as_array(found).astype(operands[0].dtype)

    return apply


def lowest(dtype: np.dtype[Any]) -> Any:
    """The identity of `max`: -inf, false, or the smallest integer."""
    if dtype == np.bool_:
        return False
    return np.iinfo(dtype).min if np.issubdtype(dtype, np.integer) else -np.inf


def highest(dtype: np.dtype[Any]) -> Any:
    """The identity of `min`: inf, true, or the largest integer."""
    if dtype == np.bool_:
        return True
    return np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else np.inf


# ---------------------------------------------------------------------- narrow floats
ROUNDING_STEPS = {"up": 0x7FFFFF, "down": 0, "nearest": 0x400000}
"""The number to add to an f32's bits so that its 23-bit mantissa carries into the exponent."""


LEAST_POWER, LARGEST_POWER = 0x00400000, 0x7F000000
"""The bits of 2^-127 and 2^127 in f32, the range of f8E8M0FNU."""


def power_of_two(x: Array, rounding: str, saturate: bool) -> Array:
    """The magnitude of f32 numbers as a power of two: `up`, `down`, or `nearest` with ties up.

    With `saturate`, values out of the range of f8E8M0FNU become its nearest end. Otherwise, values
    above become inf, and values below are unchanged. NaN is preserved.
    """
    bits = np.abs(x).view(np.int32)
    moved = np.maximum((bits + ROUNDING_STEPS[rounding]) & 0x7F800000, LEAST_POWER)
    moved = np.where(bits > LEAST_POWER, moved, LEAST_POWER if saturate else bits)
    moved = np.minimum(moved, LARGEST_POWER) if saturate else moved
    return np.where(np.isnan(x), x, moved.astype(np.int32).view(np.float32))


# ---------------------------------------------------------------------- the error function
# Rational approximations of the Cephes library (ndtr.c), exact to about 1e-16; for |x| <= 1
# erf(x) = x * T(x*x) / U(x*x), above it erf(x) = 1 - exp(-x*x) * P(x) / Q(x), above 6 it is 1.
_T = (9.60497373987051638749e0, 9.00260197203842689217e1, 2.23200534594684319226e3,
      7.00332514112805075473e3, 5.55923013010394962768e4)
_U = (1.0, 3.35617141647503099647e1, 5.21357949780152679795e2, 4.59432382970980127987e3,
      2.26290000613890934246e4, 4.92673942608635921086e4)
_P = (2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687e0,
      4.86371970985681366614e1, 1.96520832956077098242e2, 5.26445194995477358631e2,
      9.34528527171957607540e2, 1.02755188689515710272e3, 5.57535335369399327526e2)
_Q = (1.0, 1.32281951154744992508e1, 8.67072140885989742329e1, 3.54937778887819891062e2,
      9.75708501743205489753e2, 1.82390916687909736289e3, 2.24633760818710981792e3,
      1.65666309194161350182e3, 5.57535340817727675546e2)
_CHUNK = 1 << 14  # elements that fit a core's cache throughout the polynomials


def erf(x: Array) -> Array:
    """The error function, computed in f64, in the dtype of `x` (f32 or f64)."""
    if isinstance(x, Carrier):
        return x.function("erf")
    flat = np.ascontiguousarray(x).reshape(-1)
    result = np.empty_like(flat)
    for start in range(0, flat.size, _CHUNK):
        result[start:start + _CHUNK] = _erf64(flat[start:start + _CHUNK].astype(np.float64))
    return result.reshape(x.shape)


def _erf64(x: Array) -> Array:
    magnitude = np.minimum(np.abs(x), 6.0)
    square = magnitude * magnitude
    tail = 1.0 - np.exp(-square) * _polynomial(_P, magnitude) / _polynomial(_Q, magnitude)
    small = magnitude * _polynomial(_T, square) / _polynomial(_U, square)
    return np.copysign(np.where(magnitude <= 1.0, small, tail), x)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total *= x
        total += coefficient
    return total


# ---------------------------------------------------------------------- integers
def to_integer(x: Array, dtype: np.dtype[Any]) -> Array:
    """Truncate floats to integers: the conversion that `graph.cast` specifies.

    Types of less than 32 bits take the low bits of the conversion to i32. A signed type of 32 or
    64 bits maps NaN and values out of range to its smallest number. An unsigned type of 32 or 64
    bits takes the bits of the signed conversion for values below the end of the signed range, and
    represents larger values within its own range exactly.
    """
    wide = np.dtype(np.int64 if dtype.itemsize == 8 else np.int32)
    if isinstance(x, Carrier):
        return as_in(to_integer(x.numbers(), dtype), x)
    with np.errstate(all="ignore"):
        if dtype.kind != "u" or dtype.itemsize < 4:
            return _to_signed(x, wide).astype(dtype)
        end = x.dtype.type(2.0 ** (8 * wide.itemsize - 1))
        high = x >= end
        low = _to_signed(np.where(high, x - end, x), wide)
        return np.where(high, low ^ np.iinfo(wide).min, low).view(dtype)


def _to_signed(x: Array, dtype: np.dtype[Any]) -> Array:
    least = np.iinfo(dtype).min
    inside = (x >= float(least)) & (x < -float(least))
    return np.where(inside, x, x.dtype.type(least)).astype(dtype)


def truncating_divide(x: Array, y: Array) -> Array:
    """Integer division rounded towards zero; 0 for a zero divisor."""
    quotient = np.floor_divide(x, y)
    inexact = (quotient * y != x) & (y != 0)
    return quotient + (inexact & ((x < 0) != (y < 0))).astype(quotient.dtype)


def integer_power(x: Array, y: Array) -> Array:
    """x to the power y; a negative exponent truncates the fraction to 0 unless |x| is 1."""
    power = np.power(x, np.maximum(y, np.zeros((), y.dtype)))
    parity = np.where(y % 2 == 0, np.ones((), x.dtype), x)
    fraction = np.where(np.abs(x) == 1, parity, np.zeros((), x.dtype))
    return np.where(y < 0, fraction, power)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), which tends to 0 and 1."""
    return np.reciprocal(1 + np.exp(-x))


SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
