"""Arithmetic and functions of complex numbers.

Halves are computed in f32. Quotients, absolute values and square roots are computed without
overflow of squares, as in C's Annex G; products and sines are not repaired where a part is
infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from compiler.frontend import formulas as f
from compiler.frontend.torch.complex import complex_op
from compiler.frontend.torch.complex.values import Complex, complex_of
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops.elementwise import HALVES
from compiler.frontend.torch.special import bits
from compiler.frontend.torch.special.angles import angle_of
from compiler.frontend.values import Value
from dialects.graph.trigonometric import CoshOp, SinhOp
from dialects.strata import types as t

Operand: TypeAlias = "Any"
"""A tensor or a number, real or complex; the number may be known only at run time."""


def _wide(n: Node, *values: Any) -> list[Complex]:
    """Operands as complex numbers: halves in f32, and the widest of the parts' types otherwise."""
    elements = [v.re.element if isinstance(v, Complex) else v.element for v in values
                if isinstance(v, Complex | Value)]
    element = t.f64 if t.f64 in elements and n.element not in (t.f32, *HALVES) else (
        t.f32 if n.element in HALVES else n.element)
    if not t.is_float(element):
        floats = [e for e in elements if t.is_float(e)]
        element = t.f64 if t.f64 in floats else t.f32
    return [complex_of(n, v, element) for v in values]


# ---------------------------------------------------------------------- arithmetic
@complex_op("aten.add.Tensor", "aten.add.Scalar")
def add(n: Node, a: Operand, b: Operand, alpha: Operand = 1) -> Complex:
    x, y, factor = _wide(n, a, b, alpha)
    return x + (y if alpha == 1 else y * factor)


@complex_op("aten.sub.Tensor", "aten.sub.Scalar")
def subtract(n: Node, a: Operand, b: Operand, alpha: Operand = 1) -> Complex:
    x, y, factor = _wide(n, a, b, alpha)
    return x - (y if alpha == 1 else y * factor)


@complex_op("aten.rsub.Tensor", "aten.rsub.Scalar")
def subtract_from(n: Node, a: Operand, b: Operand, alpha: Operand = 1) -> Complex:
    return subtract(n, b, a, alpha)


@complex_op("aten.mul.Tensor", "aten.mul.Scalar")
def multiply(n: Node, a: Operand, b: Operand) -> Complex:
    """A real factor is complex, too, as in PyTorch: its imaginary part, 0, decides signs of zeros,
    and infinities become NaN."""
    x, y = _wide(n, a, b)
    return x * y


@complex_op("aten.div.Tensor", "aten.div.Scalar")
def divide(n: Node, a: Operand, b: Operand) -> Complex:
    x, y = _wide(n, a, b)
    if not isinstance(b, Complex | complex):
        return Complex(x.re / y.re, x.im / y.re)
    return quotient(x, y)


def quotient(x: Complex, y: Complex) -> Complex:
    """x / y, by Smith's method: the smaller part of y is divided by the larger."""
    flat = abs(y.re) >= abs(y.im)
    large, small = f.where(flat, y.re, y.im), f.where(flat, y.im, y.re)
    ratio = small / large
    ratio = f.where(f.equal(small, 0.0), small * 0.0, ratio)
    scale = large + small * ratio
    first = f.where(flat, x.re + x.im * ratio, x.re * ratio + x.im)
    second = f.where(flat, x.im - x.re * ratio, x.im * ratio - x.re)
    return Complex(first / scale, second / scale)


@complex_op("aten.reciprocal.default")
def reciprocal(n: Node, x: Complex) -> Complex:
    [x] = _wide(n, x)
    return quotient(complex_of(n, 1.0, x.re.element), x)


@complex_op("aten.square.default")
def square(n: Node, x: Complex) -> Complex:
    [x] = _wide(n, x)
    return x * x


@complex_op("aten.addcmul.default")
def add_product(n: Node, x: Operand, a: Operand, b: Operand, value: Operand = 1) -> Complex:
    x, a, b, factor = _wide(n, x, a, b, value)
    return x + a * b * factor


# ---------------------------------------------------------------------- parts
@complex_op("aten._conj.default", "aten._conj_physical.default", "aten.conj_physical.default",
            "aten.conj.default", "prims.conj.default", "prims.conj_physical.default")
def conjugate(n: Node, x: Complex) -> Complex:
    return x.conjugate()


@complex_op("aten.resolve_conj.default", "aten.resolve_neg.default", "aten._neg_view.default")
def resolved(n: Node, x: Complex) -> Complex:
    return -x if n.op == "aten._neg_view.default" else x


@complex_op("aten.view_as_real.default", "aten.view_as_real_copy.default")
def view_as_real(n: Node, x: Complex) -> Value:
    return x.view()


@complex_op("aten.view_as_complex.default", "aten.view_as_complex_copy.default")
def view_as_complex(n: Node, x: Value) -> Complex:
    return Complex.of_view(x)


@complex_op("aten.real.default", "prims.real.default")
def real(n: Node, x: Complex) -> Value:
    return x.re


@complex_op("aten.imag.default", "prims.imag.default")
def imaginary(n: Node, x: Complex) -> Value:
    return x.im


@complex_op("aten.complex.default")
def from_parts(n: Node, re: Value, im: Value) -> Complex:
    return Complex(*(v.cast(n.element).broadcast(n.shape) for v in (re, im)))


@complex_op("aten.polar.default")
def from_angle(n: Node, size: Value, angle: Value) -> Complex:
    return Complex(size * f.cos(angle), size * f.sin(angle))


@complex_op("aten._to_copy.default", "aten.to.dtype", "aten.to.device", "aten.to.dtype_layout",
            "aten.type_as.default", "prims.convert_element_type.default",
            "prims.device_put.default")
def converted(n: Node, x: Any) -> Complex | Value:
    """Reals become complex; of complex numbers that become reals, the imaginary part is dropped."""
    if isinstance(x, Value):
        return complex_of(n, x, n.element)
    return x.cast(n.element) if n.is_complex else x.re.cast(n.element)


# ---------------------------------------------------------------------- size and angle
def size_of(x: Complex) -> Value:
    """|x|, by the quotient of both parts, since squares overflow."""
    a, b = abs(x.re), abs(x.im)
    most = f.maximum(a, b)
    ratio = f.minimum(a, b) / f.where(f.equal(most, 0.0), 1.0, most)
    found = most * f.sqrt(1 + ratio * ratio)
    return f.where(f.is_inf(a) | f.is_inf(b), math.inf, found)


@complex_op("aten.abs.default", "prims.abs.default")
def size(n: Node, x: Complex) -> Value:
    return size_of(*_wide(n, x))


@complex_op("aten.angle.default")
def angle(n: Node, x: Complex) -> Value:
    [x] = _wide(n, x)
    return angle_of(x.im, x.re)


@complex_op("aten.sgn.default", "aten.sign.default")
def direction(n: Node, x: Complex) -> Complex:
    [x] = _wide(n, x)
    return direction_of(x)


def direction_of(x: Complex) -> Complex:
    """x / |x|; 0 for 0."""
    length = size_of(x)
    length = f.where(f.equal(length, 0.0), 1.0, length)
    return Complex(x.re / length, x.im / length)


# ---------------------------------------------------------------------- functions
def exponential(x: Complex) -> Complex:
    size = f.exp(x.re)
    still = f.equal(x.im, 0.0)
    return Complex(f.where(still, size, size * f.cos(x.im)),
                   f.where(still, x.im, size * f.sin(x.im)))


def logarithm(x: Complex) -> Complex:
    """ln |x| and the angle. Near |x| = 1, ln |x| is half of ln(1 + (|x|^2 - 1))."""
    a, b = abs(x.re), abs(x.im)
    most, least = f.maximum(a, b), f.minimum(a, b)
    near = (most > 0.5) & (most < 2.0)
    inside = f.where(near, most, 1.0)
    small = f.where(near, least, 0.0)
    close = 0.5 * f.log1p((inside - 1) * (inside + 1) + small * small)
    return Complex(f.where(near, close, f.log(size_of(x))), angle_of(x.im, x.re))


def square_root(x: Complex) -> Complex:
    """The root whose real part is not negative, from the half of |re| + |x|."""
    half = f.sqrt(abs(x.re) * 0.5 + size_of(x) * 0.5)
    zero = f.equal(half, 0.0)
    other = abs(x.im) * 0.5 / f.where(zero, 1.0, half)
    right = x.re >= 0
    re, im = f.where(right, half, other), f.where(right, other, half)
    return Complex(f.where(zero, 0.0, re), f.where(zero, x.im, bits.copysign(im, x.im)))


def sine(x: Complex) -> Complex:
    return Complex(f.sin(x.re) * _cosh(x.im), f.cos(x.re) * _sinh(x.im))


def cosine(x: Complex) -> Complex:
    return Complex(f.cos(x.re) * _cosh(x.im), -(f.sin(x.re) * _sinh(x.im)))


def _cosh(x: Value) -> Value:
    return x.build(CoshOp, x)


def _sinh(x: Value) -> Value:
    return x.build(SinhOp, x)


def hyperbolic_tangent(x: Complex) -> Complex:
    """With s = sinh(2 re) and c = cosh(2 re): (s + i sin(2 im)) / (c + cos(2 im)), where c is not
    large."""
    far = abs(x.re) > 20.0
    re = f.where(far, 0.0, x.re) * 2
    below = _cosh(re) + f.cos(x.im * 2)
    decay = f.exp(-2 * abs(x.re)) * 4
    sign = f.where(x.re < 0, x.re * 0.0 - 1, 1.0)
    return Complex(f.where(far, sign, _sinh(re) / below),
                   f.where(far, decay * f.sin(x.im) * f.cos(x.im), f.sin(x.im * 2) / below))


def times_i(x: Complex) -> Complex:
    return Complex(-x.im, x.re)


def over_i(x: Complex) -> Complex:
    return Complex(x.im, -x.re)


def _over_log(base: float) -> Callable[[Complex], Complex]:
    return lambda x: logarithm(x).times(1 / math.log(base))


def _inverse_root(x: Complex) -> Complex:
    root = square_root(x)
    one = Complex(root.re * 0.0 + 1, root.im * 0.0)
    return quotient(one, root)


def _logistic(x: Complex) -> Complex:
    grown = exponential(-x)
    one = Complex(grown.re * 0.0 + 1, grown.im * 0.0)
    return quotient(one, Complex(grown.re + 1, grown.im))


FUNCTIONS: dict[str, Callable[[Complex], Complex]] = {
    "exp": exponential, "log": logarithm, "log2": _over_log(2.0), "log10": _over_log(10.0),
    "sqrt": square_root, "rsqrt": _inverse_root, "sin": sine, "cos": cosine,
    "tanh": hyperbolic_tangent, "sigmoid": _logistic,
    "tan": lambda x: over_i(hyperbolic_tangent(times_i(x))),
    "sinh": lambda x: over_i(sine(times_i(x))), "cosh": lambda x: cosine(times_i(x)),
    "exp2": lambda x: exponential(x.times(math.log(2.0))),
}


@complex_op(*(f"{space}.{name}.default" for name in FUNCTIONS for space in ("aten", "prims")))
def function(n: Node, x: Any) -> Complex:
    return FUNCTIONS[n.op.split(".")[1]](*_wide(n, x))


@complex_op("aten.log1p.default", "aten.expm1.default")
def near_zero(n: Node, x: Complex) -> Complex:
    """In f64, where the difference from 1 has digits enough for f32."""
    found = log_of_more if n.op == "aten.log1p.default" else exponential_less_one
    return found(x.cast(t.f64))


def log_of_more(x: Complex) -> Complex:
    return logarithm(Complex(x.re + 1, x.im))


def exponential_less_one(x: Complex) -> Complex:
    turn = f.sin(x.im * 0.5)
    size = f.expm1(x.re)
    return Complex(size * f.cos(x.im) - 2 * turn * turn, (size + 1) * f.sin(x.im))


@complex_op("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def power(n: Node, x: Any, exponent: Any) -> Complex:
    """By logarithms, in f64; small whole exponents are products."""
    if type(exponent) is int and abs(exponent) <= 4:
        return _whole_power(n, x, exponent)
    return raised(complex_of(n, x, t.f64), complex_of(n, exponent, t.f64))


def raised(base: Complex, by: Complex) -> Complex:
    """e^(by ln base); of 0, 0, or 1 where the exponent is 0."""
    zero = f.equal(size_of(base), 0.0)
    made = exponential(logarithm(Complex(f.where(zero, 1.0, base.re), base.im)) * by)
    flat = f.equal(size_of(by), 0.0)
    return Complex(f.where(zero, flat.cast(t.f64), made.re), f.where(zero, 0.0, made.im))


def _whole_power(n: Node, x: Complex, exponent: int) -> Complex:
    [base] = _wide(n, x)
    one = Complex(base.re * 0.0 + 1, base.re * 0.0)
    made = one
    for k in range(abs(exponent)):
        made = base if not k else made * base
    return made if exponent >= 0 else quotient(one, made)


# ---------------------------------------------------------------------- truth
@complex_op("aten.eq.Tensor", "aten.eq.Scalar", "aten.ne.Tensor", "aten.ne.Scalar",
            "prims.eq.default", "prims.ne.default")
def compare(n: Node, a: Any, b: Any) -> Value:
    x, y = _wide(n, a, b)
    same = f.equal(x.re, y.re) & f.equal(x.im, y.im)
    return same if n.op.split(".")[1] == "eq" else ~same


@complex_op("aten.isnan.default", "aten.isinf.default", "aten.isfinite.default",
            "prims.isfinite.default")
def kind(n: Node, x: Complex) -> Value:
    if n.op == "aten.isnan.default":
        return f.is_nan(x.re) | f.is_nan(x.im)
    if n.op == "aten.isinf.default":
        return f.is_inf(x.re) | f.is_inf(x.im)
    return f.equal(x.re * 0.0, 0.0) & f.equal(x.im * 0.0, 0.0)
