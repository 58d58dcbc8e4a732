"""Rules on elementwise arithmetic, logic, selection and casts."""

from __future__ import annotations

import numpy as np
from xdsl.ir import Attribute, Operation, SSAValue

from dialects.graph import (
    AddOp,
    AndOp,
    BroadcastOp,
    CastOp,
    ConstantOp,
    DivOp,
    MaxOp,
    MinOp,
    MulOp,
    NegOp,
    NotOp,
    OrOp,
    PowOp,
    ReciprocalOp,
    ReshapeOp,
    SubOp,
    WhereOp,
)
from dialects.graph.elementwise import BinaryOp
from dialects.strata.types import (
    Array,
    bf16,
    bit_width,
    f8E8M0FNU,
    f16,
    f32,
    f64,
    i1,
    is_float,
    is_unsigned,
)
from dialects.text.syntax import location_name
from passes.rewrites.graph.matching import (
    constant_array,
    is_number,
    is_settled,
    type_of,
    uniform,
)
from passes.rewriting import Rewriter, Rule


def _unless_broadcast(value: SSAValue, op: Operation, at: Rewriter) -> SSAValue | None:
    """The value in the op's result type, if it differs from that at most in dims of one element."""
    own, wanted = type_of(value), type_of(op.results[0])
    if own == wanted:
        return value
    wide = [[s for s in t.shape if s.constant != 1] for t in (own, wanted)]
    is_same = own.element == wanted.element and wide[0] == wide[1]
    return at(ReshapeOp, value, shape=wanted.shape) if is_same else None


def _other_operand(op: BinaryOp, number: float, at: Rewriter) -> SSAValue | None:
    """The other operand of a commutative operation if one operand is `number` everywhere."""
    for value, other in ((op.x, op.y), (op.y, op.x)):
        if is_number(other, number, at.context):
            return _unless_broadcast(value, op, at)
    return None


# ---------------------------------------------------------------------- neutral operands
def add_zero(op: AddOp, at: Rewriter) -> SSAValue | None:
    # x + -0.0 == x for floats (-0.0 + 0.0 is 0.0, so 0.0 is not neutral); x + 0 == x for integers
    return _other_operand(op, -0.0 if is_float(type_of(op.x).element) else 0, at)


def subtract_zero(op: SubOp, at: Rewriter) -> SSAValue | None:
    # x - 0 == x
    return _unless_broadcast(op.x, op, at) if is_number(op.y, 0, at.context) else None


def multiply_by_one(op: MulOp, at: Rewriter) -> SSAValue | None:
    # x * 1 == x
    return _other_operand(op, 1, at)


def divide_by_one(op: DivOp, at: Rewriter) -> SSAValue | None:
    # x / 1 == x
    return _unless_broadcast(op.x, op, at) if is_number(op.y, 1, at.context) else None


def max_with_lowest(op: MaxOp, at: Rewriter) -> SSAValue | None:
    # max(x, -inf) == x
    return _other_operand(op, -np.inf, at)


def min_with_highest(op: MinOp, at: Rewriter) -> SSAValue | None:
    # min(x, inf) == x
    return _other_operand(op, np.inf, at)


def and_true(op: AndOp, at: Rewriter) -> SSAValue | None:
    # x and true == x;  integers: x & -1 == x
    element = type_of(op.x).element
    return None if element != i1 and is_unsigned(element) else _other_operand(
        op, 1 if element == i1 else -1, at)


def or_false(op: OrOp, at: Rewriter) -> SSAValue | None:
    # x or false == x;  integers: x | 0 == x
    return _other_operand(op, 0, at)


def same_operands(op: BinaryOp, at: Rewriter) -> SSAValue | None:
    # max(x, x) == min(x, x) == x and x == x or x == x
    return op.x if op.x is op.y else None


# ---------------------------------------------------------------------- cheaper forms
def divide_by_power_of_two(op: DivOp, at: Rewriter) -> SSAValue | None:
    # x / 2^k == x * 2^-k, exact as long as 2^-k is a normal number
    divisor = constant_array(op.y, at.context) if is_settled(op.y, at.context) else None
    if divisor is None or not is_float(type_of(op.y).element):
        return None
    inverse = _exact_inverse(divisor.astype(np.float64), type_of(op.y).element)
    if inverse is None:
        return None
    label = f"{location_name(op)}.inverse"
    constant = ConstantOp.of_array(inverse.astype(divisor.dtype), at.context.weights, label)
    return at(MulOp, op.x, at.insert(constant))


_SMALLEST_NORMAL: dict[Attribute, int] = {f16: -14, bf16: -126, f32: -126, f64: -1022}
"""Exponents of two of the smallest normal numbers."""


def _exact_inverse(divisor: Array, element: Attribute) -> Array | None:
    """1 / divisor, if all are powers of two whose inverse is a normal number of the type."""
    if not np.all(np.isfinite(divisor)):
        return None
    mantissa, exponent = np.frexp(divisor)  # mantissa * 2**exponent, 0.5 <= |mantissa| < 1
    lowest = _SMALLEST_NORMAL[element]
    inverse_exponent = 1 - exponent
    if not np.all((np.abs(mantissa) == 0.5) & (inverse_exponent >= lowest)
                  & (inverse_exponent <= -lowest)):
        return None
    return 1.0 / divisor


def simple_power(op: PowOp, at: Rewriter) -> SSAValue | None:
    """x*x is rounded correctly, and x*x*x is rounded twice; `pow` itself may have an equal error.

    An exponent of -1 is only handled for floats, because an integer's reciprocal truncates.
    """
    # x^1 == x;  x^2 == x*x;  x^3 == x*x*x;  x^-1 == 1/x
    if op.x.type != op.results[0].type:
        return None
    match uniform(op.y, at.context):
        case 1:
            return op.x
        case 2:
            return at(MulOp, op.x, op.x)
        case 3:
            return at(MulOp, at(MulOp, op.x, op.x), op.x)
        case -1 if is_float(type_of(op.x).element):
            return at(ReciprocalOp, op.x)
        case _:
            return None


# ---------------------------------------------------------------------- pairs that cancel
def double_negation(op: NegOp | NotOp, at: Rewriter) -> SSAValue | None:
    # -(-x) == x;  not not x == x
    inner = op.x.owner
    return inner.x if isinstance(inner, NegOp | NotOp) and type(inner) is type(op) else None


def decided_choice(op: WhereOp, at: Rewriter) -> SSAValue | None:
    # where(true, x, y) == x;  where(false, x, y) == y;  where(c, x, x) == x
    condition = uniform(op.condition, at.context)
    if condition is None and op.x is not op.y:
        return None
    chosen = op.x if op.x is op.y or condition else op.y
    if chosen.type == op.results[0].type:
        return chosen
    return at(BroadcastOp, chosen, shape=list(type_of(op.results[0]).shape))


def negated_choice(op: WhereOp, at: Rewriter) -> SSAValue | None:
    # where(not c, x, y) == where(c, y, x)
    inner = op.condition.owner
    return at(WhereOp, inner.x, op.y, op.x) if isinstance(inner, NotOp) else None


def cast_to_same(op: CastOp, at: Rewriter) -> SSAValue | None:
    # cast(x to its own type) == x, unless it saturates, which changes infinities
    return None if op.saturates else _unless_broadcast(op.x, op, at)


def cast_of_lossless_cast(op: CastOp, at: Rewriter) -> SSAValue | None:
    # cast(cast(x to b) to c) == cast(x to c) if b holds every value of x
    inner = op.x.owner
    if not isinstance(inner, CastOp) or not _holds(inner.to, type_of(inner.x).element):
        return None
    return at(CastOp, inner.x, to=op.to, saturate=op.saturate, round=op.round)


_MANTISSA: dict[Attribute, int] = {f16: 11, bf16: 8, f32: 24, f64: 53}
"""The widest integers, in bits, that a float type holds exactly; narrow floats are not listed."""


def _holds(wide: Attribute, narrow: Attribute) -> bool:
    """Whether a type represents every value of another one exactly."""
    if narrow == i1 or wide == narrow:
        return wide != f8E8M0FNU or wide == narrow
    if wide == i1 or (is_float(narrow) and not is_float(wide)):
        return False
    if is_float(narrow):
        return wide == f64 or (wide == f32 and narrow != f64)
    bits = bit_width(narrow) - (not is_unsigned(narrow))
    if is_float(wide):
        return bits <= _MANTISSA.get(wide, 0)
    loses_sign = is_unsigned(wide) and not is_unsigned(narrow)
    return not loses_sign and bits <= bit_width(wide) - (not is_unsigned(wide))


# ---------------------------------------------------------------------- broadcasts
def broadcast_operand(op: BinaryOp, at: Rewriter) -> SSAValue | None:
    # broadcast(x) + y == x + y if y alone determines the shape of the result
    operands = [v.owner.x if isinstance(v.owner, BroadcastOp) else v for v in (op.x, op.y)]
    for x, y in ((operands[0], operands[1]), (operands[0], op.y), (op.x, operands[1])):
        if (x, y) == (op.x, op.y):
            continue
        slim = type(op).infer([type_of(x), type_of(y)], op.properties)
        if slim[0] == op.results[0].type:
            return at(type(op), x, y)
    return None


ARITHMETIC_RULES: dict[type[Operation], list[Rule]] = {
    AddOp: [add_zero],
    SubOp: [subtract_zero],
    MulOp: [multiply_by_one],
    DivOp: [divide_by_one, divide_by_power_of_two],
    PowOp: [simple_power],
    MaxOp: [max_with_lowest, same_operands],
    MinOp: [min_with_highest, same_operands],
    AndOp: [and_true, same_operands],
    OrOp: [or_false, same_operands],
    NegOp: [double_negation],
    NotOp: [double_negation],
    WhereOp: [decided_choice, negated_choice],
    CastOp: [cast_to_same, cast_of_lossless_cast],
    BinaryOp: [broadcast_operand],
}
