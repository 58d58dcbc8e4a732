"""Index expressions as the code of a target: what is computed, in which order.

An expression is a sum of products of symbols and calls. `Expressions` expands calls; a target
says how it computes sums, and each kind of call. `Integers` is for targets whose code consists of
instructions on integers that truncate quotients, as those of processors do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from dialects.symbolic.expr import Atom, Call, Expr
from dialects.symbolic.symbol import Symbol

V = TypeVar("V")


class Expressions(ABC, Generic[V]):
    """Makes code of index expressions. A value of the code is a `V`."""

    @abstractmethod
    def value(self, expr: Expr) -> V:
        """The value of an expression."""

    @abstractmethod
    def symbol(self, symbol: Symbol) -> V:
        """The value of a symbol."""

    @abstractmethod
    def division(self, call: Call, left: V, right: V) -> V:
        """The quotient (`floordiv`), rounded down, or the remainder (`mod`) of a division."""

    @abstractmethod
    def extremum(self, call: Call, left: V, right: V) -> V:
        """The larger (`max`) or the smaller (`min`) of two values."""

    def atom(self, atom: Atom) -> V:
        """The value of one factor of a term."""
        if isinstance(atom, Symbol):
            return self.symbol(atom)
        left, right = (self.value(argument) for argument in atom.args)
        kind = self.extremum if atom.op in ("max", "min") else self.division
        return kind(atom, left, right)


class Integers(Expressions[V]):
    """Divisions that round down, by instructions that truncate; divisors are positive."""

    @abstractmethod
    def number(self, number: int) -> V:
        """A constant."""

    @abstractmethod
    def binary(self, operation: str, left: V, right: V) -> V:
        """An instruction: `add`, `and`, `ashr`, `sdiv`, `srem`, `udiv` or `urem`."""

    @abstractmethod
    def is_nonnegative(self, expr: Expr) -> bool:
        """Whether an expression is certainly not negative, so that truncating rounds down."""

    def division(self, call: Call, left: V, right: V) -> V:
        numerator, divisor = call.args
        is_quotient, power = call.op == "floordiv", power_of_two(divisor)
        if power is not None:
            return (self.binary("ashr", left, self.number(power)) if is_quotient else
                    self.binary("and", left, self.number((1 << power) - 1)))
        if self.is_nonnegative(numerator):
            return self.binary("udiv" if is_quotient else "urem", left, right)
        if not is_quotient:
            rest = self.binary("srem", left, right)
            return self.binary("add", rest, self.binary("and", self._sign(rest), right))
        quotient, rest = self.binary("sdiv", left, right), self.binary("srem", left, right)
        return self.binary("add", quotient, self._sign(rest))

    def _sign(self, value: V) -> V:
        """-1 if a value is negative, else 0."""
        return self.binary("ashr", value, self.number(63))


def power_of_two(expr: Expr) -> int | None:
    """The exponent, if the expression is a constant power of two."""
    value = expr.constant
    if value is None or value <= 0 or value & (value - 1):
        return None
    return value.bit_length() - 1
