"""Elementwise arithmetic, comparisons and logic, with PyTorch's type promotion."""

from __future__ import annotations

import math

import numpy as np
from xdsl.ir import Attribute

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.torch.conversion import as_element
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import Operand, aten_op
from compiler.frontend.torch.ops.promotion import common_element
from compiler.frontend.torch.reals import Real, Whole
from compiler.frontend.values import Value
from dialects.graph.activation import ClipOp
from dialects.graph.base import GraphOp
from dialects.graph.bits import ShiftLeftOp, ShiftRightOp
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
from dialects.graph.inference import certain_sign
from dialects.graph.logic import (
    AndOp,
    EqualOp,
    GreaterEqualOp,
    GreaterOp,
    LessEqualOp,
    LessOp,
    OrOp,
    XorOp,
)
from dialects.strata import types as t
from dialects.strata.types import is_float
from dialects.symbolic.expr import Expr

HALVES = (t.f16, t.bf16)
_ON_TRUTH_VALUES: dict[type[GraphOp], type[GraphOp]] = {
    AddOp: OrOp, MulOp: AndOp, MaxOp: OrOp, MinOp: AndOp,
}


# ---------------------------------------------------------------------- operands
def operand(n: Node, value: Operand, element: Attribute) -> Value:
    """A tensor, size or number as a tensor of an element type."""
    if isinstance(value, Value):
        return as_element(value, element)
    if t.is_narrow_float(element):
        return as_element(n.scalar(value, t.f32), element)
    return n.scalar(value, element)


def arithmetic(n: Node, op: type[GraphOp], a: Operand, b: Operand) -> Value:
    """A binary operator in the result's element type.

    Halves are computed in f32 if an operand is a number that the type cannot represent.
    """
    element = n.element
    if element in HALVES and not all(_exact(v, element) for v in (a, b)):
        element = t.f32
    if element == t.i1:
        op = _ON_TRUTH_VALUES.get(op, op)
    return n(op, operand(n, a, element), operand(n, b, element))


def _exact(value: Operand, element: Attribute) -> bool:
    """Whether a half-precision type represents a number exactly. Tensors count as exact, numbers
    that only a run knows do not.
    """
    if isinstance(value, Value):
        return not isinstance(value, Real | Whole)
    if isinstance(value, Expr):
        return value.constant is not None and _exact(value.constant, element)
    if not math.isfinite(value):
        return True
    with np.errstate(over="ignore"):
        return float(np.array(value).astype(t.dtype_of(element))) == value


def scaled(n: Node, value: Operand, alpha: Operand) -> Operand:
    """alpha * value."""
    if alpha == 1:
        return value
    if isinstance(value, (int, float)) and isinstance(alpha, (int, float)):
        return value * alpha
    return arithmetic(n, MulOp, value, alpha)


# ---------------------------------------------------------------------- arithmetic
def _sum(n: Node, op: type[GraphOp], a: Operand, b: Operand, alpha: Operand) -> Value:
    """a + alpha * b, or the difference. It is rounded once."""
    if alpha == 1 or n.element not in HALVES:
        return arithmetic(n, op, a, scaled(n, b, alpha))
    a, b, alpha = [operand(n, v, t.f32) for v in (a, b, alpha)]
    return n(op, a, n(MulOp, b, alpha))


@aten_op("aten.add.Tensor", "aten.add.Scalar")
def add(n: Node, a: Operand, b: Operand, alpha: Operand) -> Value:
    return _sum(n, AddOp, a, b, alpha)


@aten_op("aten.sub.Tensor", "aten.sub.Scalar")
def sub(n: Node, a: Operand, b: Operand, alpha: Operand) -> Value:
    return _sum(n, SubOp, a, b, alpha)


@aten_op("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(n: Node, a: Operand, b: Operand, alpha: Operand) -> Value:
    return _sum(n, SubOp, b, a, alpha)


@aten_op("aten.mul.Tensor", "aten.mul.Scalar")
def mul(n: Node, a: Operand, b: Operand) -> Value:
    return arithmetic(n, MulOp, a, b)


@aten_op("prims.fma.default")
def multiply_add(n: Node, a: Operand, b: Operand, c: Operand) -> Value:
    """a * b + c, into which `torch.compile` takes addcmul and addcdiv apart. Eager mode, too,
    rounds the product."""
    return arithmetic(n, AddOp, arithmetic(n, MulOp, a, b), c)


@aten_op("aten.div.Tensor", "aten.div.Scalar")
def div(n: Node, a: Operand, b: Operand) -> Value:
    return arithmetic(n, DivOp, a, b)


@aten_op("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(n: Node, a: Operand, b: Operand, rounding_mode: str | None) -> Value:
    if rounding_mode == "floor":
        return floor_divide(n, a, b)
    quotient = arithmetic(n, DivOp, a, _checked(n, b))
    return truncated(quotient) if rounding_mode == "trunc" else quotient


@aten_op("aten.floor_divide.default")
def floor_divide(n: Node, a: Operand, b: Operand) -> Value:
    """The exact quotient rounded down."""
    return floored(n, a, _checked(n, b))


def floored(n: Node, a: Operand, b: Operand) -> Value:
    """The same, of a divisor that is not zero if it is an integer."""
    x, y = _operands(n, a, b)
    if is_float(x.element):
        return f.floored_quotient(x, y)
    rest = n(FmodOp, x, y)
    below = ~f.equal(rest, 0) & ((rest < 0) ^ (y < 0))
    return x / y - below.cast(x.element)


def _checked(n: Node, divisor: Operand) -> Operand:
    """A divisor. If integers are divided, a run-time check that it is not zero is added."""
    if is_float(n.element) or (isinstance(divisor, int) and divisor):
        return divisor
    y = operand(n, divisor, n.element)
    known = () if y.expressions is None else y.expressions.reshape(-1)
    is_known = y.array is not None or y.expressions is not None
    if is_known and all(certain_sign(Expr.of(e)) in (-1, 1) for e in (
            known if y.array is None else y.array.reshape(-1).tolist())):
        return y
    zeros = f.equal(y, 0).cast(t.i32)
    may_be_empty = any(not (size.constant or 0) for size in n.shape)
    n.build.require_none(zeros.broadcast(n.shape) if may_be_empty else zeros)
    return y


def _operands(n: Node, a: Operand, b: Operand) -> tuple[Value, Value]:
    """Two operands in the element type in which several steps are computed: f32 for halves."""
    element = t.f32 if n.element in HALVES else n.element
    return operand(n, a, element), operand(n, b, element)


def truncated(x: Value) -> Value:
    """x rounded toward zero."""
    if not is_float(x.element):
        return x
    negative = x < 0
    return f.where(negative, f.ceil(x), f.floor(x))


@aten_op("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(n: Node, a: Operand, b: Operand) -> Value:
    """The remainder with the sign of b; if it is 0, with the sign of a."""
    if not is_float(n.element):
        return arithmetic(n, ModOp, a, _checked(n, b))
    x, y = _operands(n, a, b)
    rest = n(FmodOp, x, y)
    return f.where(~f.equal(rest, 0) & ((rest < 0) ^ (y < 0)), rest + y, rest)


@aten_op("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(n: Node, a: Operand, b: Operand) -> Value:
    return arithmetic(n, FmodOp, a, _checked(n, b))


@aten_op("aten.maximum.default")
def maximum(n: Node, a: Value, b: Value) -> Value:
    return arithmetic(n, MaxOp, a, b)


@aten_op("aten.minimum.default")
def minimum(n: Node, a: Value, b: Value) -> Value:
    return arithmetic(n, MinOp, a, b)


@aten_op("aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def power(n: Node, a: Operand, b: Operand) -> Value:
    return arithmetic(n, PowOp, a, b)


@aten_op("aten.pow.Tensor_Scalar")
def power_of_number(n: Node, x: Value, exponent: Operand) -> Value:
    x = x.cast(n.element)
    if exponent == 2:
        return x * x
    if exponent == 3:
        return x * x * x
    if exponent == 0.5 and is_float(x.element):
        return f.sqrt(x)
    if exponent == -0.5:
        return f.reciprocal(f.sqrt(x))
    if exponent == -1:
        return f.reciprocal(x)
    return arithmetic(n, PowOp, x, exponent)


# ---------------------------------------------------------------------- comparisons
_COMPARISONS: dict[str, type[GraphOp]] = {
    "eq": EqualOp, "lt": LessOp, "le": LessEqualOp, "gt": GreaterOp, "ge": GreaterEqualOp,
}


@aten_op(*(f"aten.{name}.{kind}" for name in (*_COMPARISONS, "ne")
           for kind in ("Tensor", "Scalar")))
def compare(n: Node, a: Operand, b: Operand) -> Value:
    name = n.op.split(".")[1]
    element = common_element([a, b])
    if element == t.i1 and name not in ("eq", "ne"):
        element = t.ui8
    equal = n(_COMPARISONS.get(name, EqualOp), operand(n, a, element), operand(n, b, element))
    return ~equal if name == "ne" else equal


# ---------------------------------------------------------------------- logic
_SHIFTED = ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
_LOGIC: dict[str, type[GraphOp]] = {"and": AndOp, "or": OrOp, "xor": XorOp}


@aten_op(*(f"aten.{form}.{kind}" for name in _LOGIC for form in (f"bitwise_{name}", f"__{name}__")
           for kind in ("Tensor", "Scalar")))
def bitwise(n: Node, a: Operand, b: Operand) -> Value:
    return arithmetic(n, _LOGIC[n.op.split(".")[1].removeprefix("bitwise_").strip("_")], a, b)


@aten_op(*(f"aten.logical_{name}.default" for name in _LOGIC))
def logical(n: Node, a: Value, b: Value) -> Value:
    op = _LOGIC[n.op.split(".")[1].removeprefix("logical_")]
    return n(op, a.cast(t.i1), b.cast(t.i1))


@aten_op(*(f"aten.bitwise_left_shift.{kind}" for kind in _SHIFTED), "aten.__lshift__.Tensor",
         "aten.__lshift__.Scalar")
def shift_left(n: Node, a: Operand, b: Operand) -> Value:
    return _shifted(n, ShiftLeftOp, a, b)


@aten_op(*(f"aten.bitwise_right_shift.{kind}" for kind in _SHIFTED), "aten.__rshift__.Tensor",
         "aten.__rshift__.Scalar")
def shift_right(n: Node, a: Operand, b: Operand) -> Value:
    return _shifted(n, ShiftRightOp, a, b)


def _shifted(n: Node, op: type[ShiftLeftOp | ShiftRightOp], a: Operand, b: Operand) -> Value:
    if is_float(n.element) or n.element == t.i1:
        raise Fault("shifts of floats and truth values are not supported")
    return arithmetic(n, op, a, b)


@aten_op("aten.logical_not.default")
def logical_not(n: Node, x: Value) -> Value:
    return ~x.cast(t.i1)


@aten_op("aten.bitwise_not.default")
def bitwise_not(n: Node, x: Value) -> Value:
    """The inverted bits: x xor the number all of whose bits are set."""
    if x.element == t.i1:
        return ~x
    ones = (1 << t.bit_width(x.element)) - 1 if t.is_unsigned(x.element) else -1
    return x ^ ones


# ---------------------------------------------------------------------- choices
@aten_op("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def where(n: Node, condition: Value, a: Operand, b: Operand) -> Value:
    return f.where(condition.cast(t.i1), operand(n, a, n.element), operand(n, b, n.element))


@aten_op("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(n: Node, x: Value, mask: Value, value: Operand) -> Value:
    return f.where(mask.cast(t.i1), operand(n, value, x.element), x)


@aten_op("aten.clamp.default", "aten.clamp.Tensor", "aten.hardtanh.default")
def clamp(n: Node, x: Value, low: Operand | None, high: Operand | None) -> Value:
    x = x.cast(n.element)
    if n.element == t.i1:
        x = x if low is None else x | operand(n, low, t.i1)
        return x if high is None else x & operand(n, high, t.i1)
    if not all(isinstance(v, Value) and v.rank for v in (low, high)):
        bounds = [operand(n, v, n.element) for v in (low, high) if v is not None]
        if not any(v.rank for v in bounds):
            return n(ClipOp, x, *bounds, has_min=low is not None, has_max=high is not None)
    x = x if low is None else f.maximum(x, operand(n, low, n.element))
    return x if high is None else f.minimum(x, operand(n, high, n.element))


@aten_op("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(n: Node, x: Value, low: Operand) -> Value:
    return clamp(n, x, low, None)


@aten_op("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(n: Node, x: Value, high: Operand) -> Value:
    return clamp(n, x, None, high)
