"""Index expressions as code: instructions that truncate compute what Python's `//` and `%` do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from math import trunc

import pytest

from dialects.symbolic.expr import Call, Expr, maximum, minimum
from dialects.symbolic.symbol import Symbol
from targets.cpu.artifact.c_text import SharedExpressions
from targets.cpu.llvm.operands import symbol_names
from targets.expressions import Integers
from targets.naming import Names

_X, _Y = Symbol.size("x"), Symbol.size("y")
_INSTRUCTIONS: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "and": lambda a, b: a & b, "ashr": lambda a, b: a >> b,
    "sdiv": lambda a, b: trunc(a / b), "srem": lambda a, b: a - trunc(a / b) * b,
    "udiv": lambda a, b: a // b, "urem": lambda a, b: a % b}


class _Machine(Integers[int]):
    """Executes the instructions at once, and counts them."""

    def __init__(self, values: Mapping[Symbol, int], natural: bool):
        self.values, self.natural = values, natural
        self.executed: list[str] = []

    def value(self, expr: Expr) -> int:
        total = 0
        for monomial, factor in expr.terms:
            for atom in monomial:
                factor *= self.atom(atom)
            total += factor
        return total

    def symbol(self, symbol: Symbol) -> int:
        return self.values[symbol]

    def number(self, number: int) -> int:
        return number

    def binary(self, operation: str, left: int, right: int) -> int:
        self.executed.append(operation)
        assert operation[0] != "u" or min(left, right) >= 0
        return _INSTRUCTIONS[operation](left, right)

    def is_nonnegative(self, expr: Expr) -> bool:
        return self.natural and expr.evaluate(self.values) >= 0

    def extremum(self, call: Call, left: int, right: int) -> int:
        return max(left, right) if call.op == "max" else min(left, right)


@pytest.mark.parametrize("natural", [False, True])
@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 8, 64])
def test_quotients_round_down(divisor: int, natural: bool) -> None:
    x = Expr.symbol(_X)
    for value in range(-40, 41):
        machine = _Machine({_X: value}, natural)
        assert machine.value(x // divisor) == value // divisor
        assert machine.value(x % divisor) == value % divisor


def test_divisors_may_be_symbols() -> None:
    x, y = Expr.symbol(_X), Expr.symbol(_Y)
    expr = 3 * (x // y) + maximum(x % y, minimum(x, 2)) * (x + 5) // 4
    for a, b in product(range(-20, 21), range(1, 12)):
        machine = _Machine({_X: a, _Y: b}, natural=True)
        assert machine.value(expr) == expr.evaluate({_X: a, _Y: b})


@pytest.mark.parametrize("divisor, natural, instructions", [
    (8, False, ["ashr"]), (8, True, ["ashr"]), (6, True, ["udiv"]),
    (6, False, ["sdiv", "srem", "ashr", "add"])])
def test_cheap_divisions_are_found(divisor: int, natural: bool, instructions: list[str]) -> None:
    machine = _Machine({_X: 50}, natural)
    machine.value(Expr.symbol(_X) // divisor)
    assert machine.executed == instructions


def test_names_are_used_once() -> None:
    fresh = Names(str.lower, ("for",)).fresh
    assert [fresh(n) for n in ("A", "a", "a_2", "For", "b")] == ["a", "a_2", "a_2_2", "for_2", "b"]


def test_native_names_are_legal_and_distinct() -> None:
    assert symbol_names(["k", "a/b", "a b", "2x", "a.b", "é"]) == [
        "k", "a_b", "a_b_2", "_2x", "a.b", "_"]


def test_equal_calls_are_computed_once_in_c() -> None:
    """Expressions of sizes that a model computes may hold a call in several others, level by level:
    written out, these would be 3**8 calls."""
    functions = {"sum_of": lambda a, b: a + b, "product_of": lambda a, b: a * b,
                 "quotient_of": lambda a, b: a // b, "rest_of": lambda a, b: a % b,
                 "larger_of": max, "smaller_of": min, "INT64_C": int}
    for start in (0, 5, 1200, -3):
        expr, value = Expr.symbol(_X), start
        for k in range(8):
            expr = maximum(expr - 7, minimum(expr, Expr.of(1000 + k)) + expr // 2)
            value = max(value - 7, min(value, 1000 + k) + value // 2)
        shared = SharedExpressions({_X: "v"})
        result = shared.value(expr)
        assert len(shared.lines) <= 24
        names: dict[str, object] = {**functions, "v": start}
        for line in shared.lines:
            name, text = line.strip().removeprefix("const int64_t ").rstrip(";").split(" = ")
            names[name] = eval(text, names)
        assert eval(result, names) == value
