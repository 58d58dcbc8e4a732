"""The error function's complement, its scaled form and its inverse, and the normal distribution.

With |x| = a, erfc(a) = e^(-a^2) erfcx(a), and erfcx is a polynomial. Inverses start from a short
approximation, which one step or two of Newton's or Halley's method make exact.
"""

from __future__ import annotations

import math

from compiler.frontend import formulas as f
from compiler.frontend.torch.special.polynomials import polynomial
from compiler.frontend.torch.special.tables import ERFCX
from compiler.frontend.values import Value
from dialects.graph.unary import ErfOp
from dialects.strata import types as t

_CENTRE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
           -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)
_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
         -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)
"""erfinv(x) / x in w - 2.5 for w = -ln(1 - x^2) < 5, and in sqrt(w) - 3 beyond.
Source: M. Giles, Approximating the erfinv function, GPU Computing Gems, volume 2 (2011)."""
_SQRT_HALF, _LARGE = math.sqrt(0.5), 1e300


def erfcx_from_zero(x: Value) -> Value:
    """e^(x^2) erfc(x) for x >= 0."""
    x = f.minimum(x, _LARGE)
    return polynomial((x - 3.75) / (x + 3.75), ERFCX) / (1 + 2 * x)


def _gauss(a: Value, sign: float) -> Value:
    """e^(sign a^2), where a^2 is not rounded: a is a number of f32 and a rest."""
    high = a.cast(t.f32).cast(t.f64)
    return f.exp(high * high * sign) * f.exp((a - high) * (a + high) * sign)


def erfc(x: Value) -> Value:
    """1 - erf(x), accurate where that is small."""
    a = abs(x)
    value = erfcx_from_zero(a) * _gauss(f.minimum(a, 30.0), -1.0)
    return f.where(x < 0, 2 - value, value)


def erfcx(x: Value) -> Value:
    """e^(x^2) erfc(x)."""
    a = abs(x)
    value = erfcx_from_zero(a)
    return f.where(x < 0, 2 * _gauss(f.minimum(a, 30.0), 1.0) - value, value)


def erfinv(x: Value, steps: int) -> Value:
    """The number whose error function is x. One of Halley's `steps` makes it as exact as f32."""
    size = abs(x)
    rest = 1 - size
    y = _start(rest * (1 + size)) * size
    for _ in range(steps):
        apart = f.where(size < 0.5, x.build(ErfOp, y) - size, rest - erfc(y))
        step = apart / (2 / math.sqrt(math.pi)) * _gauss(f.minimum(y, 30.0), 1.0)
        y = y - step / (1 + y * step)
    y = f.where(f.equal(size, 1.0), math.inf, f.where(size > 1, math.nan, y))
    return f.where(x < 0, -y, y)


def _start(product: Value) -> Value:
    """erfinv(x) / x for 1 - x^2, to about seven digits if that is at least 1e-7."""
    w = -f.log(product)
    tail = polynomial(f.sqrt(f.maximum(w, 0.0)) - 3, _TAIL)
    return f.where(w < 5, polynomial(w - 2.5, _CENTRE), tail)


def ndtri(p: Value) -> Value:
    """The number below which a standard normal number is with probability p.

    Newton's method on the logarithm of the tail, which is almost a parabola.
    """
    tail = f.minimum(p, 1 - p)
    wanted = f.log(tail)
    middle = math.sqrt(2) * _start(4 * tail * (1 - tail)) * (1 - 2 * tail)
    far = f.sqrt(f.maximum(-2 * wanted, 1.0))
    x = f.where(wanted < -7, far - (f.log(far) + 0.5 * math.log(2 * math.pi)) / far, middle)
    for _ in range(3):
        scaled = erfcx_from_zero(x * _SQRT_HALF)
        apart = f.log(0.5 * scaled) - 0.5 * x * x - wanted
        x = f.maximum(x + apart * scaled * math.sqrt(math.pi / 2), 0.0)
    x = f.where(f.equal(tail, 0.0), math.inf, f.where(tail < 0, math.nan, x))
    return f.where(p < 0.5, -x, x)


def ndtr(x: Value) -> Value:
    """The probability that a standard normal number is below x."""
    return 0.5 * erfc(x * -_SQRT_HALF)


def log_ndtr(x: Value) -> Value:
    """The logarithm of that probability, also where it is 0 or 1."""
    scaled = erfcx_from_zero(abs(x) * _SQRT_HALF)
    low = f.log(0.5 * scaled) - 0.5 * x * x
    return f.where(x < -1, low, f.log1p(-0.5 * erfc(x * _SQRT_HALF)))
