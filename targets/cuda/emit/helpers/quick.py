"""Triton source of f32 functions whose results are soon rounded to f16 or bf16.

Wherever the result matters, their relative errors are small compared with half a unit in the last
place of f16 (2^-12). They use two instructions, `ex2.approx` and `rcp.approx`, which are accurate
to 2^-22 and flush subnormal numbers. Other machines and Triton's interpreter use their own
functions instead.
"""

from __future__ import annotations

from collections.abc import Sequence

_EXPONENT = (-1.62799945, -0.917361431, -0.152006661, 0.0336117535, -0.00511646942,
             0.000467139183, -0.0000190091965)
"""log2(erfc(a)) / a as a polynomial in a. The relative error of erfc is 6e-6 for a < 3.5 and 7e-5
for a < 5; for larger a the polynomial keeps falling."""


def _horner(coefficients: Sequence[float]) -> str:
    """A polynomial in a."""
    text = repr(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        text = f"{c!r} + a * ({text})"
    return text


_LOG_ERFC = f"a * ({_horner(_EXPONENT)})"
_LOG_TAIL = _horner([-1.0, *(float(f"{c * 0.5 ** (0.5 * k):.9g}")
                             for k, c in enumerate(_EXPONENT, 1))])
"""log2(erfc(a / sqrt(2)) / 2): the logarithm of the normal distribution's tail beyond a."""


def _approximation(instruction: str) -> str:
    """An instruction of the device on every element of x."""
    return (f'tl.inline_asm_elementwise("{instruction}.approx.ftz.f32 $0, $1;", "=f,f", [x], '
            "dtype=tl.float32, is_pure=True, pack=1)")


_EXP2, _INVERSE = _approximation("ex2"), _approximation("rcp")

QUICK: dict[str, tuple[str, str]] = {
    "quick_exp2": (f'''
def quick_exp2(x):
    return {_EXP2}
''', '''
def quick_exp2(x):
    return tl.exp2(x)
'''),
    "quick_inverse": (f'''
def quick_inverse(x):
    return {_INVERSE}
''', '''
def quick_inverse(x):
    return 1.0 / x
'''),
}
"""Single NVIDIA instructions, each with the portable form."""

COMPOSED: dict[str, str] = {
    "quick_exp": '''
def quick_exp(x):
    return quick_exp2(1.4426950408889634 * x)
''',
    "quick_sigmoid": '''
def quick_sigmoid(x):
    return quick_inverse(1.0 + quick_exp2(-1.4426950408889634 * x))
''',
    "quick_erfc": f'''
def quick_erfc(x):
    # erfc(a) == 2^(a*q(a)) for a >= 0, and erfc(-a) == 2 - erfc(a)
    a = tl.abs(x)
    y = quick_exp2({_LOG_ERFC})
    return tl.where(x < 0.0, 2.0 - y, y)
''',
    "quick_gelu": f'''
def quick_gelu(x):
    # x times the share of a normal distribution below x
    a = tl.abs(x)
    tail = quick_exp2({_LOG_TAIL})
    return x * tl.where(x < 0.0, tail, 1.0 - tail)
''',
    "quick_erf": f'''
def quick_erf(x):
    # near 0, where 1 - erfc(a) cancels, the first terms of the series
    a = tl.abs(x)
    near = x * (1.1283792 - 0.3761264 * (x * x))
    y = 1.0 - quick_exp2({_LOG_ERFC})
    return tl.where(a < 0.1, near, tl.where(x < 0.0, -y, y))
''',
    "quick_tanh": '''
def quick_tanh(x):
    # 1 - 2/(e^(2a) + 1); near 0, where that cancels, the first terms of the series
    a = tl.abs(x)
    s = x * x
    near = x + x * s * (-0.33333333 + s * 0.13333333)
    y = 1.0 - 2.0 * quick_inverse(1.0 + quick_exp2(2.8853900817779268 * a))
    return tl.where(a < 0.1, near, tl.where(x < 0.0, -y, y))
''',
}
"""Functions made of those above."""
