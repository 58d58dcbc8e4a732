"""Ranges of the values of a scalar body, given the ranges of its arguments.

A table gives the rule for each operation; an operation without a rule can yield anything. The range
of a float also says that it is not NaN, because NaN lies in no range. Some floats may exceed all
sizes and are still known to be numbers: results of a few operations on whole numbers that never
divide by 0. Integers of less than 64 bits may overflow, so they keep a range only if constant
bounds show that they fit. Sums of sizes fit into 64 bits (`dialects.strata.assumptions.MAX_SIZE`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import Float64Type, FloatAttr, IndexType, IntegerAttr, IntegerType
from xdsl.ir import Attribute, Operation, SSAValue

from dialects.records import dataclass
from dialects.strata.types import bit_width
from dialects.symbolic.expr import Expr, maximum, minimum
from dialects.symbolic.inequalities import Span

ANYTHING = Span(None, None)

PRODUCTS = 4
"""The most factors, sizes or small constants, whose product in f64 is certainly not infinite."""


def joined(spans: list[Span]) -> Span:
    """A range that contains all of the given ranges; anything if there are none."""
    if not spans:
        return ANYTHING
    total = spans[0]
    for span in spans[1:]:
        total = Span(_both(minimum, total.first, span.first), _both(maximum, total.last, span.last))
    return total


def constant(number: float | bool, type_: Attribute) -> Span:
    """The range of a number; anything if it does not fit into a signed integer of its width."""
    whole = not isinstance(number, float) or number.is_integer()
    width = _width(type_)
    if not whole or not -2**(width - 1) <= number < 2**(width - 1):
        return ANYTHING
    return Span(Expr.of(int(number)), Expr.of(int(number)))


def _both(
    choose: Callable[[Expr, Expr], Expr], left: Expr | None, right: Expr | None
) -> Expr | None:
    return None if left is None or right is None else choose(left, right)


def _either(
    choose: Callable[[Expr, Expr], Expr], left: Expr | None, right: Expr | None
) -> Expr | None:
    if left is None or right is None:
        return left if right is None else right
    return choose(left, right)


@dataclass(frozen=True)
class Scalars:
    """Computes the ranges of a body's values.

    `known` holds the ranges of the arguments. `is_positive` tells whether an expression over sizes
    is at least 1 wherever the body runs.
    """

    known: Mapping[SSAValue, Span]
    is_positive: Callable[[Expr], bool]

    def of(self, value: SSAValue) -> Span:
        """The range of a value."""
        if value in self.known:
            return self.known[value]
        op = value.owner
        if not isinstance(op, Operation):
            return ANYTHING
        if isinstance(op, arith.ConstantOp):
            return _constant_of(op)
        if isinstance(value.type, Float64Type):
            return self._of_float(op)
        if isinstance(op, arith.FPToSIOp):
            return _cast(op, [self.of(op.input)]) if isinstance(
                op.input.type, Float64Type) else ANYTHING
        rule = _RULES.get(type(op))
        return ANYTHING if rule is None else rule(op, [self.of(o) for o in op.operands])

    # ------------------------------------------------------------------ floats
    def _of_float(self, op: Operation) -> Span:
        """The range of an f64, which represents sizes exactly."""
        match op:
            case arith.SIToFPOp():
                return self.of(op.input)
            case math.FloorOp() | math.CeilOp():
                return self.of(op.operand)
            case arith.SelectOp():
                return joined([self.of(op.lhs), self.of(op.rhs)])
            case arith.MaximumfOp() | arith.MinimumfOp() if self._are_numbers(op):
                rule = _minimum if isinstance(op, arith.MinimumfOp) else _maximum
                return rule(op, [self.of(o) for o in op.operands])
            case _:
                return ANYTHING

    def _are_numbers(self, op: Operation) -> bool:
        return all(self._factors(o) <= PRODUCTS for o in op.operands)

    def _factors(self, value: SSAValue) -> int:
        """The most whole-number factors in a float; more than `PRODUCTS` if it may be NaN."""
        op, too_many = value.owner, PRODUCTS + 1
        match op:
            case arith.ConstantOp():
                is_number = isinstance(op.value, FloatAttr) and abs(op.value.value.data) < 2**48
                return 1 if is_number else too_many
            case arith.SIToFPOp():
                return 1
            case math.FloorOp() | math.CeilOp():
                return self._factors(op.operand)
            case arith.AddfOp() | arith.SubfOp() | arith.MaximumfOp() | arith.MinimumfOp():
                return max(map(self._factors, op.operands))
            case arith.SelectOp():
                return max(self._factors(op.lhs), self._factors(op.rhs))
            case arith.MulfOp():
                return sum(map(self._factors, op.operands))
            case arith.DivfOp():
                least = self.of(op.rhs).first
                is_safe = least is not None and self.is_positive(least)
                return self._factors(op.lhs) if is_safe else too_many
            case _:
                return too_many


def _constant_of(op: arith.ConstantOp) -> Span:
    if not isinstance(op.value, IntegerAttr | FloatAttr):
        return ANYTHING
    return constant(op.value.value.data, op.result.type)


# ---------------------------------------------------------------------- integers
def _sum(op: Operation, spans: list[Span]) -> Span:
    left, right = spans
    if not _is_wide(op.results[0].type):
        return ANYTHING
    return Span(None if left.first is None or right.first is None else left.first + right.first,
                None if left.last is None or right.last is None else left.last + right.last)


def _difference(op: Operation, spans: list[Span]) -> Span:
    first, last = spans[1]
    return _sum(op, [spans[0], Span(None if last is None else -last,
                                    None if first is None else -first)])


def _is_wide(type_: Attribute) -> bool:
    """Whether sums of numbers as large as sizes cannot overflow."""
    return isinstance(type_, IndexType) or (_is_integer(type_) and _width(type_) >= 64)


def _width(type_: Attribute) -> int:
    """The bits of an integer; 64 for other types."""
    return bit_width(type_) if _is_integer(type_) else 64


def _is_integer(type_: Attribute) -> bool:
    return isinstance(type_, IntegerType)


def _minimum(op: Operation, spans: list[Span]) -> Span:
    left, right = spans
    return Span(_both(minimum, left.first, right.first), _either(minimum, left.last, right.last))


def _maximum(op: Operation, spans: list[Span]) -> Span:
    left, right = spans
    return Span(_either(maximum, left.first, right.first), _both(maximum, left.last, right.last))


def _widened(op: Operation, spans: list[Span]) -> Span:
    return ANYTHING if op.operands[0].type == IntegerType(1) else spans[0]


def _unsigned(op: Operation, spans: list[Span]) -> Span:
    """A number that is certainly not negative keeps its value."""
    [span], type_ = spans, op.operands[0].type
    least = None if span.first is None else span.first.constant
    if least is not None and least >= 0:
        return span
    if _width(type_) < 32:
        return Span(Expr.of(0), Expr.of(2**_width(type_) - 1))
    return Span(Expr.of(0), None)


def _narrowed(op: Operation, spans: list[Span]) -> Span:
    """A number that certainly fits keeps its value."""
    [span], type_ = spans, op.results[0].type
    if not _is_integer(type_) or span.first is None or span.last is None:
        return ANYTHING
    first, last, half = span.first.constant, span.last.constant, 2**(_width(type_) - 1)
    fits = first is not None and last is not None and -half <= first <= last < half
    return span if fits else ANYTHING


def _quotient(op: Operation, spans: list[Span]) -> Span:
    """A number that is certainly not negative, divided by a constant."""
    first, last = spans[0]
    divisor = spans[1].first.constant if spans[1].first is not None else None
    least = None if first is None else first.constant
    if spans[1].first != spans[1].last or not divisor or divisor < 0 or least is None or least < 0:
        return ANYTHING
    return Span(Expr.of(least // divisor), None if last is None else last // divisor)


def _cast(op: Operation, spans: list[Span]) -> Span:
    return spans[0] if _is_wide(op.results[0].type) else _narrowed(op, spans)


_RULES: dict[type[Operation], Callable[[Operation, list[Span]], Span]] = {
    arith.AddiOp: _sum, arith.SubiOp: _difference,
    arith.MinSIOp: _minimum, arith.MaxSIOp: _maximum, arith.DivUIOp: _quotient,
    arith.SelectOp: lambda op, spans: joined(spans[1:]),
    arith.ExtSIOp: _widened, arith.ExtUIOp: _unsigned, arith.TruncIOp: _narrowed,
    arith.IndexCastOp: _cast,
}
