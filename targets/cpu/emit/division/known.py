"""Division of f32 by a number known at compile time: one multiplication and one fused addition.

Let high be 1/y rounded towards zero, and low the rest of 1/y, rounded. Then

    x / y = fma(x, high, x * low)

is correctly rounded for nearly every y (Brisebarre, Muller, Raina: Accelerating correctly rounded
floating-point division when the divisor is known in advance). The sum before its only rounding is
off by less than x * low * 2^-23. The result can therefore be wrong only if x/y is as near as that
to the middle between two numbers. Few x are, and `_is_exact` tries each of them.

High and low have the same sign, so that infinities and zeros give what a division gives. If the
quotient is below 2^-78, x * low may count as zero; the result can then be off by one ulp.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from math import frexp, ldexp

_BITS = 24
"""The bits of a mantissa."""
_FIRST, _END = 1 << _BITS - 1, 1 << _BITS
"""The integers that stand for all mantissas."""
_LARGEST = 60
"""The exponent up to which no part of a reciprocal is near the ends of the range of f32."""


@cache
def reciprocal_of(y: float) -> tuple[float, float] | None:
    """High and low for a number of f32; low is 0 for powers of two, where high alone is exact.

    None for divisors that are 0, not finite, huge or tiny, and for those for which some quotient
    would be wrong.
    """
    mantissa, exponent = frexp(abs(y))
    if not 0.5 <= mantissa < 1 or abs(exponent) > _LARGEST:
        return None
    divisor = int(ldexp(mantissa, _BITS))
    if divisor == _FIRST:
        return 1 / y, 0.0
    high, low = _parts(divisor)
    if not _is_exact(divisor, high, low):
        return None
    scale = ldexp(1.0 if y > 0 else -1.0, _BITS - exponent)
    return float(high) * scale, float(low) * scale


def _parts(divisor: int) -> tuple[Fraction, Fraction]:
    """The parts of the reciprocal of a mantissa, of which the first is below it."""
    places = 2 * _BITS - 1
    high = Fraction((1 << places) // divisor, 1 << places)
    return high, _rounded(Fraction(1, divisor) - high)


def _is_exact(divisor: int, high: Fraction, low: Fraction) -> bool:
    """Whether no quotient by a mantissa is wrong."""
    return all(_rounded(x * high + _rounded(x * low)) == _rounded(Fraction(x, divisor))
               for x in _near_middles(divisor, low))


def _near_middles(divisor: int, low: Fraction) -> Iterator[int]:
    """The mantissas x for which x/y may be too near to a middle m / 2^s, with an odd m.

    |x/y - m/2^s| is a fraction |x*2^s - m*y| / (y*2^s), whose numerator is a small integer t.
    Each t belongs to the few m with m*y = -t modulo 2^s. Of y = odd * 2^z, only multiples of 2^z
    have any, and odd multiples odd ones.
    """
    zeros = (divisor & -divisor).bit_length() - 1
    odd = divisor >> zeros
    for shift in (_BITS, _BITS + 1):  # quotients above and below 1
        most = int(_END * (low / _FIRST) * divisor * (1 << shift))
        for t in range(-most, most + 1):
            if t % (2 << zeros) != 1 << zeros:
                continue
            modulus = 1 << shift - zeros
            first = -(t >> zeros) * pow(odd, -1, modulus) % modulus
            for m in range(_END + (first - _END) % modulus, 2 * _END, modulus):
                x = (t + m * divisor) >> shift
                if _FIRST <= x < _END:
                    yield x


def _rounded(number: Fraction) -> Fraction:
    """To a mantissa of 24 bits and any exponent, ties to even; of a positive number or zero."""
    if not number:
        return number
    exponent = number.numerator.bit_length() - number.denominator.bit_length() - _BITS
    scaled = _scaled(number, -exponent)
    exponent += scaled >= _END
    return _scaled(Fraction(round(_scaled(number, -exponent))), exponent)


def _scaled(number: Fraction, exponent: int) -> Fraction:
    return number * 2 ** exponent if exponent >= 0 else number / 2 ** -exponent
