"""Elementwise operations: one nest over the dims of the result, with the formula as its body.

Formulas receive scalars whose narrow floats have been widened.
"""

from __future__ import annotations

import math as numbers
from collections.abc import Callable
from functools import reduce
from operator import mul
from typing import Any

from xdsl.dialects import arith, math
from xdsl.ir import SSAValue

from dialects.graph.base import GraphOp
from dialects.graph.elementwise import (
    AddOp,
    DivOp,
    FmodOp,
    MaxOp,
    MinOp,
    ModOp,
    MulOp,
    PowOp,
    SubOp,
)
from dialects.graph.exponential import Exp2Op, Expm1Op, Log1pOp, Log2Op, Log10Op
from dialects.graph.logic import (
    AndOp,
    EqualOp,
    GreaterEqualOp,
    GreaterOp,
    LessEqualOp,
    LessOp,
    OrOp,
    WhereOp,
    XorOp,
)
from dialects.graph.unary import (
    AbsOp,
    CastOp,
    CeilOp,
    CosOp,
    ErfOp,
    ExpOp,
    FloorOp,
    IsinfOp,
    IsnanOp,
    LogOp,
    NegOp,
    NotOp,
    ReciprocalOp,
    RoundOp,
    SigmoidOp,
    SignOp,
    SinOp,
    SqrtOp,
    TanhOp,
)
from dialects.semantics.numerics import LARGEST_POWER, LEAST_POWER, ROUNDING_STEPS
from dialects.semantics.remainder import RemFOp
from dialects.strata import types as t
from passes.graph_to_loop.nests import pointwise, same, type_of
from passes.graph_to_loop.rules import lowers
from passes.graph_to_loop.scalars import Scalar
from passes.rewriting import Rewriter

_FUNCTIONS: dict[type[GraphOp], Any] = {
    LogOp: math.LogOp, ExpOp: math.ExpOp, SqrtOp: math.SqrtOp, TanhOp: math.TanhOp,
    ErfOp: math.ErfOp, SinOp: math.SinOp, CosOp: math.CosOp, FloorOp: math.FloorOp,
    CeilOp: math.CeilOp, RoundOp: math.RoundEvenOp, Log1pOp: math.Log1pOp,
    Expm1Op: math.ExpM1Op, Exp2Op: math.Exp2Op, Log2Op: math.Log2Op, Log10Op: math.Log10Op,
}
"""Functions on floats that the `math` dialect has."""

_PREDICATES: dict[type[GraphOp], str] = {
    EqualOp: "eq", LessOp: "lt", LessEqualOp: "le", GreaterOp: "gt", GreaterEqualOp: "ge",
}


def formula(op_class: type[GraphOp]) -> Callable[[Any], Any]:
    """Mark a function of scalars as the formula of an operation."""
    def mark(function: Callable[..., Scalar]) -> Callable[[GraphOp, Rewriter], SSAValue]:
        @lowers(op_class)
        def rule(op: GraphOp, at: Rewriter) -> SSAValue:
            return _lower(op, at, function)
        return rule
    return mark


def _lower(op: GraphOp, at: Rewriter, function: Callable[..., Scalar]) -> SSAValue:
    def compute(*scalars: Scalar) -> Scalar:
        return function(*(s.wide() for s in scalars))

    return pointwise(at, op.operands, type_of(op.results[0]), compute)


@lowers(*_FUNCTIONS)
def lower_function(op: GraphOp, at: Rewriter) -> SSAValue:
    def compute(x: Scalar) -> Scalar:
        return x.apply(_FUNCTIONS[type(op)])

    return _lower(op, at, compute)


@lowers(*_PREDICATES)
def lower_comparison(op: GraphOp, at: Rewriter) -> SSAValue:
    def compute(x: Scalar, y: Scalar) -> Scalar:
        return x.compare(_PREDICATES[type(op)], y)

    return _lower(op, at, compute)


@lowers(CastOp)
def lower_cast(op: CastOp, at: Rewriter) -> SSAValue:
    if not t.is_narrow_float(op.to):
        return _lower(op, at, same)
    most = t.largest(op.to)

    def narrow(x: Scalar) -> Scalar:
        x = x.to(t.f32)
        if op.rounding:
            return _power_of_two(x, ROUNDING_STEPS[op.rounding], op.saturates)
        return x.minimum(most).maximum(-most) if op.saturates else x

    return _lower(op, at, narrow)


def _power_of_two(x: Scalar, step: int, saturate: bool) -> Scalar:
    """Adding `step` to the bits carries the mantissa into the exponent; NaN stays NaN."""
    bits = x.bitcast(t.i32) & 0x7FFFFFFF
    moved = ((bits + step) & 0x7F800000).maximum(LEAST_POWER)
    least = bits.like(LEAST_POWER) if saturate else bits
    moved = bits.compare("gt", LEAST_POWER).where(moved, least)
    moved = moved.minimum(LARGEST_POWER) if saturate else moved
    return x.is_nan().where(x, moved.bitcast(t.f32))


# ---------------------------------------------------------------------- arithmetic
@formula(AddOp)
def add(x: Scalar, y: Scalar) -> Scalar:
    return x + y


@formula(SubOp)
def subtract(x: Scalar, y: Scalar) -> Scalar:
    return x - y


@formula(MulOp)
def multiply(x: Scalar, y: Scalar) -> Scalar:
    return x * y


@formula(DivOp)
def divide(x: Scalar, y: Scalar) -> Scalar:
    if x.is_float:
        return x / y
    if x.is_unsigned:
        quotient = x.apply(arith.DivUIOp, _safe_divisor(y))
        return quotient if y.constant else y.compare("eq", 0).where(y, quotient)
    quotient = x.apply(arith.DivSIOp, _safe_divisor(y))
    if y.constant not in (None, 0, -1):
        return quotient
    quotient = y.compare("eq", -1).where(-x, quotient)
    return y.compare("eq", 0).where(y, quotient)


@formula(FmodOp)
def fmod(x: Scalar, y: Scalar) -> Scalar:
    return _remainder(x, y)


@formula(ModOp)
def mod(x: Scalar, y: Scalar) -> Scalar:
    """The remainder, shifted by y where its sign differs from that of y."""
    rest = _remainder(x, y)
    if x.is_unsigned:
        return rest
    other_sign = rest.compare("lt", 0) ^ y.compare("lt", 0)
    if not x.is_float:
        return (rest.compare("ne", 0) & other_sign).where(rest + y, rest)
    zero = rest.compare("eq", 0)
    return zero.where(rest.apply(math.CopySignOp, y), other_sign.where(rest + y, rest))


def _remainder(x: Scalar, y: Scalar) -> Scalar:
    """The remainder with the sign of x. Integer x mod 0 and x mod -1 are 0, like x mod 1."""
    if x.is_float:
        return x.apply(RemFOp, y)
    return x.apply(arith.RemUIOp if x.is_unsigned else arith.RemSIOp, _safe_divisor(y))


def _safe_divisor(y: Scalar) -> Scalar:
    """y, or 1 in place of divisors that may trap: 0, and -1 with the smallest integer."""
    if y.constant not in (None, 0, -1):
        return y
    traps = y.compare("eq", 0)
    if not y.is_unsigned:
        traps = traps | y.compare("eq", -1)
    return traps.where(y.like(1), y)


@formula(PowOp)
def power(x: Scalar, y: Scalar) -> Scalar:
    if y.constant in (1, 2, 3):
        return reduce(mul, [x] * int(y.constant))
    if not x.is_float:
        return _integer_power(x, y)
    if y.constant == 0.5:
        return x.sqrt()
    return 1 / x if y.constant == -1 else x.apply(math.PowFOp, y)


def _integer_power(x: Scalar, y: Scalar) -> Scalar:
    """Repeated squaring over the bits of the exponent.

    Exponents of at least 64 are replaced by 62 or 63, by parity. That gives the same result for 0,
    1 and -1, and all other powers overflow.
    """
    exponent = y.compare("lt", 64).where(y, (y & 1) + 62)
    result, square = x.like(1), x
    for bit in range(6):
        odd = (exponent & (1 << bit)).compare("ne", 0)
        result = odd.where(result * square, result)
        square = square * square
    return result if x.is_unsigned else _or_fraction(x, y, result)


def _or_fraction(x: Scalar, y: Scalar, whole: Scalar) -> Scalar:
    """The power; for negative exponents, 0 unless |x| is 1."""
    odd = (y & 1).compare("ne", 0)
    sign = odd.where(x, 1)
    fraction = x.absolute().compare("eq", 1).where(sign, 0)
    return y.compare("lt", 0).where(fraction, whole)


@formula(MaxOp)
def maximum(x: Scalar, y: Scalar) -> Scalar:
    return x.maximum(y)


@formula(MinOp)
def minimum(x: Scalar, y: Scalar) -> Scalar:
    return x.minimum(y)


# ---------------------------------------------------------------------- one operand
@formula(NegOp)
def negate(x: Scalar) -> Scalar:
    return -x


@formula(AbsOp)
def absolute(x: Scalar) -> Scalar:
    return x.absolute()


@formula(SignOp)
def sign(x: Scalar) -> Scalar:
    """x itself where it is NaN; zeros are 0, also -0."""
    rest = x.compare("eq", 0).where(x.like(0), x) if x.is_float else x
    positive = x.compare("gt", 0).where(x.like(1), rest)
    return positive if x.is_unsigned else x.compare("lt", 0).where(x.like(-1), positive)


@formula(ReciprocalOp)
def reciprocal(x: Scalar) -> Scalar:
    return 1 / x


@formula(SigmoidOp)
def sigmoid(x: Scalar) -> Scalar:
    return 1 / (1 + (-x).exp())


@formula(IsnanOp)
def is_nan(x: Scalar) -> Scalar:
    return x.is_nan()


@formula(IsinfOp)
def is_infinite(x: Scalar) -> Scalar:
    return x.absolute().compare("eq", numbers.inf)


# ---------------------------------------------------------------------- logic
@formula(AndOp)
def both(x: Scalar, y: Scalar) -> Scalar:
    return x & y


@formula(OrOp)
def either(x: Scalar, y: Scalar) -> Scalar:
    return x | y


@formula(XorOp)
def one_of(x: Scalar, y: Scalar) -> Scalar:
    return x ^ y


@formula(NotOp)
def invert(x: Scalar) -> Scalar:
    return x ^ -1


@formula(WhereOp)
def choose(condition: Scalar, x: Scalar, y: Scalar) -> Scalar:
    return condition.where(x, y)
