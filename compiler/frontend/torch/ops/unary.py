"""Elementwise functions of one tensor."""

from __future__ import annotations

from compiler.frontend import formulas as f
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.torch.ops.elementwise import HALVES, truncated
from compiler.frontend.values import Value
from dialects.graph.base import GraphOp
from dialects.graph.exponential import Exp2Op, Log2Op, Log10Op
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
    ReciprocalOp,
    RoundOp,
    SigmoidOp,
    SignOp,
    SinOp,
    SqrtOp,
    TanhOp,
)
from dialects.strata import types as t
from dialects.strata.types import is_float

_FLOAT: dict[str, type[GraphOp]] = {
    "exp": ExpOp, "log": LogOp, "sqrt": SqrtOp, "reciprocal": ReciprocalOp, "tanh": TanhOp,
    "erf": ErfOp, "sin": SinOp, "cos": CosOp, "sigmoid": SigmoidOp, "tan": TanOp, "asin": AsinOp,
    "acos": AcosOp, "atan": AtanOp, "sinh": SinhOp, "cosh": CoshOp, "asinh": AsinhOp,
    "acosh": AcoshOp, "atanh": AtanhOp, "exp2": Exp2Op, "log2": Log2Op, "log10": Log10Op,
}
_ROUNDING: dict[str, type[GraphOp]] = {"floor": FloorOp, "ceil": CeilOp, "round": RoundOp}
_ANY: dict[str, type[GraphOp]] = {"neg": NegOp, "abs": AbsOp, "_neg_view": NegOp}


@aten_op(*(f"aten.{name}.default" for name in _FLOAT))
def function(n: Node, x: Value) -> Value:
    """Integers are converted to floats first."""
    return n(_FLOAT[n.op.split(".")[1]], x.cast(n.element))


@aten_op(*(f"aten.{name}.default" for name in _ROUNDING))
def rounding(n: Node, x: Value) -> Value:
    return n(_ROUNDING[n.op.split(".")[1]], x) if is_float(x.element) else x


@aten_op("aten.round.decimals")
def rounded_to(n: Node, x: Value, decimals: int) -> Value:
    """To a number of decimals, as eager mode rounds: between a product and a quotient. PyTorch's
    own definition multiplies by the rounded inverse instead."""
    if not is_float(x.element):
        return x
    power, x = 10.0 ** abs(decimals), _wide(n, x)
    return n(RoundOp, x * power) / power if decimals >= 0 else n(RoundOp, x / power) * power


@aten_op(*(f"aten.{name}.default" for name in _ANY))
def plain(n: Node, x: Value) -> Value:
    return n(_ANY[n.op.split(".")[1]], x)


@aten_op("aten.sign.default", "aten.sgn.default")
def sign(n: Node, x: Value) -> Value:
    """0 for NaN."""
    if x.element == t.i1:
        return x
    return n(SignOp, x if not is_float(x.element) else f.where(f.is_nan(x), 0.0, x))


@aten_op("aten.trunc.default", "aten.fix.default")
def trunc(n: Node, x: Value) -> Value:
    return truncated(x)


def _wide(n: Node, x: Value) -> Value:
    """The operand of a function that is computed in several steps. Halves are converted to f32."""
    return x.cast(t.f32 if n.element in HALVES else n.element)


@aten_op("aten.rsqrt.default")
def rsqrt(n: Node, x: Value) -> Value:
    return f.reciprocal(f.sqrt(_wide(n, x)))


@aten_op("aten.square.default")
def square(n: Node, x: Value) -> Value:
    return (x.cast(n.element) * x.cast(n.element)) if n.element != t.i1 else x


@aten_op("aten.expm1.default")
def expm1(n: Node, x: Value) -> Value:
    return f.expm1(_wide(n, x))


@aten_op("aten.log1p.default")
def log1p(n: Node, x: Value) -> Value:
    return f.log1p(_wide(n, x))


# ---------------------------------------------------------------------- tests
@aten_op("aten.isnan.default")
def isnan(n: Node, x: Value) -> Value:
    return f.is_nan(x) if is_float(x.element) else _false_everywhere(n, x)


@aten_op("aten.isinf.default")
def isinf(n: Node, x: Value) -> Value:
    return f.is_inf(x) if is_float(x.element) else _false_everywhere(n, x)


@aten_op("aten.isfinite.default")
def isfinite(n: Node, x: Value) -> Value:
    return ~(isnan(n, x) | isinf(n, x))


def _false_everywhere(n: Node, x: Value) -> Value:
    return n.scalar(False, t.i1).broadcast(x.shape)
