"""Cheaper forms of operations whose results are soon rounded to f16 or bf16.

    x*(1 + erf(x/sqrt(2)))/2  ->  gelu(x)
    1 + erf(z)   ->  erfc(-z)
    1 + tanh(z)  ->  2*sigmoid(2*z)
    1/(1 + exp(-z))  ->  sigmoid(z)

A quotient whose divisor is the same for a whole row multiplies by its inverse. Sums with 1 cancel
for negative z, and their other forms do not. A rounding in the middle of a body (`extf` of
`truncf`) is dropped, as for the products of sums: the results come closer to the exact ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Block, Operation, SSAValue

from dialects.semantics.numerics import SQRT_HALF
from dialects.strata import types as t
from targets.cuda.emit.rounding import is_rounding
from targets.cuda.emit.scalar import Row


def _quick(name: str) -> Row:
    return Row(f"{name}({{0}})", helper=name)


QUICK_ROWS: dict[str, Row] = {
    "arith.divf": Row("{0} / {1}", literals="plain"),
    "math.sqrt": Row("tl.sqrt({0})"),
    "math.exp": _quick("quick_exp"),
    "math.erf": _quick("quick_erf"),
    "math.tanh": _quick("quick_tanh"),
}
"""Rows that replace those of `scalar.py` for f32."""

INVERTED = Row("{0} * (1.0 / {1})")
"""A quotient whose divisor is shared by many elements: one division serves all of them."""

_ERFC = Row("quick_erfc(-{0})", helper="quick_erfc")
_TANH = Row("2.0 * quick_sigmoid(2.0 * {0})", helper="quick_sigmoid")
_GELU = _quick("quick_gelu")
_SIGMOID = _quick("quick_sigmoid")
_MIRRORED_SIGMOID = Row("quick_sigmoid(-{0})", helper="quick_sigmoid")


@dataclass(frozen=True)
class Form:
    """An operation as a row that is applied to other operands.

    Without a row, the result is the operand itself.

    `replaced`: operations whose results nothing else uses.
    """

    row: Row | None
    operand: SSAValue
    replaced: tuple[Operation, ...]


def joined_forms(block: Block, full: Collection[SSAValue]) -> dict[Operation, Form]:
    """The forms that each replace several operations of a body.

    `full`: values needed in full precision, which stay as they are.
    """
    forms: dict[Operation, Form] = {}
    for op in reversed(list(block.ops)):
        replaced = {r for form in forms.values() for r in form.replaced}
        match = _MATCHES.get(type(op))
        if match is None or op in replaced or op.results[0] in full:
            continue
        if op.results[0].type == t.f32 and (form := match(op)) is not None:
            forms[op] = form
    return forms


def _sum_form(op: Operation) -> Form | None:
    """1 + erf(z), 1 + tanh(z)."""
    for kind, row in ((math.ErfOp, _ERFC), (math.TanhOp, _TANH)):
        if (inner := _one_and(op, kind)) is not None:
            return Form(row, inner.operands[0], (inner,))
    return None


def _product_form(op: Operation) -> Form | None:
    """x * 0.5 * (1 + erf(x * sqrt(0.5))), with its factors in any order."""
    factors, products = _factors(op)
    half = next((f for f in factors if _is_number(f, 0.5)), None)
    total = next((m for f in factors if (m := _maker(f, arith.AddfOp)) is not None), None)
    bend = None if total is None else _one_and(total, math.ErfOp)
    if len(factors) != 3 or half is None or total is None or bend is None:
        return None
    scaled = _maker(bend.operands[0], arith.MulfOp)
    [x] = [f for f in factors if f is not half and f.owner is not total] or [half]
    if scaled is None or not any(
            _is_same(v, x) and _is_number(other, SQRT_HALF) for v, other in _pairs(scaled)):
        return None
    return Form(_GELU, x, (*products, total, bend, scaled))


def _factors(op: Operation) -> tuple[list[SSAValue], list[Operation]]:
    """The factors of a chain of products, and all its products except the last."""
    factors, products = list[SSAValue](), list[Operation]()
    for operand in op.operands:
        inner = _maker(operand, arith.MulfOp)
        if inner is None:
            factors.append(operand)
            continue
        below, more = _factors(inner)
        factors += below
        products += [inner, *more]
    return factors, products


def _quotient_form(op: Operation) -> Form | None:
    """1 / (1 + exp(z))."""
    total = _maker(op.operands[1], arith.AddfOp)
    if not _is_one(op.operands[0]) or total is None:
        return None
    power = _one_and(total, math.ExpOp)
    if power is None:
        return None
    negation = _maker(power.operands[0], arith.NegfOp)
    if negation is None:
        return Form(_MIRRORED_SIGMOID, power.operands[0], (power, total))
    return Form(_SIGMOID, negation.operands[0], (negation, power, total))


def _widening_form(op: Operation) -> Form | None:
    """A rounded value that is widened again."""
    rounding = op.operands[0].owner
    if not is_rounding(rounding) or rounding.input.type != op.results[0].type:
        return None
    return Form(None, rounding.input, (rounding,) if rounding.result.has_one_use() else ())


_MATCHES: dict[type[Operation], Callable[[Operation], Form | None]] = {
    arith.MulfOp: _product_form, arith.AddfOp: _sum_form, arith.DivfOp: _quotient_form,
    arith.ExtFOp: _widening_form,
}


# ---------------------------------------------------------------------- matching
def _one_and(total: Operation, kind: type[Operation]) -> Operation | None:
    """The operation of this kind that is added to 1; None if there is none."""
    found = (_maker(other, kind) for other, one in _pairs(total) if _is_one(one))
    return next((op for op in found if op is not None), None)


def _pairs(op: Operation) -> Iterator[tuple[SSAValue, SSAValue]]:
    left, right = op.operands
    yield from ((left, right), (right, left))


def _maker(value: SSAValue, kind: type[Operation]) -> Operation | None:
    """The operation of this kind that makes a value with a single use; else None."""
    return value.owner if isinstance(value.owner, kind) and value.has_one_use() else None


def _is_same(a: SSAValue, b: SSAValue) -> bool:
    """Whether two values are the same value, or conversions of the same value."""
    if isinstance(a.owner, arith.ExtFOp) and isinstance(b.owner, arith.ExtFOp):
        return a.owner.input is b.owner.input
    return a is b


def _is_one(value: SSAValue) -> bool:
    return _is_number(value, 1.0)


def _is_number(value: SSAValue, number: float) -> bool:
    """Whether a value is a constant that equals the number in f32."""
    op = value.owner
    return isinstance(op, arith.ConstantOp) and isinstance(op.value, FloatAttr) and (
        abs(op.value.value.data - number) <= 2.0**-24 * number)
