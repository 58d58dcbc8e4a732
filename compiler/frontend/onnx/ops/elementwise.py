"""Elementwise arithmetic, comparisons, logic and functions."""

from __future__ import annotations

from functools import reduce

import numpy as np
from onnx import TensorProto
from xdsl.ir import Attribute

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.element_types import element_type
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value
from dialects.graph.base import GraphOp
from dialects.graph.bits import BitcastOp, ShiftLeftOp, ShiftRightOp
from dialects.graph.elementwise import (
    AddOp,
    DivOp,
    FmodOp,
    MaxOp,
    MinOp,
    MulOp,
    SubOp,
)
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
from dialects.graph.trigonometric import (
    AcoshOp,
    AcosOp,
    AsinhOp,
    AsinOp,
    AtanhOp,
    AtanOp,
    CoshOp,
    SinhOp,
    TanOp,
)
from dialects.graph.unary import (
    AbsOp,
    CeilOp,
    CosOp,
    ErfOp,
    ExpOp,
    FloorOp,
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
from dialects.strata import types as t

_UNARY: dict[str, type[GraphOp]] = {
    "Abs": AbsOp, "Ceil": CeilOp, "Cos": CosOp, "Erf": ErfOp, "Exp": ExpOp, "Floor": FloorOp,
    "Log": LogOp, "Neg": NegOp, "Not": NotOp, "BitwiseNot": NotOp,
    "Reciprocal": ReciprocalOp, "Round": RoundOp, "Sigmoid": SigmoidOp, "Sign": SignOp,
    "Sin": SinOp, "Sqrt": SqrtOp, "Tanh": TanhOp, "Tan": TanOp, "Asin": AsinOp, "Acos": AcosOp,
    "Atan": AtanOp, "Sinh": SinhOp, "Cosh": CoshOp, "Asinh": AsinhOp, "Acosh": AcoshOp,
    "Atanh": AtanhOp,
}
_BINARY: dict[str, type[GraphOp]] = {
    "Add": AddOp, "Sub": SubOp, "Mul": MulOp, "Div": DivOp, "And": AndOp, "Or": OrOp,
    "Xor": XorOp, "BitwiseAnd": AndOp, "BitwiseOr": OrOp, "BitwiseXor": XorOp, "Equal": EqualOp,
    "Less": LessOp, "LessOrEqual": LessEqualOp, "Greater": GreaterOp,
    "GreaterOrEqual": GreaterEqualOp,
}
_VARIADIC: dict[str, type[GraphOp]] = {"Max": MaxOp, "Min": MinOp, "Sum": AddOp}


@onnx_op(*_UNARY)
def unary(n: Node, x: Value) -> Value:
    return n(_UNARY[n.op_type], x)


@onnx_op(*_BINARY, since=7)
def binary(n: Node, x: Value, y: Value) -> Value:
    return n(_BINARY[n.op_type], x, y)


@onnx_op(*_VARIADIC)
def variadic(n: Node, *xs: Value) -> Value:
    return reduce(lambda a, b: n(_VARIADIC[n.op_type], a, b), xs)


@onnx_op("Mean")
def mean(n: Node, *xs: Value) -> Value:
    total = f.total(xs)
    return total / len(xs) if len(xs) > 1 else total


@onnx_op("Where")
def where(n: Node, condition: Value, x: Value, y: Value) -> Value:
    return f.where(condition, x, y)


@onnx_op("Mod")
def mod(n: Node, x: Value, y: Value) -> Value:
    if n.flag("fmod"):
        return n(FmodOp, x, y)
    if t.is_float(x.element) and n.version < 28:
        raise Fault("fmod = 0 is for integers only", "set the attribute fmod to 1 for floats")
    return x % y


@onnx_op("Pow", since=7)
def pow_(n: Node, x: Value, y: Value) -> Value:
    """The result has the type of x; it is computed in a type that holds both."""
    common = _power_type(x.element, y.element)
    return (x.cast(common) ** y.cast(common)).cast(x.element)


def _power_type(base: Attribute, exponent: Attribute) -> Attribute:
    if base == exponent or t.is_float(base):
        return base
    if t.is_float(exponent):
        return t.f64 if t.byte_width(base) > 2 else exponent
    wider = max(base, exponent, key=t.byte_width)
    return t.i64 if t.is_unsigned(base) != t.is_unsigned(exponent) else wider


@onnx_op("IsNaN")
def is_nan(n: Node, x: Value) -> Value:
    return f.is_nan(_computable(x))


@onnx_op("IsInf")
def is_inf(n: Node, x: Value) -> Value:
    x = _computable(x)
    negative, positive = n.flag("detect_negative", True), n.flag("detect_positive", True)
    if negative and positive:
        return f.is_inf(x)
    if positive:
        return f.equal(x, np.inf)
    if negative:
        return f.equal(x, -np.inf)
    return f.is_inf(x) & f.is_nan(x)  # false everywhere


def _computable(x: Value) -> Value:
    """8-bit floats, which have no arithmetic, converted exactly to f32."""
    return x.cast(t.f32) if t.is_narrow_float(x.element) else x


@onnx_op("BitShift")
def bit_shift(n: Node, x: Value, y: Value) -> Value:
    direction = n.text("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise Fault(f"its direction is '{direction}', neither LEFT nor RIGHT")
    return n(ShiftLeftOp if direction == "LEFT" else ShiftRightOp, x, y)


@onnx_op("BitCast")
def bit_cast(n: Node, x: Value) -> Value:
    return n(BitcastOp, x, to=element_type(n.integer("to", TensorProto.UNDEFINED)))
