"""Triton source of functions that the Triton language lacks, for f32 and f64.

libdevice has most of them, but Triton's interpreter has no libdevice. In the texts `{d}` is f32 or
f64, `{polynomial}` a polynomial in s, and `{width}` the bits of the type. Functions that need a
different method in f32 are in `single.py`. Errors are a few units in the last place
(`benchmarks/cuda/ACCURACY.md`). Each text says how it avoids cancellation.
"""

from __future__ import annotations

Coefficients = tuple[float, ...]

POLYNOMIALS: dict[tuple[str, str], Coefficients] = {
    # (tanh(x)/x - 1)/x^2 in s = x^2, Chebyshev fits on |x| < 0.55 and |x| < 0.25
    ("tanh", "f32"): (-0.33333332, 0.13333114, -0.053909429, 0.021309389, -0.0066102278),
    ("tanh", "f64"): (
        -0.3333333333333333, 0.1333333333333333, -0.05396825396824333, 0.021869488534404923,
        -0.008863235385524644, 0.003592121337395477, -0.0014556513679161204,
        0.0005871001029280596, -0.00021359571661783356),
    # (atan(x)/x - 1)/x^2 in s = x^2, a Chebyshev fit on |x| < tan(pi/8)
    ("atan", "f64"): (
        -0.3333333333333333, 0.19999999999999804, -0.1428571428565962, 0.11111111105135144,
        -0.09090908752490777, 0.07692296345832923, -0.06666424361403532, 0.05878922970295775,
        -0.05230409886527479, 0.04551390802921589, -0.03456535728333266, 0.016279990049153217),
}

NEAR = {"f32": 0.55, "f64": 0.25}
"""For |x| below this, tanh is a polynomial."""

LARGE = {"f32": 1e9, "f64": 1e100}
"""Above this, x*x + 1 == x*x, while x*x does not overflow yet."""

TYPED: dict[str, str] = {
    "div": '''
def div_{d}(x, y):
    return {quotient}
''',
    "sqrt": '''
def sqrt_{d}(x):
    return {root}
''',
    "tanh": '''
def tanh_{d}(x):
    s = x * x
    near = x + x * s * ({polynomial})
    far = 1.0 - 2.0 / (tl.exp(2.0 * tl.abs(x)) + 1.0)
    far = tl.where(x < 0.0, -far, far)
    return tl.where(tl.abs(x) < {near}, near, far)
''',
    "fmod": '''
def fmod_{d}(x, y):
    # multiples of y * 2^28, y * 2^56 ... are taken away exactly, the largest first
    rest, least = tl.abs(x).to(tl.float64), tl.abs(y).to(tl.float64)
    for k in tl.static_range({steps}, -1, -1):
        scale = 2.0 ** (14 * k) if k < 40 else 2.0 ** 560
        more = 1.0 if k < 40 else 2.0 ** (14 * (k - 40))
        step = least * scale * more * scale * more
        less = tl.fma(-tl.floor(rest / step), step, rest)
        less = tl.where(less < 0.0, less + step, less)
        rest = tl.where((rest >= step) & (step > 0.0), less, rest)
    wrong = (least == 0.0) | (tl.abs(x) == float("inf")) | (x != x) | (y != y)
    return copysign_{d}(tl.where(wrong, float("nan"), rest).to(x.dtype), x)
''',
    "expm1": '''
def expm1_{d}(x):
    # (e^x - 1)/(e^x + 1) == tanh(x/2)
    e = tl.exp(x)
    return tl.where(e == float("inf"), e, tanh_{d}(0.5 * x) * (e + 1.0))
''',
    "log1p": '''
def log1p_{d}(x):
    # log(u + c) == log(u) + c/u, where c is the rounding error of u = 1 + x
    u = 1.0 + x
    y = tl.log(u)
    near = y + (x - (u - 1.0)) / u
    return tl.where(u == 1.0, x, tl.where((u == 0.0) | (x == float("inf")), y, near))
''',
    "log10": '''
def log10_{d}(x):
    # x == m*2^e; the first part of log10(2) has 40 bits, so that e times it is exact
    tiny = x < 2.2250738585072014e-308
    z = tl.where(tiny, x * 18014398509481984.0, x)
    bits = z.to(tl.int64, bitcast=True) - 0x3FE6A09E667F3BCD
    m = ((bits & 0xFFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD).to(tl.float64, bitcast=True)
    e = (bits >> 52).to(tl.float64) - tl.where(tiny, 54.0, 0.0)
    y = e * 0.301029995663157 + (e * 8.241712586023572e-13 + tl.log(m) * 0.4342944819032518)
    return tl.where((x > 0.0) & (x < float("inf")), y, tl.log(x))
''',
    "cbrt": '''
def cbrt_{d}(x):
    # a first guess, then a step of Newton's method
    a = tl.abs(x)
    guess = tl.exp2(tl.log2(a) * 0.3333333333333333)
    y = guess - (guess - div_{d}(a, guess * guess)) * 0.3333333333333333
    y = tl.where((a == 0.0) | (a == float("inf")), a, y)
    return tl.where(x < 0.0, -y, y)
''',
    "sinh": '''
def sinh_{d}(x):
    # t = e^|x| - 1: no cancellation near 0; for large x, halves do not overflow early
    a = tl.abs(x)
    t = expm1_{d}(a)
    y = 0.5 * (t + div_{d}(t, t + 1.0))
    h = tl.exp(0.5 * a)
    y = tl.where(a > 40.0, 0.5 * h * h, y)
    return tl.where(x < 0.0, -y, y)
''',
    "cosh": '''
def cosh_{d}(x):
    a = tl.abs(x)
    e = tl.exp(a)
    h = tl.exp(0.5 * a)
    return tl.where(a > 40.0, 0.5 * h * h, 0.5 * e + div_{d}(0.5, e))
''',
    "asinh": '''
def asinh_{d}(x):
    # for large x, log(2x); else log1p, without cancellation near 0
    a = tl.abs(x)
    b = tl.minimum(a, {large})
    near = log1p_{d}(b + div_{d}(b * b, 1.0 + sqrt_{d}(b * b + 1.0)))
    y = tl.where(a < {large}, near, tl.log(a) + 0.6931471805599453)
    y = tl.where(x < 0.0, -y, y)
    return tl.where(x == x, y, x)
''',
    "acosh": '''
def acosh_{d}(x):
    t = tl.minimum(x, {large}) - 1.0
    near = log1p_{d}(t + sqrt_{d}(2.0 * t + t * t))
    y = tl.where(x < {large}, near, tl.log(x) + 0.6931471805599453)
    return tl.where(x >= 1.0, y, float("nan"))
''',
    "atanh": '''
def atanh_{d}(x):
    a = tl.abs(x)
    y = 0.5 * log1p_{d}(div_{d}(2.0 * a, 1.0 - a))
    return tl.where(x < 0.0, -y, y)
''',
    "atan": '''
def atan_{d}(x):
    # atan(a) == pi/2 - atan(1/a), then half the angle brings a below tan(pi/8)
    a = tl.abs(x)
    b = tl.where(a > 1.0, div_{d}(1.0, a), a)
    h = div_{d}(b, 1.0 + sqrt_{d}(1.0 + b * b))
    s = h * h
    y = 2.0 * (h + h * s * ({polynomial}))
    y = tl.where(a > 1.0, 1.5707963267948966 - y, y)
    return tl.where(x < 0.0, -y, y)
''',
    "asin": '''
def asin_{d}(x):
    return atan_{d}(div_{d}(x, sqrt_{d}((1.0 - x) * (1.0 + x))))
''',
    "acos": '''
def acos_{d}(x):
    return 2.0 * atan_{d}(sqrt_{d}(div_{d}(1.0 - x, 1.0 + x)))
''',
    "atan2": '''
def atan2_{d}(y, x):
    # the angle in the first quadrant, then mirrored
    a, b = tl.abs(x), tl.abs(y)
    larger, smaller = tl.maximum(a, b), tl.minimum(a, b)
    same = larger == smaller  # also both zero or both infinite
    q = tl.where(same, tl.where(larger == 0.0, larger, 1.0), div_{d}(smaller, larger))
    angle = atan_{d}(q)
    angle = tl.where(b > a, 1.5707963267948966 - angle, angle)
    mirrored = x.to(tl.int{width}, bitcast=True) < 0
    angle = tl.where(mirrored, 3.141592653589793 - angle, angle)
    angle = tl.where(y.to(tl.int{width}, bitcast=True) < 0, -angle, angle)
    return tl.where((x != x) | (y != y), x + y, angle)
''',
    "trunc": '''
def trunc_{d}(x):
    return tl.where(x < 0.0, tl.ceil(x), tl.floor(x))
''',
    "round": '''
def round_{d}(x):
    # halves away from zero
    a = tl.abs(x)
    whole = tl.floor(a)
    near = tl.where(a - whole >= 0.5, whole + 1.0, whole)
    return tl.where(x < 0.0, -near, near)
''',
    "roundeven": '''
def roundeven_{d}(x):
    # at {whole} the mantissa has no room for a fraction
    a = tl.abs(x)
    near = (a + {whole}) - {whole}
    near = tl.where(a < {whole}, near, a)
    return tl.where(x < 0.0, -near, near)
''',
    "copysign": '''
def copysign_{d}(x, y):
    a = tl.abs(x)
    return tl.where(y.to(tl.int{width}, bitcast=True) < 0, -a, a)
''',
    "pow": '''
def pow_{d}(x, y):
    # whole powers up to 63 are products, which are exact if the power is
    a, c = tl.abs(x), tl.abs(y)
    p, s, k = tl.where(x == x, 1.0, x), a, tl.where(c < 64.0, c, 0.0).to(tl.int32)
    for i in tl.static_range(6):
        p = tl.where(((k >> i) & 1) != 0, p * s, p)
        s = s * s
    p = tl.where(y < 0.0, 1.0 / p, p)
    small = (tl.floor(y) == y) & (c < 64.0)
    return signed_power(x, y, a, tl.where(small, p, tl.exp2(y * tl.log2(a))))
''',
}

UNTYPED: dict[str, str] = {
    "signed_power": '''
def signed_power(x, y, a, r):
    # x^y, where r is the power of the magnitude a of x
    r = tl.where((a == 1.0) | (y == 0.0), 1.0, r)
    whole = tl.floor(y) == y
    odd = whole & (tl.floor(0.5 * y) * 2.0 != y)
    r = tl.where(odd & ((x < 0.0) | (1.0 / x < 0.0)), -r, r)
    undefined = ((y != y) & (x != 1.0)) | ((a != a) & (y != 0.0))
    undefined = undefined | ((x < 0.0) & (a != float("inf")) & (y == y) & ~whole)
    return tl.where(undefined, float("nan"), r)
''',
    "floordiv": '''
def floordiv(a, b):
    q = a // b
    r = a - q * b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), q - 1, q)
''',
    "ceildiv": '''
def ceildiv(a, b):
    q = a // b
    r = a - q * b
    return tl.where((r != 0) & ((r < 0) == (b < 0)), q + 1, q)
''',
    "larger": '''
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "smaller": '''
def smaller(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "times": '''
def times(a, b):
    return a * b
''',
    "both": '''
def both(a, b):
    return a & b
''',
    "either": '''
def either(a, b):
    return a | b
''',
}
