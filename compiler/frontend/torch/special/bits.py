"""Functions that read or write the sign, the exponent or the last bit of floats."""

from __future__ import annotations

from xdsl.ir import Attribute

from compiler.frontend import formulas as f
from compiler.frontend.values import Value
from dialects.graph.bits import BitcastOp, ShiftRightOp
from dialects.strata import types as t

_INTEGERS = {2: t.i16, 4: t.i32, 8: t.i64}
_FRACTION = {4: 23, 8: 52}
"""The bits of a fraction, by the bytes of a float."""


def signbit(x: Value) -> Value:
    """Whether a number (not a truth value) has a minus sign; -0.0 and negative NaNs have one."""
    if not t.is_float(x.element):
        return x < 0
    return _bits(x) < 0


def copysign(x: Value, y: Value) -> Value:
    """|x| with the sign of y; x is a float."""
    size = abs(x)
    return f.where(signbit(y), -size, size)


def next_after(x: Value, y: Value) -> Value:
    """The float that follows x on the way to y: one more or less, counted from 0 by the bits."""
    own, other = _place(x), _place(y)
    one = f.where(own < other, own + 1, own - 1)
    least = -(1 << (t.bit_width(one.element) - 1))
    negative = (one < 0) | (f.equal(one, 0) & (own < 0))  # the step after the last is to -0.0
    moved = x.build(BitcastOp, f.where(negative, least - one, one), to=x.element)
    moved = f.where(f.equal(own, other), y, moved)
    return f.where(f.is_nan(x), x, f.where(f.is_nan(y), y, moved))


def _place(x: Value) -> Value:
    """An integer that orders floats; 0 for both zeros."""
    bits = _bits(x)
    least = -(1 << (t.bit_width(bits.element) - 1))
    return f.where(bits < 0, least - bits, bits)


def frexp(x: Value) -> tuple[Value, Value]:
    """m and an integer e with x = m * 2^e and 1/2 <= |m| < 1, for x of f32 or f64.

    0, infinities and NaN are their own m, with e = 0. Subnormals count as 0 where kernels flush
    them.
    """
    width = _FRACTION[t.byte_width(x.element)]
    bias = 126 if width == 23 else 1022
    tiny = f.equal(_exponent(x, width), 0)
    scaled = f.where(tiny, x * 2.0 ** (width + 1), x)
    exponent = _exponent(scaled, width)
    mask = ((1 << (8 if width == 23 else 11)) - 1) << width
    bits = _bits(scaled)
    half = x.build(BitcastOp, bits - (bits & mask) + (bias << width), to=x.element)
    plain = f.is_nan(x) | f.is_inf(x) | f.equal(x, 0.0)
    power = exponent - bias - f.where(tiny, width + 1, exponent * 0)
    return f.where(plain, x, half), f.where(plain, 0, power)


def _exponent(x: Value, width: int) -> Value:
    """The biased exponent of a float, whose fraction has `width` bits."""
    bits = _bits(x)
    shift = x.build(ShiftRightOp, bits, bits * 0 + width)
    return shift & ((1 << (8 if width == 23 else 11)) - 1)


def _bits(x: Value) -> Value:
    return x.build(BitcastOp, x, to=_integer(x.element))


def _integer(element: Attribute) -> Attribute:
    return _INTEGERS[t.byte_width(element)]


def in_total_order(x: Value) -> Value:
    """Integers in the total order of floats: -0.0 before 0.0, and NaN by its sign at an end."""
    bits = _bits(x)
    return f.where(bits < 0, bits ^ ((1 << (t.bit_width(bits.element) - 1)) - 1), bits)


# ---------------------------------------------------------------------- integers
_PLAIN: dict[int, Attribute] = {8: t.ui8, 16: t.ui16, 32: t.ui32, 64: t.ui64}


def population(x: Value) -> Value:
    """How many bits of an integer are set, in its type: neighbours are added, then pairs ..."""
    width = t.bit_width(x.element)
    counts, step = x.build(BitcastOp, x, to=_PLAIN[width]), 1
    while step < width:
        mask = sum(((1 << step) - 1) << at for at in range(0, width, 2 * step))
        counts = (counts & mask) + (_shifted(counts, step) & mask)
        step *= 2
    return counts.cast(x.element)


def leading_zeros(x: Value) -> Value:
    """How many bits before the first one that is set are not: all of 0."""
    width = t.bit_width(x.element)
    filled, step = x.build(BitcastOp, x, to=_PLAIN[width]), 1
    while step < width:
        filled, step = filled | _shifted(filled, step), step * 2
    return (width - population(filled)).cast(x.element)


def _shifted(x: Value, step: int) -> Value:
    return x.build(ShiftRightOp, x, x * 0 + step)
