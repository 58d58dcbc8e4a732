"""Random terms over integers, which become expressions, numbers, and formulas of Z3."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product as every
from typing import Any, TypeAlias

from dialects.symbolic.expr import Expr, maximum, minimum

Tree: TypeAlias = "int | str | tuple[str, Any, Any]"
"""A number, a symbol, or an operator with two operands."""
OPERATORS = ("+", "+", "-", "*", "//", "%", "max", "min")


@dataclass(frozen=True)
class Terms:
    """`symbols`: which there are. `divisors`: which constants divide; none: any term does."""

    symbols: Sequence[str]
    divisors: Sequence[int] = ()

    def draw(self, source: random.Random, depth: int = 3) -> Tree:
        if depth == 0 or source.random() < 0.15:
            return source.choice(self.symbols) if source.random() < 0.65 else source.randint(-5, 6)
        op = source.choice(OPERATORS)
        left = self.draw(source, depth - 1)
        if op in ("//", "%") and self.divisors:
            return (op, left, source.choice(self.divisors))
        if op == "*" and self.divisors:  # linear, so that Z3 decides it
            return (op, left, source.randint(-3, 4))
        return (op, left, self.draw(source, depth - 1))


def expression(tree: Tree, symbols: Mapping[str, Expr]) -> Expr:
    """The tree as the compiler's algebra has it, every step normalized."""
    if isinstance(tree, int):
        return Expr.of(tree)
    if isinstance(tree, str):
        return symbols[tree]
    op, *parts = tree
    left, right = (expression(p, symbols) for p in parts)
    if op in ("max", "min"):
        return (maximum if op == "max" else minimum)(left, right)
    return {"+": left.__add__, "-": left.__sub__, "*": left.__mul__, "//": left.__floordiv__,
            "%": left.__mod__}[op](right)


def number(tree: Tree, values: Mapping[str, int]) -> int:
    """Its value by Python's own operators. Raises ZeroDivisionError."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return values[tree]
    op, *parts = tree
    left, right = (number(p, values) for p in parts)
    if op in ("max", "min"):
        return max(left, right) if op == "max" else min(left, right)
    return {"+": left.__add__, "-": left.__sub__, "*": left.__mul__, "//": left.__floordiv__,
            "%": left.__mod__}[op](right)


def has_zero_divisor(tree: Tree) -> bool:
    """Whether a constant 0 divides something."""
    if not isinstance(tree, tuple):
        return False
    op, left, right = tree
    by_zero = op in ("//", "%") and not _symbols(right) and _is_zero(right)
    return by_zero or has_zero_divisor(left) or has_zero_divisor(right)


def _symbols(tree: Tree) -> bool:
    if isinstance(tree, tuple):
        return _symbols(tree[1]) or _symbols(tree[2])
    return isinstance(tree, str)


def _is_zero(tree: Tree) -> bool:
    try:
        return number(tree, {}) == 0
    except ZeroDivisionError:
        return True


def domain(symbols: Sequence[str], low: int, high: int) -> Iterator[dict[str, int]]:
    """All values from `low` to `high` of all symbols."""
    for values in every(range(low, high + 1), repeat=len(symbols)):
        yield dict(zip(symbols, values, strict=True))
