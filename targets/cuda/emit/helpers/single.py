"""Triton source of f32 functions that rely on the f32 format, or on a fit for its precision.

Triton's own f32 exp is 2^(x*log2(e)), whose rounded exponent costs up to 80 units in the last
place. `exp_f32` instead subtracts multiples of log(2) from its argument (Cody and Waite, Software
Manual for the Elementary Functions, chapter 6), and takes the power of what is left by the same
instruction. Its operations are equally exact with and without fused multiply-adds. Other constants
with two parts are the nearest f32 and the remainder. Errors are at most about 2 units in the last
place, and those of the instruction.
"""

from __future__ import annotations

PARTS: dict[str, str] = {
    "reduced_exp": '''
def reduced_exp(x):
    # x == n*log(2) + r; n, and e^r - 1 by a Chebyshev fit of (e^r - 1 - r)/r^2 on |r| < log(2)/2.
    # In a sum with 1.5*2^23 only whole numbers have room, in its last bits; n times the first part
    # of log(2), which has 16 bits, is exact
    x = tl.maximum(x, -150.0, propagate_nan=tl.PropagateNan.ALL)
    x = tl.minimum(x, 90.0, propagate_nan=tl.PropagateNan.ALL)
    shifted = x * 1.4426950408889634 + 12582912.0
    n = shifted - 12582912.0
    r = (x - n * 0.693145751953125) - n * 1.42860682030941723212e-06
    q = 0.0416665534 + r * (0.00836334581 + r * 0.00139263919)
    p = r + r * r * (0.5 + r * (0.16666576 + r * q))
    return shifted.to(tl.int32, bitcast=True) - 1262485504, p
''',
    "power_of_two": '''
def power_of_two(n):
    # for -126 <= n <= 127; 0 for -127
    return ((n + 127) << 23).to(tl.float32, bitcast=True)
''',
    "exp_f32": '''
def exp_f32(x):
    # 2^n * 2^f for x*log2(e) == n + f, with the machine's 2^f, which is exact for small f. No n is
    # further than 126 from 0; beyond that f grows. In a sum with 1.5*2^23 + 127 only whole numbers
    # have room, and its last bits are the exponent of 2^n; n times the first part of log(2), which
    # has 16 bits, is exact. A NaN is still one in r
    near = tl.minimum(tl.maximum(x, -87.0), 87.0)
    shifted = near * 1.4426950408889634 + 12583039.0
    n = shifted - 12583039.0
    r = (x - n * 0.693145751953125) - n * 1.42860682030941723212e-06
    power = (shifted.to(tl.int32, bitcast=True) << 23).to(tl.float32, bitcast=True)
    return tl.exp2(r * 1.4426950408889634) * power
''',
    "half_exp": '''
def half_exp(x):
    # e^x/2, which is finite for some more x
    n, p = reduced_exp(x)
    half = n >> 1
    return (0.5 + 0.5 * p) * power_of_two(half) * power_of_two(n - half)
''',
    "reduced_asin": '''
def reduced_asin(a):
    # asin(a) for a <= 1/2, else asin(sqrt((1 - a)/2)) == (pi/2 - asin(a))/2, by a minimax fit of
    # (asin(z)/z - 1)/z^2 in s = z^2
    s = tl.where(a > 0.5, 0.5 - 0.5 * a, a * a)
    z = tl.where(a > 0.5, tl.sqrt_rn(s), a)
    q = 0.0454704233 + s * (0.0241792627 + s * 0.0421667662)
    return z + z * s * (0.166667525 + s * (0.074952973 + s * q))
''',
}
"""The building blocks of the functions below, and exp itself."""

SINGLE: dict[str, str] = {
    "log10": '''
def log10_f32(x):
    # in f64, whose rounding to f32 is exact at powers of ten
    return (tl.log2(x.to(tl.float64)) * 0.3010299956639812).to(tl.float32)
''',
    "pow": '''
def pow_f32(x, y):
    # in f64, so that the product y*log2(x) is exact enough for f32
    b = y.to(tl.float64)
    a = tl.abs(x.to(tl.float64))
    return signed_power(x, b, a, tl.exp2(b * tl.log2(a))).to(tl.float32)
''',
    "expm1": '''
def expm1_f32(x):
    # 2^n*(e^r - 1) + (2^n - 1), in halves, which do not overflow early; -0 stays what it is
    n, p = reduced_exp(tl.minimum(x, 89.0, propagate_nan=tl.PropagateNan.ALL))
    h = power_of_two(tl.maximum(n, -126) - 1)
    y = h * p + (h - 0.5)
    return tl.where(x == 0.0, x, y + y)
''',
    "sinh": '''
def sinh_f32(x):
    # near 0 the Taylor series
    a, s = tl.abs(x), x * x
    q = 0.00019841270 + s * (2.7557319e-06 + s * 2.5052108e-08)
    near = x + x * s * (0.16666667 + s * (0.0083333333 + s * q))
    h = half_exp(a)
    far = h - 0.25 / h
    return tl.where(a < 1.0, near, tl.where(x < 0.0, -far, far))
''',
    "cosh": '''
def cosh_f32(x):
    h = half_exp(tl.abs(x))
    return h + 0.25 / h
''',
    "atan": '''
def atan_f32(x):
    # atan(a) == pi/2 - atan(1/a); a minimax fit of (atan(b)/b - 1)/b^2 in s = b^2 on b <= 1
    a = tl.abs(x)
    b = tl.where(a > 1.0, tl.div_rn(1.0, a), a)
    s = b * b
    q = -0.0755219060 + s * (0.0432115551 + s * (-0.0163677243 + s * 0.00292063747))
    q = -0.333331527 + s * (0.199937726 + s * (-0.142110530 + s * (0.106659946 + s * q)))
    y = b + b * s * q
    y = tl.where(a > 1.0, 1.57079637 - (y + 4.37113883e-08), y)
    return tl.where(x < 0.0, -y, y)
''',
    "asin": '''
def asin_f32(x):
    a = tl.abs(x)
    y = reduced_asin(a)
    y = tl.where(a > 0.5, 1.57079637 - (2.0 * y + 4.37113883e-08), y)
    return tl.where(x < 0.0, -y, y)
''',
    "acos": '''
def acos_f32(x):
    a = tl.abs(x)
    y = reduced_asin(a)
    far = tl.where(x < 0.0, 3.14159274 - (2.0 * y + 8.74227766e-08), 2.0 * y)
    near = 1.57079637 - (tl.where(x < 0.0, -y, y) + 4.37113883e-08)
    return tl.where(a > 0.5, far, near)
''',
}
"""The functions, by the name of the operation."""
