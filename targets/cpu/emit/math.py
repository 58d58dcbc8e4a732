"""Inline f32 approximations of the transcendental functions, for scalars and vectors alike.

Subnormals count as zero if kernels run with flush-to-zero (`Builder.flushes`). f64 calls the C
library (see `scalar.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dialects.strata import types as t
from targets.cpu.emit.build import Builder
from targets.cpu.emit.values import Reg, lane_literal, literal
from targets.cpu.llvm.operands import number_of

MAX_ULP = {
    "exp": 1.0, "exp2": 1.0, "expm1": 1.5, "log": 1.0, "log2": 1.25, "log10": 0.6, "log1p": 1.5,
    "tanh": 2.75, "erf": 1.25, "sin": 1.5, "cos": 1.5, "tan": 3.0, "powf": 0.6, "rsqrt": 1.5,
}
"""The largest errors in units in the last place, with FMA, over a dense sample of all f32.
`tests/targets/cpu/emit/test_cpu_math.py` checks them."""
MORE_ULP = 0.3
"""How much larger they may be on a processor without FMA, where polynomials round twice as often.
"""

_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.428606765330187e-06
_ROUNDER = 1.5 * 2.0 ** 23
"""Added to a number below 2^22, it leaves no bits for a fraction."""
_EXP = [1.3814532697e-3, 8.3687450669e-3, 4.1668390943e-2, 1.6666520398e-1, 4.9999993431e-1]
"""P of e^r = 1 + r + r^2 * P(r), with a relative error of at most 3.1e-9 for |r| <= ln(2)/2."""


_SIXTEENTH = 1.5 * 2.0 ** 19
"""Added to a number below 2^18, it leaves sixteenths, in the last four bits."""
_ROOTS = np.exp2(np.arange(16) / 16).astype(np.float32)
_EXP_SHORT = [0.16667015850543976, 0.5000166296958923, 1.0]
"""P of e^r = 1 + r * P(r), with a relative error of at most 1.7e-9 for |r| <= ln(2)/32."""


def exp(b: Builder, x: Reg) -> Reg:
    """e^x = 2^n * e^r with n = round(x / ln 2), |r| <= ln(2)/2, and a polynomial for e^r."""
    if b.has_table(x.width):
        return _exp_by_table(b, x)
    x = b.clamp(x, -104.0, 89.0)
    n, r = _reduce_exponent(b, x)
    return _scale(b, _exp_reduced(b, r), n)


def _exp_by_table(b: Builder, x: Reg) -> Reg:
    """The same with n in sixteenths, whose 2^(n - floor n) are in a register; this allows a shorter
    polynomial.

    x is not clamped. If n is not exact, r is meaningless but kept small, and scaling by 2^n at once
    yields infinity, zero, or NaN as required.
    """
    shifted = b.fma(x, b.constant(1 / math.log(2), x), b.constant(_SIXTEENTH, x))
    n = b.binary("fsub", shifted, b.constant(_SIXTEENTH, x))
    r = b.nearer_zero(_rest(b, x, n), b.constant(1.0, x))
    table = lane_literal([literal(float(v), t.f32) for v in _ROOTS], "float")
    root = b.looked_up(table, b.bits(shifted, t.i32), x)
    return _scale(b, b.fma(b.mul(root, r), b.polynomial(r, _EXP_SHORT), root), n)


def _reduce_exponent(b: Builder, x: Reg) -> tuple[Reg, Reg]:
    """n = round(x / ln 2) and r = x - n*ln 2, with ln 2 in two parts."""
    shifted = b.fma(x, b.constant(1 / math.log(2), x), b.constant(_ROUNDER, x))
    n = b.binary("fsub", shifted, b.constant(_ROUNDER, x))
    return n, _rest(b, x, n)


def _rest(b: Builder, x: Reg, n: Reg) -> Reg:
    r = b.fma(n, b.constant(-_LN2_HIGH, x), x)
    return b.fma(n, b.constant(-_LN2_LOW, x), r)


def _exp_reduced(b: Builder, r: Reg) -> Reg:
    """e^r = 1 + r + r^2 * P(r)."""
    return b.polynomial(r, [*_EXP, 1.0, 1.0])


def _scale(b: Builder, value: Reg, n: Reg) -> Reg:
    """value * 2^n for -252 <= n <= 254, in two steps, so that each factor is a normal number.

    Some processors have an instruction for it.
    """
    if (at_once := b.scaled(value, n)) is not None:
        return at_once
    whole = b.convert("fptosi", n, t.i32)
    half = b.binary("ashr", whole, b.constant(1, whole))
    return b.mul(b.mul(value, _power_of_two(b, half)),
                 _power_of_two(b, b.binary("sub", whole, half)))


def _power_of_two(b: Builder, n: Reg) -> Reg:
    biased = b.binary("add", n, b.constant(127, n))
    return b.bits(b.binary("shl", biased, b.constant(23, n)), t.f32)


def exp2(b: Builder, x: Reg) -> Reg:
    """2^x = 2^n * e^(r ln 2) with n = round(x)."""
    x = b.clamp(x, -150.0, 129.0)
    n = b.intrinsic("roundeven", x)
    r = b.mul(b.sub(x, n), b.constant(math.log(2), x))
    return _scale(b, _exp_reduced(b, r), n)


def expm1(b: Builder, x: Reg) -> Reg:
    """e^x - 1 = 2^n * (e^r - 1) + (2^n - 1), where 2^n is halved: 2^128 would overflow."""
    small, half = _expm1_parts(b, b.clamp(x, -104.0, 89.0), 0.5)
    rest = b.fma(half, small, b.sub(half, b.constant(0.5, x)))
    result = b.add(rest, rest)
    tiny = b.compare("fcmp olt", b.intrinsic("fabs", x), b.constant(1e-7, x))
    return b.select(tiny, x, result)


def _expm1_parts(b: Builder, x: Reg, factor: float) -> tuple[Reg, Reg]:
    """e^r - 1 and factor * 2^n for x = n*ln 2 + r: e^r - 1 = r + r^2 * P(r) has no cancellation."""
    n, r = _reduce_exponent(b, x)
    return b.fma(b.polynomial(r, _EXP), b.mul(r, r), r), _scale(b, b.constant(factor, x), n)


def tanh(b: Builder, x: Reg) -> Reg:
    """tanh |x| = m/(m + 2) with m = e^(2|x|) - 1, of which a relative error shrinks as m grows.

    Beyond 9.01 tanh rounds to the sign of x.
    """
    distance = b.clamp(b.intrinsic("fabs", x), 0.0, 9.2)
    small, power = _expm1_parts(b, b.add(distance, distance), 1.0)
    m = b.fma(power, small, b.sub(power, b.constant(1.0, x)))
    return b.intrinsic("copysign", b.div(m, b.add(m, b.constant(2.0, x))), x)


_ERF_NEAR = [-4.799540154e-03, 3.995867818e-02, -2.141417861e-01,
             9.025477168e-01, -3.008999825e+00, 1.027033210e+00]
_ERF_FAR = [2.139849676e-04, -3.214955796e-03, 2.288996428e-02,
            -1.052618399e-01, -6.357182860e-01, -1.128514409e+00]


def erf(b: Builder, x: Reg) -> Reg:
    """(8x + x * P(x^2)) / 8 for |x| < 0.92; beyond that 1 - e^(|x| * Q(|x|)), with the sign of x.

    Without the factor of 8, a product of a small x with P(0) = 0.13 might be flushed to zero.
    The relative errors of the exponential count by a fifth at most. Beyond 3.95 the result rounds
    to 1. P and Q are minimax polynomials for 8 * (erf x / x - 1) and ln(erfc x) / x.
    """
    size = b.intrinsic("fabs", x)
    distance = b.clamp(size, 0.0, 3.95)
    rest = exp(b, b.mul(distance, b.polynomial(distance, _ERF_FAR)))
    far = b.intrinsic("copysign", b.sub(b.constant(1.0, x), rest), x)
    eight = b.fma(b.polynomial(b.mul(x, x), _ERF_NEAR), x, b.mul(x, b.constant(8.0, x)))
    near = b.mul(eight, b.constant(0.125, x))
    return b.select(b.compare("fcmp olt", size, b.constant(0.92, x)), near, far)


def _split(b: Builder, x: Reg) -> tuple[Reg, Reg]:
    """x = m * 2^e with sqrt(1/2) <= m < sqrt(2), for x > 0; returns e and m - 1.

    Subnormals, unless they are flushed, are first scaled by 2^25.
    """
    if not b.flushes:
        tiny = b.compare("fcmp olt", x, b.constant(2.0**-126, x))
        e, m = _split_normal(b, b.select(tiny, b.mul(x, b.constant(2.0**25, x)), x))
        return b.sub(e, b.select(tiny, b.constant(25.0, x), b.constant(0.0, x))), m
    return _split_normal(b, x)


def _split_normal(b: Builder, x: Reg) -> tuple[Reg, Reg]:
    bits = b.bits(x, t.i32)
    offset = b.constant(0x3F3504F3, bits)
    moved = b.binary("sub", bits, offset)
    exponent = b.convert("sitofp", b.binary("ashr", moved, b.constant(23, bits)), t.f32)
    kept = b.binary("and", moved, b.constant(0x7FFFFF, bits))
    mantissa = b.bits(b.binary("add", kept, offset), t.f32)
    return exponent, b.sub(mantissa, b.constant(1.0, mantissa))


_LOG = [7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
        -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1]


def _log_tail(b: Builder, f: Reg) -> Reg:
    """ln(1 + f) - f = -f^2/2 + f^3 * P(f)."""
    square = b.mul(f, f)
    cubic = b.mul(b.mul(f, square), b.polynomial(f, _LOG))
    return b.fma(square, b.constant(-0.5, f), cubic)


def log(b: Builder, x: Reg) -> Reg:
    """ln x = e ln 2 + ln m by a polynomial in m - 1."""
    e, f = _split(b, x)
    tail = b.fma(e, b.constant(-2.12194440e-4, x), _log_tail(b, f))
    return _log_domain(b, x, b.fma(e, b.constant(0.693359375, x), b.add(f, tail)))


def log2(b: Builder, x: Reg) -> Reg:
    """log2 x = e + log2 m; the leading terms are kept apart, to round only once."""
    e, f = _split(b, x)
    excess = b.constant(1 / math.log(2) - 1, x)  # log2(e) = 1 + excess
    tail = _log_tail(b, f)
    low = b.fma(f, excess, b.fma(tail, excess, tail))
    return _log_domain(b, x, b.add(b.add(low, f), e))


def log10(b: Builder, x: Reg) -> Reg:
    """log2 x / log2 10 in f64, whose rounding to f32 is exact at powers of ten."""
    wide = _log2_wide(b, b.convert("fpext", x, t.f64))
    value = b.mul(wide, b.constant(math.log10(2), wide))
    return _log_domain(b, x, b.convert("fptrunc", value, t.f32))


def _log_domain(b: Builder, x: Reg, value: Reg) -> Reg:
    """inf for inf, -inf for 0, NaN for x < 0 and for NaN."""
    zero = b.constant(0.0, x)
    value = b.select(b.compare("fcmp oeq", x, b.constant(math.inf, x)), x, value)
    value = b.select(b.compare("fcmp oeq", x, zero), b.constant(-math.inf, x), value)
    return b.select(b.compare("fcmp oge", x, zero), value, b.constant(math.nan, x))


def log1p(b: Builder, x: Reg) -> Reg:
    """ln(1 + x) = ln u + (x - (u - 1))/u with u = 1 + x rounded."""
    one = b.constant(1.0, x)
    u = b.binary("fadd", x, one)
    lost = b.div(b.binary("fsub", x, b.binary("fsub", u, one)), u)
    value = b.add(log(b, u), lost)
    beyond = b.compare("fcmp oeq", u, b.constant(math.inf, x))
    edge = b.compare("fcmp oeq", u, b.constant(0.0, x))
    value = b.select(beyond, u, b.select(edge, b.constant(-math.inf, x), value))
    tiny = b.compare("fcmp olt", b.intrinsic("fabs", x), b.constant(1e-7, x))
    return b.select(tiny, x, value)


def rsqrt(b: Builder, x: Reg) -> Reg:
    """1 / sqrt(x), both operations rounded."""
    return b.div(b.constant(1.0, x), b.intrinsic("sqrt", x))


# ---------------------------------------------------------------------- trigonometry
_FAST_RANGE = 50000.0
"""Up to here the reduction in three parts is accurate; beyond it, the C library is called."""

_HALF_PI = [1.57079637050628662109375, -4.37113900018624283e-8, -1.71512448e-15]
_HALF_PI_WIDE = [float.fromhex("0x1.921fb544p+0"), float.fromhex("0x1.0b4611a626331p-34")]
"""In two parts, of which the first has 33 bits."""


def sin(b: Builder, x: Reg) -> Reg:
    return _with_library(b, "sin", x, lambda y: _wave(b, y, 0))


def cos(b: Builder, x: Reg) -> Reg:
    return _with_library(b, "cos", x, lambda y: _wave(b, y, 1))


def tan(b: Builder, x: Reg) -> Reg:
    return _with_library(b, "tan", x, lambda y: b.div(_wave(b, y, 0), _wave(b, y, 1)))


def _wave(b: Builder, x: Reg, quarter: int) -> Reg:
    """sin(x + quarter*pi/2) from r = x - n*pi/2, |r| <= pi/4: the sine or cosine of r, signed."""
    n = b.intrinsic("roundeven", b.mul(x, b.constant(2 / math.pi, x)))
    r = _beyond_quarters(b, x, n)
    whole = b.convert("fptosi", n, t.i32)
    quadrant = b.binary("add", whole, b.constant(quarter, whole))
    s = b.mul(r, r)
    sine = b.fma(b.mul(b.polynomial(s, [2.86567956e-6, -1.98559923e-4, 8.33338592e-3,
                                        -1.66666672e-1]), s), r, r)
    cosine = b.polynomial(s, [2.44677067e-5, -1.38877297e-3, 4.16666567e-2, -0.5, 1.0])
    odd = b.compare("icmp ne", b.binary("and", quadrant, b.constant(1, whole)),
                    b.constant(0, whole))
    sign = b.binary("shl", b.binary("and", quadrant, b.constant(2, whole)),
                    b.constant(30, whole))
    value = b.bits(b.select(odd, cosine, sine), t.i32)
    return b.bits(b.binary("xor", value, sign), t.f32)


def _beyond_quarters(b: Builder, x: Reg, n: Reg) -> Reg:
    """x - n*pi/2. The products must not be rounded: without FMA they are those of f64, in which the
    first is exact.
    """
    if b.rounds_once:
        r = x
        for part in _HALF_PI:
            r = b.fma(n, b.constant(-part, x), r)
        return r
    r, n = b.convert("fpext", x, t.f64), b.convert("fpext", n, t.f64)
    for part in _HALF_PI_WIDE:
        r = b.binary("fsub", r, b.binary("fmul", n, b.constant(part, n)))
    return b.convert("fptrunc", r, t.f32)


def _with_library(b: Builder, name: str, x: Reg, fast: Callable[[Reg], Reg]) -> Reg:
    """The fast value, or the C library's if any lane is outside the fast range."""
    value = fast(x)
    w = b.writer
    far = b.compare("fcmp ogt", b.intrinsic("fabs", x), b.constant(_FAST_RANGE, x)).name
    if x.width:
        kind = f"v{x.width}i1"
        far = w.assign(w.call(f"llvm.vector.reduce.or.{kind}", "i1",
                              [(f"<{x.width} x i1>", far)]))
    before, slow, join = w.label, w.fresh("far"), w.fresh("join")
    w.emit(f"br i1 {far}, label %{slow}, label %{join}")
    w.start_block(slow)
    exact = w.assign(w.call(f"llvm.{name}.{x.suffix}", x.type, [(x.type, x.name)]))
    w.emit(f"br label %{join}")
    w.start_block(join)
    return x.named(w.assign(
        f"phi {x.type} [{value.name}, %{before}], [{exact}, %{slow}]"))


# ---------------------------------------------------------------------- powers
def powf(b: Builder, x: Reg, y: Reg) -> Reg:
    """x^y = 2^(y log2|x|) in f64, with C's special values. Small constant powers multiply."""
    x, y = b.align(x, y)
    simple = _simple_power(b, x, y)
    if simple is not None:
        return simple
    magnitude, power = b.intrinsic("fabs", x), b.convert("fpext", y, t.f64)
    exponent = b.mul(power, _log2_wide(b, b.convert("fpext", magnitude, t.f64)))
    value = b.convert("fptrunc", _exp2_wide(b, exponent), t.f32)
    return _power_domain(b, x, y, magnitude, value)


def _simple_power(b: Builder, x: Reg, y: Reg) -> Reg | None:
    """x^1, x^2, x^3, x^4 and x^-1 if y is that constant, else None."""
    match number_of(y.name):
        case 1:
            return x
        case 2:
            return b.mul(x, x)
        case 3:
            return b.mul(b.mul(x, x), x)
        case 4:
            return b.mul(b.mul(x, x), b.mul(x, x))
        case -1:
            return b.div(b.constant(1.0, x), x)
        case _:
            return None


def _log2_wide(b: Builder, x: Reg) -> Reg:
    """log2 of an f64 x >= 0, accurate to 40 bits: e + 2/ln 2 * atanh((m - 1)/(m + 1))."""
    bits = b.bits(x, t.i64)
    offset = b.constant(0x3FE6A09E667F3BCD, bits)  # sqrt(1/2)
    moved = b.binary("sub", bits, offset)
    e = b.convert("sitofp", b.convert("trunc", b.binary("ashr", moved, b.constant(52, bits)),
                                      t.i32), t.f64)
    kept = b.binary("and", moved, b.constant((1 << 52) - 1, bits))
    m = b.bits(b.binary("add", kept, offset), t.f64)
    one = b.constant(1.0, m)
    ratio = b.div(b.sub(m, one), b.add(m, one))
    series = [2 / math.log(2) / k for k in (17, 15, 13, 11, 9, 7, 5, 3, 1)]
    value = b.fma(ratio, b.polynomial(b.mul(ratio, ratio), series), e)
    value = b.select(b.compare("fcmp oeq", x, b.constant(0.0, x)),
                     b.constant(-math.inf, x), value)
    return b.select(b.compare("fcmp olt", x, b.constant(math.inf, x)), value, x)


def _exp2_wide(b: Builder, x: Reg) -> Reg:
    """2^x in f64, accurate to 35 bits; clamped at +-1000, where f32 has only inf and 0."""
    x = b.clamp(x, -1000.0, 1000.0)
    n = b.intrinsic("roundeven", x)
    series = [math.log(2) ** k / math.factorial(k) for k in range(9, -1, -1)]
    value = b.polynomial(b.sub(x, n), series)
    whole = b.convert("sext", b.convert("fptosi", n, t.i32), t.i64)
    biased = b.binary("add", whole, b.constant(1023, whole))
    return b.mul(value, b.bits(b.binary("shl", biased, b.constant(52, whole)), t.f64))


def _power_domain(b: Builder, x: Reg, y: Reg, magnitude: Reg, value: Reg) -> Reg:
    """Signs and C's special cases: NaN for a root of x < 0; 1 for y = 0, x = 1, and (-1)^inf."""
    zero, one = b.constant(0.0, x), b.constant(1.0, x)
    half = b.mul(y, b.constant(0.5, y))
    whole = b.compare("fcmp oeq", b.intrinsic("trunc", y), y)
    odd = b.binary("and", whole, b.compare("fcmp one", b.intrinsic("trunc", half), half))
    sign = b.intrinsic("copysign", one, x)
    value = b.select(odd, b.mul(value, sign), value)
    root = b.binary("and", b.compare("fcmp olt", x, zero),
                    b.binary("xor", whole, b.constant(True, whole)))
    finite = b.compare("fcmp one", magnitude, b.constant(math.inf, x))
    value = b.select(b.binary("and", root, finite), b.constant(math.nan, x), value)
    unit = b.binary("and", b.compare("fcmp oeq", x, b.constant(-1.0, x)),
                    b.compare("fcmp oeq", b.intrinsic("fabs", y), b.constant(math.inf, x)))
    is_one = b.binary("or", b.compare("fcmp oeq", x, one), b.compare("fcmp oeq", y, zero))
    return b.select(b.binary("or", unit, is_one), one, value)
