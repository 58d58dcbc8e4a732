"""Special functions, and functions of the bits of floats.

Formulas are in `compiler/frontend/torch/special`. Except for those of bits, they are computed in
f64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import Operand, aten_op
from compiler.frontend.torch.ops.elementwise import HALVES, operand
from compiler.frontend.torch.special import bessel, bits, errors, gamma
from compiler.frontend.torch.special.angles import angle_of
from compiler.frontend.torch.special.incomplete_gamma import incomplete_gamma
from compiler.frontend.values import Value
from dialects.strata import types as t

_ONE: dict[str, Callable[[Value], Value]] = {
    "lgamma": gamma.lgamma, "digamma": gamma.digamma,
    "erfc": errors.erfc, "special_erfcx": errors.erfcx, "special_ndtri": errors.ndtri,
    "special_log_ndtr": errors.log_ndtr, "special_ndtr": errors.ndtr,
    "i0": lambda x: bessel.i(0, x), "special_i0e": lambda x: bessel.scaled_i(0, x),
    "special_i1": lambda x: bessel.i(1, x), "special_i1e": lambda x: bessel.scaled_i(1, x),
    "special_modified_bessel_i0": lambda x: bessel.i(0, x),
    "special_modified_bessel_i1": lambda x: bessel.i(1, x),
    "special_modified_bessel_k0": lambda x: bessel.k(0, x, False),
    "special_modified_bessel_k1": lambda x: bessel.k(1, x, False),
    "special_scaled_modified_bessel_k0": lambda x: bessel.k(0, x, True),
    "special_scaled_modified_bessel_k1": lambda x: bessel.k(1, x, True),
    "special_bessel_j0": lambda x: bessel.j(0, x), "special_bessel_j1": lambda x: bessel.j(1, x),
    "special_bessel_y0": lambda x: bessel.y(0, x), "special_bessel_y1": lambda x: bessel.y(1, x),
    "special_spherical_bessel_j0": bessel.spherical_j0,
}
_PRIMS = {
    "bessel_i0": "i0", "bessel_i0e": "special_i0e", "bessel_i1": "special_i1",
    "bessel_i1e": "special_i1e", "bessel_j0": "special_bessel_j0", "bessel_j1": "special_bessel_j1",
    "spherical_bessel_j0": "special_spherical_bessel_j0", "erfcx": "special_erfcx",
    "ndtri": "special_ndtri", "lgamma": "lgamma", "digamma": "digamma", "erfc": "erfc",
}
"""PrimTorch's names."""


@aten_op(*(f"aten.{name}.default" for name in _ONE), *(f"prims.{name}.default" for name in _PRIMS))
def function(n: Node, x: Value) -> Value:
    name = n.op.split(".")[1]
    return _ONE[_PRIMS[name] if n.op.startswith("prims") else name](x.cast(t.f64))


@aten_op("aten.erfinv.default", "prims.erf_inv.default")
def erfinv(n: Node, x: Value) -> Value:
    return errors.erfinv(x.cast(t.f64), 2 if n.element == t.f64 else 1)


@aten_op("aten.polygamma.default")
def polygamma(n: Node, order: int, x: Value) -> Value:
    if order < 0:
        raise Fault(f"the order {order} of polygamma is negative")
    return gamma.polygamma(order, x.cast(t.f64))


@aten_op("aten.special_zeta.default", "aten.special_zeta.other_scalar",
         "aten.special_zeta.self_scalar", "prims.zeta.default")
def zeta(n: Node, s: Operand, q: Operand) -> Value:
    first, second = (operand(n, v, t.f64).broadcast(n.shape) for v in (s, q))
    return gamma.zeta(first, second)


# ---------------------------------------------------------------------- two operands
_UPPER = ("igammac", "special_gammaincc")


@aten_op("aten.igamma.default", "aten.igammac.default", "aten.special_gammainc.default",
         "aten.special_gammaincc.default", "prims.igamma.default", "prims.igammac.default")
def regularized_gamma(n: Node, a: Value, x: Value) -> Value:
    a, x = (v.cast(t.f64).broadcast(n.shape) for v in (a, x))
    return incomplete_gamma(a, x, upper=n.op.split(".")[1] in _UPPER)


@aten_op("aten.atan2.default", "prims.atan2.default")
def atan2(n: Node, y: Value, x: Value) -> Value:
    y, x = (v.cast(t.f32 if n.element in HALVES else n.element) for v in (y, x))
    return angle_of(y, x)


@aten_op("aten.hypot.default", "prims.hypot.default")
def hypot(n: Node, x: Value, y: Value) -> Value:
    """sqrt(x^2 + y^2): f64 by the quotient of both, since squares overflow; others in f64."""
    a, b = abs(x.cast(t.f64)), abs(y.cast(t.f64))
    infinite = f.is_inf(a) | f.is_inf(b)
    if n.element != t.f64:
        return f.where(infinite, float("inf"), f.sqrt(a * a + b * b))
    most = f.maximum(a, b)
    ratio = f.minimum(a, b) / f.where(f.equal(most, 0.0), 1.0, most)
    return f.where(infinite, float("inf"), most * f.sqrt(1 + ratio * ratio))


@aten_op("aten.fmax.default", "aten.fmin.default", "prims.fmax.default", "prims.fmin.default")
def extremum_of_numbers(n: Node, a: Value, b: Value) -> Value:
    """The larger or smaller of two; the other one where one is NaN."""
    a, b = a.cast(n.element), b.cast(n.element)
    largest = "fmax" in n.op
    if n.element == t.i1:
        return a | b if largest else a & b
    chosen = f.maximum(a, b) if largest else f.minimum(a, b)
    if not t.is_float(n.element):
        return chosen
    return f.where(f.is_nan(a), b, f.where(f.is_nan(b), a, chosen))


# ---------------------------------------------------------------------- bits
@aten_op("aten.signbit.default", "prims.signbit.default")
def signbit(n: Node, x: Value) -> Value:
    return n.scalar(False, t.i1).broadcast(x.shape) if x.element == t.i1 else bits.signbit(x)


@aten_op("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(n: Node, x: Value, y: Operand) -> Value:
    sign = y if isinstance(y, Value) else n.scalar(y, n.element)
    sign = n.scalar(0, t.i64) if sign.element == t.i1 else sign
    return bits.copysign(x.cast(n.element), sign)


@aten_op("aten.nextafter.default", "prims.nextafter.default")
def nextafter(n: Node, x: Value, y: Value) -> Value:
    return bits.next_after(x.cast(n.element), y.cast(n.element))


@aten_op("aten.frexp.Tensor", "prims.frexp.default")
def frexp(n: Node, x: Value) -> list[Value]:
    return list(bits.frexp(x.cast(t.f32) if x.element in HALVES else x))
