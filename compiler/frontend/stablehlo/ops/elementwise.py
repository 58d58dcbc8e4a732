"""Elementwise operations, constants and conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.stablehlo.node import Node
from compiler.frontend.stablehlo.ops import hlo_op
from compiler.frontend.torch.special import bessel, bits, errors, gamma
from compiler.frontend.values import Value
from dialects.graph import elementwise as e
from dialects.graph import logic, unary
from dialects.graph import trigonometric as tr
from dialects.graph.base import GraphOp
from dialects.graph.bits import BitcastOp, ShiftLeftOp, ShiftRightOp
from dialects.strata import types as t
from dialects.strata.types import Array
from dialects.symbolic.expr import Expr

MOST_ELEMENTS = 1 << 16
_PLAIN: dict[str, type[GraphOp]] = {
    "subtract": e.SubOp, "divide": e.DivOp, "power": e.PowOp, "remainder": e.FmodOp,
    "xor": logic.XorOp, "and": logic.AndOp, "or": logic.OrOp, "shift_left": ShiftLeftOp,
    "shift_right_arithmetic": ShiftRightOp, "negate": unary.NegOp, "exponential": unary.ExpOp,
    "log": unary.LogOp, "sqrt": unary.SqrtOp, "tanh": unary.TanhOp, "sine": unary.SinOp,
    "cosine": unary.CosOp, "tan": tr.TanOp, "logistic": unary.SigmoidOp, "floor": unary.FloorOp,
    "ceil": unary.CeilOp, "round_nearest_even": unary.RoundOp,
}
_ON_TRUTH_VALUES: dict[str, tuple[type[GraphOp], type[GraphOp]]] = {
    "add": (e.AddOp, logic.OrOp), "multiply": (e.MulOp, logic.AndOp),
    "maximum": (e.MaxOp, logic.OrOp), "minimum": (e.MinOp, logic.AndOp),
}
"""Operations on numbers, and what they are for truth values."""
_SPECIAL: dict[str, Callable[[Value], Value]] = {
    "chlo.erfc": errors.erfc, "chlo.lgamma": gamma.lgamma, "chlo.digamma": gamma.digamma,
    "chlo.erf_inv": lambda x: errors.erfinv(x, 2),
    "chlo.bessel_i1e": lambda x: bessel.scaled_i(1, x)}
_CHLO: dict[str, type[GraphOp]] = {
    "chlo.erf": unary.ErfOp, "chlo.asin": tr.AsinOp, "chlo.acos": tr.AcosOp,
    "chlo.atan": tr.AtanOp, "chlo.sinh": tr.SinhOp, "chlo.cosh": tr.CoshOp,
    "chlo.asinh": tr.AsinhOp, "chlo.acosh": tr.AcoshOp, "chlo.atanh": tr.AtanhOp,
    "chlo.tan": tr.TanOp}


def _short(n: Node) -> str:
    return n.op.name.partition(".")[2].removeprefix("broadcast_")


@hlo_op(*(f"stablehlo.{name}" for name in _PLAIN), *(f"chlo.broadcast_{name}" for name in _PLAIN))
def plain(n: Node, *operands: Value) -> Value:
    return n(_PLAIN[_short(n)], *operands)


@hlo_op(*(f"stablehlo.{name}" for name in _ON_TRUTH_VALUES),
        *(f"chlo.broadcast_{name}" for name in _ON_TRUTH_VALUES))
def arithmetic(n: Node, a: Value, b: Value) -> Value:
    numbers, truths = _ON_TRUTH_VALUES[_short(n)]
    return n(truths if a.element == t.i1 else numbers, a, b)


@hlo_op(*_CHLO)
def function(n: Node, x: Value) -> Value:
    return n(_CHLO[n.op.name], x)


@hlo_op(*_SPECIAL)
def special(n: Node, x: Value) -> Value:
    return _SPECIAL[n.op.name](x.cast(t.f64)).cast(x.element)


@hlo_op("stablehlo.shift_right_logical")
def shift_right_logical(n: Node, x: Value, y: Value) -> Value:
    plain_, signed = _UNSIGNED.get(x.element), x.element
    if plain_ is None:
        return n(ShiftRightOp, x, y)
    moved = n(ShiftRightOp, n(BitcastOp, x, to=plain_), n(BitcastOp, y, to=plain_))
    return n(BitcastOp, moved, to=signed)


_UNSIGNED: dict[Attribute, Attribute] = {t.i8: t.ui8, t.i16: t.ui16, t.i32: t.ui32, t.i64: t.ui64}


@hlo_op("chlo.mulhi")
def high_half(n: Node, a: Value, b: Value) -> Value:
    """The upper half of the bits of a product of twice the width."""
    width = 8 * t.byte_width(a.element)
    if width == 64:
        raise Fault("the upper half of a product of 64-bit integers is not supported")
    wide = t.i64 if a.element in _UNSIGNED else t.ui64
    whole = a.cast(wide) * b.cast(wide)
    return n(ShiftRightOp, whole, n.scalar(width, whole)).cast(a.element)


@hlo_op("stablehlo.real")
def real(n: Node, x: Value) -> Value:
    """Of reals; complex numbers have an importer of their own."""
    return x


@hlo_op("stablehlo.imag")
def imaginary(n: Node, x: Value) -> Value:
    return n.scalar(0, x).broadcast(x.shape)


@hlo_op("stablehlo.abs")
def magnitude(n: Node, x: Value) -> Value:
    return abs(x)


@hlo_op("stablehlo.sign")
def sign(n: Node, x: Value) -> Value:
    """Zeros keep their signs, unlike those of ONNX and PyTorch."""
    found = n(unary.SignOp, x)
    return f.where(f.is_nan(x) | f.equal(x, 0), x, found) if t.is_float(x.element) else found


@hlo_op("stablehlo.rsqrt")
def rsqrt(n: Node, x: Value) -> Value:
    wide = x.cast(t.f32) if x.element in (t.f16, t.bf16) else x
    return f.reciprocal(f.sqrt(wide)).cast(x.element)


@hlo_op("stablehlo.cbrt")
def cube_root(n: Node, x: Value) -> Value:
    wide = x.cast(t.f64)
    size = abs(wide) ** (1 / 3)
    return f.where(wide < 0, -size, size).cast(x.element)


@hlo_op("stablehlo.exponential_minus_one")
def expm1(n: Node, x: Value) -> Value:
    return f.expm1(x)


@hlo_op("stablehlo.log_plus_one")
def log1p(n: Node, x: Value) -> Value:
    return f.log1p(x)


@hlo_op("stablehlo.round_nearest_afz")
def round_away(n: Node, x: Value) -> Value:
    """Halves are rounded away from zero."""
    size = abs(x)
    down = f.floor(size)
    whole = f.where(size - down < 0.5, down, down + 1)
    return f.where(f.is_nan(x) | f.is_inf(x), x, f.where(x < 0, -whole, whole))


@hlo_op("stablehlo.atan2", "chlo.broadcast_atan2")
def atan2(n: Node, y: Value, x: Value) -> Value:
    from compiler.frontend.torch.special.angles import angle_of

    return angle_of(y, x)


@hlo_op("stablehlo.is_finite")
def is_finite(n: Node, x: Value) -> Value:
    return ~(f.is_nan(x) | f.is_inf(x))


@hlo_op("chlo.is_inf")
def is_inf(n: Node, x: Value) -> Value:
    return f.is_inf(x)


@hlo_op("chlo.is_pos_inf", "chlo.is_neg_inf")
def is_signed_inf(n: Node, x: Value) -> Value:
    return f.is_inf(x) & (x > 0 if n.op.name == "chlo.is_pos_inf" else x < 0)


@hlo_op("chlo.polygamma")
def polygamma(n: Node, order: Value, x: Value) -> Value:
    """The order is a constant integer."""
    known = None if order.array is None else np.unique(order.array)
    if known is None or known.size != 1 or known[0] != int(known[0]):
        raise Fault("its order must be one constant integer")
    return gamma.polygamma(int(known[0]), x.cast(t.f64)).cast(x.element)


@hlo_op("chlo.zeta")
def zeta(n: Node, s: Value, q: Value) -> Value:
    return gamma.zeta(s.cast(t.f64), q.cast(t.f64)).cast(s.element)


@hlo_op("stablehlo.popcnt")
def population(n: Node, x: Value) -> Value:
    return bits.population(x)


@hlo_op("stablehlo.count_leading_zeros")
def leading_zeros(n: Node, x: Value) -> Value:
    return bits.leading_zeros(x)


@hlo_op("stablehlo.partition_id", "stablehlo.replica_id")
def process(n: Node) -> Value:
    """The number of a process: there is one."""
    return n.constant(np.array(0, np.uint32))


@hlo_op("chlo.next_after")
def next_after(n: Node, x: Value, y: Value) -> Value:
    return bits.next_after(x, y)


@hlo_op("chlo.square")
def square(n: Node, x: Value) -> Value:
    return x * x


@hlo_op("stablehlo.not")
def inverted(n: Node, x: Value) -> Value:
    if x.element == t.i1:
        return ~x
    return x ^ ((1 << t.bit_width(x.element)) - 1 if t.is_unsigned(x.element) else -1)


_COMPARISONS: dict[str, type[GraphOp]] = {
    "EQ": logic.EqualOp, "NE": logic.EqualOp, "LT": logic.LessOp, "LE": logic.LessEqualOp,
    "GT": logic.GreaterOp, "GE": logic.GreaterEqualOp}


def direction_of(n: Node) -> tuple[str, str]:
    """By what an operation compares, and in which order of the numbers."""
    given: Any = n.op.attributes.get("comparison_direction") or next(
        (word for word in n.op.words if word in _COMPARISONS), None)
    kind = n.op.attributes.get("compare_type") or next(
        (word for word in n.op.words if word not in _COMPARISONS), "")
    if given not in _COMPARISONS:
        raise Fault(f"it compares by {given} {kind}")
    return given, str(kind)


@hlo_op("stablehlo.compare", "chlo.broadcast_compare")
def compare(n: Node, a: Value, b: Value) -> Value:
    given, kind = direction_of(n)
    known = _settled(n, given, a, b)
    if known is not None:
        return n.constant(np.array(known)).broadcast(a.shape)
    if kind == "TOTALORDER" and t.is_float(a.element):
        a, b = bits.in_total_order(a), bits.in_total_order(b)
    if a.element == t.i1 and given not in ("EQ", "NE"):
        a, b = a.cast(t.ui8), b.cast(t.ui8)
    found = n(_COMPARISONS[given], a, b)
    return ~found if given == "NE" else found


def _settled(n: Node, given: str, a: Value, b: Value) -> bool | None:
    """What a comparison of two numbers that are computed from sizes and steps always gives."""
    if a.rank or a.expressions is None or b.expressions is None or t.is_float(a.element):
        return None
    if given in ("EQ", "NE"):
        return None
    low, high = (Expr.of(v.reshape(-1)[0]) for v in (a.expressions, b.expressions))
    if given[0] == "G":
        low, high = high, low
    gap = given[1] == "T"
    if n.build.frame.at_most(low + gap, high):
        return True
    return False if n.build.frame.at_most(high + (not gap), low) else None


@hlo_op("stablehlo.select", "chlo.broadcast_select")
def select(n: Node, condition: Value, a: Value, b: Value) -> Value:
    if condition.array is not None and condition.array.size and not a.rank:
        return a if condition.array.all() else b
    return f.where(condition, a, b)


@hlo_op("stablehlo.clamp")
def clamp(n: Node, low: Value, x: Value, high: Value) -> Value:
    return f.minimum(f.maximum(x, low), high)


@hlo_op("stablehlo.constant")
def constant(n: Node) -> Value:
    """One number for all elements of a large tensor is not written out."""
    array: Array = n.op.attributes["value"]
    if array.size > MOST_ELEMENTS and not any(array.strides):
        return n.constant(array[(0,) * array.ndim]).broadcast([Expr.of(s) for s in array.shape])
    return n.constant(np.ascontiguousarray(array).reshape(array.shape))


@hlo_op("chlo.constant_like")
def constant_like(n: Node, x: Value) -> Value:
    return n.constant(np.array(n.op.attributes["value"]).astype(x.type.dtype)).broadcast(x.shape)


@hlo_op("stablehlo.convert")
def convert(n: Node, x: Value) -> Value:
    return x.cast(n.result.element)


@hlo_op("stablehlo.bitcast_convert")
def bitcast(n: Node, x: Value) -> Value:
    """Elements of other widths are a further dim of parts, the lowest bits first."""
    to = n.result.element
    width, wanted = t.bit_width(x.element), t.bit_width(to)
    if width == wanted:
        return n(BitcastOp, x, to=to)
    own, other = _OF_WIDTH[width], _OF_WIDTH[wanted]
    bits = n(BitcastOp, x, to=own)
    if width > wanted:
        parts = [n(ShiftRightOp, bits, n.scalar(at, bits)).cast(other)
                 for at in range(0, width, wanted)]
        made = f.concat([v.reshape([*x.shape, 1]) for v in parts], axis=x.rank)
        return n(BitcastOp, made, to=to)
    wide, last = bits.cast(other), x.rank - 1
    made = n.scalar(0, wide).broadcast(x.shape[:-1])
    for k in range(wanted // width):
        part = wide.part(last, k, 1).reshape(x.shape[:-1])
        made = n(logic.OrOp, made, n(ShiftLeftOp, part, n.scalar(k * width, part)))
    return n(BitcastOp, made, to=to)


_OF_WIDTH: dict[int, Attribute] = {8: t.ui8, 16: t.ui16, 32: t.ui32, 64: t.ui64}


@hlo_op("stablehlo.optimization_barrier", "sdy.sharding_constraint")
def barrier(n: Node, *values: Value) -> list[Value]:
    return list(values)


@hlo_op("stablehlo.reduce_precision")
def reduce_precision(n: Node, x: Value) -> Value:
    """To the format of bf16 or f16."""
    form = str(n.op.attributes.get("format", "")) or (
        f"e{n.number('exponent_bits')}m{n.number('mantissa_bits')}")
    known: dict[str, Attribute] = {"e8m7": t.bf16, "e5m10": t.f16, "e8m23": t.f32, "e11m52": t.f64}
    if form not in known:
        raise Fault(f"the format {form} is not supported")
    return x.cast(known[form]).cast(x.element)
