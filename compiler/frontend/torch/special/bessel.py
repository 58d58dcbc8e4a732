"""Bessel functions of orders 0 and 1: polynomials near 0, and the asymptotic form beyond.

As in eager mode, those that are not scaled are NaN at infinity.
"""

from __future__ import annotations

import math

from compiler.frontend import formulas as f
from compiler.frontend.torch.special import tables
from compiler.frontend.torch.special.polynomials import polynomial
from compiler.frontend.values import Value
from dialects.graph.unary import CosOp, SinOp

_IN, _IN_FAR = (tables.I0E, tables.I1E), (tables.I0E_FAR, tables.I1E_FAR)
_JN, _YN = (tables.J0, tables.J1), (tables.Y0, tables.Y1)
_PN, _QN = (tables.P0, tables.P1), (tables.Q0, tables.Q1)
_KN, _KN_FAR = (tables.K0, tables.K1), (tables.K0E_FAR, tables.K1E_FAR)


def scaled_i(order: int, x: Value) -> Value:
    """e^-|x| I(x), the modified function of the first kind."""
    a = abs(x)
    far = f.maximum(a, 8.0)
    inside = _i_near(order, f.minimum(a, 8.0))
    beyond = polynomial(16 / far - 1, _IN_FAR[order]) / f.sqrt(far)
    value = f.where(a <= 8, inside, beyond)
    return f.where(x < 0, -value, value) if order else value


def i(order: int, x: Value) -> Value:
    """The same, unscaled; in two factors, since e^|x| overflows first."""
    half = f.exp(0.5 * abs(x))
    return scaled_i(order, x) * half * half


def _i_near(order: int, x: Value) -> Value:
    """e^-x I(x) for x from 0 to 8."""
    value = polynomial(x * 0.25 - 1, _IN[order])
    return value * x if order else value


def j(order: int, x: Value) -> Value:
    """The function of the first kind."""
    a = abs(x)
    value = f.where(a <= 8, _j_near(order, f.minimum(a, 8.0)), _far(order, a, False))
    value = f.where(f.is_inf(x), math.nan, value)
    return f.where(x < 0, -value, value) if order else value


def _j_near(order: int, x: Value) -> Value:
    """The same for x from 0 to 8."""
    value = polynomial(x * x * (1 / 32) - 1, _JN[order])
    return value * x if order else value


def y(order: int, x: Value) -> Value:
    """The function of the second kind: NaN below 0, -inf at 0."""
    near = f.minimum(abs(x), 8.0)
    rest = polynomial(near * near * (1 / 32) - 1, _YN[order])
    log = f.log(near) * _j_near(order, near)
    inside = 2 / math.pi * (log - 1 / near) + rest * near if order else 2 / math.pi * log + rest
    value = f.where(x <= 8, inside, _far(order, x, True))
    value = f.where(f.equal(x, math.inf), math.nan, value)
    return f.where(x > 0, value, f.log(x))


def _far(order: int, x: Value, second: bool) -> Value:
    """sqrt(2/(pi x)) (P cos a - Q sin a), or P sin a + Q cos a, a = x - (2 order + 1) pi/4.

    Sine and cosine of a are sums of those of x, so that x is reduced exactly.
    """
    x = f.maximum(x, 8.0)
    u = 128 / (x * x) - 1
    p, q = polynomial(u, _PN[order]), polynomial(u, _QN[order]) / x
    sine, cosine = x.build(SinOp, x), x.build(CosOp, x)
    sin_a, cos_a = (-sine - cosine, sine - cosine) if order else (sine - cosine, sine + cosine)
    wave = p * sin_a + q * cos_a if second else p * cos_a - q * sin_a
    return wave / f.sqrt(math.pi * x)


def k(order: int, x: Value, scaled: bool) -> Value:
    """The modified function of the second kind: NaN below 0, inf at 0. With `scaled`, times e^x."""
    near, far = f.minimum(abs(x), 2.0), f.maximum(x, 2.0)
    rest = polynomial(near * near * 0.5 - 1, _KN[order])
    log = f.log(0.5 * near) * _i_near(order, near) * f.exp(near)
    inside = log + 1 / near + rest * near if order else rest - log
    beyond = polynomial(4 / far - 1, _KN_FAR[order]) / f.sqrt(far)
    inside, beyond = (inside * f.exp(near), beyond) if scaled else (inside, beyond * f.exp(-far))
    value = f.where(x <= 2, inside, beyond)
    return f.where(x > 0, value, -f.log(x))


def spherical_j0(x: Value) -> Value:
    """sin(x) / x."""
    square = x * x
    series = [(-1) ** n / math.factorial(2 * n + 1) for n in range(7, -1, -1)]
    near = polynomial(f.minimum(square, 0.25), series)
    value = f.where(abs(x) < 0.5, near, x.build(SinOp, x) / x)
    return f.where(f.is_inf(x), 0.0, value)
