"""Digits of a number that are joined have the value of their sum."""

from __future__ import annotations

from random import Random

import pytest

from dialects.symbolic.digits import recomposed
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol

X, Y = Symbol.axis("i0"), Symbol.axis("i1")


def calls(expr: Expr) -> int:
    return str(expr).count("floordiv") + str(expr).count("mod")


@pytest.mark.parametrize("text, least", [("row", 0), ("rows by two", 1), ("images", 1)])
def test_digits_of_a_flat_axis_cost_as_few_divisions(text: str, least: int) -> None:
    x = Expr.symbol(X)
    found = {"row": x // 14 * 14 + x % 14, "rows by two": x // 14 * 56 + x % 14 * 2,
             "images": x // 196 * 784 + x // 14 % 14 * 56 + x % 14 * 2}[text]
    assert calls(recomposed(found)) == least


@pytest.mark.parametrize("seed", range(60))
def test_values_stay(seed: int) -> None:
    random = Random(seed)
    number = Expr.symbol(X) * random.randint(1, 3) + Expr.symbol(Y) + random.randint(-2, 3)
    total = Expr.of(0)
    for _ in range(random.randint(2, 4)):
        base, inner = random.randint(2, 14), random.choice([1, 2, 7, 14])
        factor = random.choice([1, -2, 2, 3, base, base * inner, -base])
        digit = random.choice([number // base, number % base, number // inner % base,
                               number // (base * inner)])
        total = total + digit * factor
    joined = recomposed(total)
    for x in range(-3, 40):
        for y in (0, 1, 5):
            values = {X: x, Y: y}
            assert joined.evaluate(values) == total.evaluate(values), (str(total), str(joined))
