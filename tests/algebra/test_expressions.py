"""The algebra of expressions says what integers do: on small domains all of it, and by Z3."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pytest

from dialects.graph.inference import certain_sign
from dialects.symbolic.expr import Expr, minimum
from dialects.symbolic.expr_syntax import expr_of
from dialects.symbolic.symbol import Symbol
from tests.algebra.trees import Terms, Tree, domain, expression, has_zero_divisor, number

NAMES = ("a", "b")
SYMBOLS = {name: Expr.size(name) for name in NAMES}
A = Symbol.size("a")
TREES = 60
"""How many per seed."""


def keyed(values: Mapping[str, int]) -> dict[Symbol, int]:
    """Numbers by symbol."""
    return {Symbol.size(name): value for name, value in values.items()}


def drawn(seed: int, terms: Terms, depth: int = 3) -> list[Tree]:
    source = random.Random(seed)
    trees = (terms.draw(source, depth) for _ in range(4 * TREES))
    return [t for t in trees if isinstance(t, tuple) and not has_zero_divisor(t)][:TREES]


@pytest.mark.parametrize("seed", range(8))
def test_every_value_of_a_small_domain(seed: int) -> None:
    """Normalized, an expression is what the term is, also for divisors that are negative."""
    for tree in drawn(seed, Terms(NAMES)):
        try:
            expr = expression(tree, SYMBOLS)
        except ZeroDivisionError:
            continue
        for values in domain(NAMES, -4, 5):
            try:
                wanted = number(tree, values)
            except ZeroDivisionError:
                continue
            assert expr.evaluate(keyed(values)) == wanted, (tree, str(expr), values)


@pytest.mark.parametrize("seed", range(4))
def test_all_integers(seed: int) -> None:
    """The same for all integers, where Z3 decides it: terms that are linear but for divisions."""
    z3 = pytest.importorskip("z3")
    from tests.algebra.formulas import of_expr, of_tree, refuted

    integers = {name: z3.Int(name) for name in NAMES}
    symbols = {Symbol.size(name): integer for name, integer in integers.items()}
    for tree in drawn(100 + seed, Terms(NAMES, divisors=(1, 2, 3, 4, 6)))[:25]:
        expr = expression(tree, SYMBOLS)
        found = refuted(of_expr(expr, symbols) == of_tree(tree, integers), limit=500)
        assert found is None, (tree, str(expr), found)


@pytest.mark.parametrize("seed", range(4))
def test_text_round_trips(seed: int) -> None:
    for tree in drawn(200 + seed, Terms(NAMES)):
        try:
            expr = expression(tree, SYMBOLS)
        except ZeroDivisionError:
            continue
        assert expr_of(str(expr)) == expr, str(expr)


@pytest.mark.parametrize("seed", range(4))
def test_substitution_is_composition(seed: int) -> None:
    """e[a := f](x) == e(f(x)): a map composed of two is the one after the other."""
    trees = drawn(300 + seed, Terms(NAMES), 2)
    for outer, inner in zip(trees, reversed(trees), strict=True):
        try:
            outer_expr, inner_expr = (expression(t, SYMBOLS) for t in (outer, inner))
            composed = outer_expr.substitute({A: inner_expr})
        except ZeroDivisionError:
            continue
        for values in domain(NAMES, -3, 4):
            try:
                wanted = number(outer, {**values, "a": number(inner, values)})
            except ZeroDivisionError:
                continue
            assert composed.evaluate(keyed(values)) == wanted, (outer, inner, str(composed), values)


@pytest.mark.parametrize("seed", range(4))
def test_division_with_a_rest(seed: int) -> None:
    """x == q*d + r, whatever moves out."""
    trees = drawn(400 + seed, Terms(NAMES), 2)
    for left, right in zip(trees, reversed(trees), strict=True):
        try:
            x, d = expression(left, SYMBOLS), expression(right, SYMBOLS)
        except ZeroDivisionError:
            continue
        if not d.terms:
            continue
        quotient, rest = x.divide(d)
        assert quotient * d + rest == x or _agree(quotient * d + rest, x)


def _agree(left: Expr, right: Expr) -> bool:
    for values in domain(NAMES, -3, 4):
        try:
            if left.evaluate(keyed(values)) != right.evaluate(keyed(values)):
                return False
        except ZeroDivisionError:
            continue
    return True


def test_division_upwards() -> None:
    a, b = SYMBOLS.values()
    for x in (a, a + 3, 2 * a - 1, a * b, a - b):
        for d in (1, 2, 3, 5):
            for values in map(keyed, domain(NAMES, -4, 5)):
                assert x.ceildiv(d).evaluate(values) == -(-x.evaluate(values) // d)
        for values in map(keyed, domain(NAMES, 1, 5)):
            assert x.ceildiv(b).evaluate(values) == -(-x.evaluate(values) // b.evaluate(values))


@pytest.mark.parametrize("seed", range(4))
def test_parts_that_are_linear(seed: int) -> None:
    """e == sum of coefficients times symbols, and a rest without them."""
    for tree in drawn(500 + seed, Terms(NAMES)):
        try:
            expr = expression(tree, SYMBOLS)
        except ZeroDivisionError:
            continue
        split = expr.linear([A])
        if split is None:
            continue
        coefficients, rest = split
        assert A not in rest.symbols and not any(A in c.symbols for c in coefficients.values())
        whole = sum((c * Expr.symbol(s) for s, c in coefficients.items()), rest)
        assert whole == expr


@pytest.mark.parametrize("seed", range(4))
def test_signs_that_are_certain(seed: int) -> None:
    """For sizes from 0 up."""
    for tree in drawn(600 + seed, Terms(NAMES, divisors=(2, 3))):
        expr = expression(tree, SYMBOLS)
        sign = certain_sign(expr)
        if sign is None or expr.constant is not None or _has_mod_or_negative_call(tree):
            continue
        for values in domain(NAMES, 0, 7):
            value = expr.evaluate(keyed(values))
            assert (value > 0) - (value < 0) == sign, (str(expr), values)


def _has_mod_or_negative_call(tree: Tree) -> bool:
    """`certain_sign` takes a division of sizes for a size; these terms divide other things."""
    if not isinstance(tree, tuple):
        return False
    if tree[0] in ("//", "max", "min"):
        return True
    return _has_mod_or_negative_call(tree[1]) or _has_mod_or_negative_call(tree[2])


@pytest.mark.parametrize("name", ["__add__", "__sub__", "__mul__", "__floordiv__", "__mod__"])
def test_what_an_operation_remembers_is_what_it_computes(name: str) -> None:
    """Also for integers as operands, of any type, and for symbols of one name and several kinds."""
    operation = getattr(Expr, name)
    source = random.Random(7)
    kinds = [Expr.size("i0"), Expr.axis("i0"), Expr.operand("i0"), Expr.size("n")]
    for _ in range(300):
        left = source.choice(kinds) * source.randint(-3, 3) + source.choice(kinds)
        right = source.choice([*kinds, 1, 2, np.int64(2), True, source.choice(kinds) + 1])
        fresh = operation.__wrapped__(left, right)
        assert operation(left, right).terms == operation(left, right).terms == fresh.terms


def test_substitutions_with_the_same_symbols_and_other_values_differ() -> None:
    n, m = Symbol.size("n"), Symbol.size("m")
    expr = Expr.symbol(n) * 2 + Expr.symbol(m) // 3
    for k in range(5):
        values = {n: Expr.symbol(m) + k, m: k, Symbol.axis("i0"): 7}
        assert expr.substitute(values) == Expr.symbol(m) * 2 + (2 * k + k // 3)


def test_what_minima_share_is_evaluated_once() -> None:
    """As in the sizes of a pad at run time; each of these has its operand in two places."""
    class Counted(dict[Symbol, int]):
        reads = 0

        def __getitem__(self, key: Symbol) -> int:
            Counted.reads += 1
            return super().__getitem__(key)

    a = found = Expr.symbol(A)
    for k in range(9):
        found = minimum(found * 2 + k, found + a * 3)
    assert found.evaluate(Counted({A: 1})) == 26
    assert Counted.reads < 30
