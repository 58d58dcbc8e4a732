"""The gamma function's logarithm, its derivatives, and Hurwitz's zeta function.

Asymptotic series hold from 8 or 10 on; below, arguments are moved there by recurrences, and
negative ones by reflection. Near a zero at a negative number, errors are absolute ones.
Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 6.1.15-6.1.41, 6.3.6-6.3.18,
6.4.6-6.4.12, 23.2.
"""

from __future__ import annotations

import math

from compiler.frontend import formulas as f
from compiler.frontend.torch.special.polynomials import polynomial
from compiler.frontend.values import Value
from dialects.graph.trigonometric import TanOp
from dialects.graph.unary import SinOp

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
"""B2, B4, ..., B16."""


def lgamma(x: Value) -> Value:
    """ln |Gamma(x)|."""
    negative = x < 0
    above = _lgamma_from_zero(f.where(negative, 1 - x, x))
    value = f.where(negative, f.log(math.pi / abs(_sine(x))) - above, above)
    value = f.where(f.equal(x, 1.0) | f.equal(x, 2.0), 0.0, value)
    return f.where(f.is_inf(x), math.inf, value)


def _lgamma_from_zero(x: Value) -> Value:
    small = x < 8
    product = x
    for k in range(1, 8):
        product = product * (x + float(k))
    z = f.where(small, x + 8, x)
    series = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(BERNOULLI, 1)]
    inverse = 1 / z
    rest = polynomial(inverse * inverse, series[::-1]) * inverse
    stirling = (z - 0.5) * f.log(z) - z + 0.5 * math.log(2 * math.pi) + rest
    return stirling - f.log(f.where(small, product, 1.0))


def _sine(x: Value) -> Value:
    """sin(pi x) or its opposite, exactly 0 for integers."""
    return x.build(SinOp, (x - f.nearest(x)) * math.pi)


def digamma(x: Value) -> Value:
    """The derivative of ln Gamma(x)."""
    negative = x < 0
    above = _digamma_from_zero(f.where(negative, 1 - x, x))
    fraction = x - f.where(negative, f.ceil(x), f.floor(x))
    value = f.where(negative, above - math.pi / x.build(TanOp, fraction * math.pi), above)
    pole = negative & f.equal(fraction, 0.0)
    value = f.where(pole | f.equal(x, -math.inf), math.nan, value)
    return f.where(f.equal(x, 0.0), -1 / x, value)


def _digamma_from_zero(x: Value) -> Value:
    small = x < 10
    moved = f.total(1 / (x + float(k)) for k in range(10))
    z = f.where(small, x + 10, x)
    square = 1 / (z * z)
    series = [b / (2 * k) for k, b in enumerate(BERNOULLI, 1)]
    value = f.log(z) - 0.5 / z - polynomial(square, series[::-1]) * square
    return value - f.where(small, moved, 0.0)


def trigamma(x: Value) -> Value:
    """The second derivative of ln Gamma(x)."""
    low = x < 0.5
    above = _trigamma_above(f.where(low, 1 - x, x))
    sine = _sine(x) / math.pi
    return f.where(low, 1 / (sine * sine) - above, above)


def _trigamma_above(x: Value) -> Value:
    small = x < 10
    moved = f.total(1 / ((x + float(k)) * (x + float(k))) for k in range(10))
    inverse = 1 / f.where(small, x + 10, x)
    square = inverse * inverse
    rest = polynomial(square, BERNOULLI[::-1]) * square * inverse
    return inverse + 0.5 * square + rest + f.where(small, moved, 0.0)


def polygamma(order: int, x: Value) -> Value:
    """The derivative of this order of digamma."""
    if order == 0:
        return digamma(x)
    if order == 1:
        return trigamma(x)
    power = x * 0.0 + float(order + 1)
    return (-1.0) ** (order + 1) * math.gamma(order + 1) * zeta(power, x)


def zeta(s: Value, q: Value) -> Value:
    """The sum of (k + q)^-s over k = 0, 1, ..., by the formula of Euler and Maclaurin.

    For negative q that are no integers, s must be one: with f = q - floor(q), the terms below 0 are
    those of zeta(s, 1 - f) without those of zeta(s, 1 - q), with the sign of (-1)^s.
    """
    negative, fraction = q < 0, q - f.floor(q)
    value = _zeta_above(s, f.where(negative, fraction, q))
    below = _zeta_above(s, 1 - fraction) - _zeta_above(s, f.where(negative, 1 - q, 1.0))
    half = s * 0.5
    sign = f.where(f.equal(half, f.floor(half)), s * 0.0 + 1, -1.0)
    value = f.where(negative, value + sign * below, value)
    whole = f.equal(s, f.floor(s))
    value = f.where(negative & ~whole, math.nan, value)
    value = f.where((q <= 0) & f.equal(q, f.floor(q)), math.inf, value)
    return f.where(f.equal(s, 1.0), math.inf, f.where(s < 1, math.nan, value))


def _zeta_above(s: Value, q: Value) -> Value:
    terms = f.total((q + float(k)) ** -s for k in range(9))
    z = q + 9.0
    power = z ** -s
    value = terms + power * z / (s - 1) + 0.5 * power
    factor, power = s, power / z
    for k, number in enumerate(BERNOULLI, 1):
        value = value + number / math.factorial(2 * k) * (factor * power)
        factor = factor * (s + float(2 * k - 1)) * (s + float(2 * k))
        power = power / (z * z)
    return value
