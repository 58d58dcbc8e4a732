"""Proofs of inequalities: never wrong on small domains, and found where programs need them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, product
from random import Random

import pytest

from dialects.symbolic.expr import Expr, apply_call, maximum, minimum
from dialects.symbolic.expr_syntax import expr_of
from dialects.symbolic.facts import Facts
from dialects.symbolic.inequalities import Prover, Span
from dialects.symbolic.symbol import Symbol

E = expr_of


def span(first: str, last: str) -> Span:
    return Span(E(first) if first else None, E(last) if last else None)


def prover(ranges: Mapping[str, tuple[str, str]], *facts: str) -> Prover:
    return Prover({Symbol.size(s): span(*ends) for s, ends in ranges.items()}, map(E, facts))


# ---------------------------------------------------------------------- what is found
@pytest.mark.parametrize(("ranges", "facts", "goal"), [
    ({}, [], "n*m + 2*n"),
    ({}, ["n - 1"], "2*n - 1"),
    ({}, ["2*n - 1"], "n - 1"),
    ({}, ["n - m", "m - 4"], "2*n - 8"),
    ({}, ["n - m"], "n*w - m*w"),
    ({}, ["n*w - 1"], "w - 1"),
    ({}, ["n*h + n*w - 3"], "n - 1"),
    ({}, ["min(n, m) - 2"], "m - 2"),
    ({}, ["n - min(m, 1)", "m - 5"], "n - 1"),
    ({}, ["(n + 63) floordiv 64 - 1"], "n - 1"),
    ({"p": ("0", "n - 1")}, [], "n - 1 - p"),
    ({"p": ("0", "n - 1")}, [], "2*n - 2 - 2*p"),
    ({"p": ("0", "n - 1"), "t": ("0", "p")}, [], "n - 1 - t"),
    ({"p": ("0", "n*w - 1")}, [], "n - 1 - p floordiv w"),
    ({"p": ("0", "n*w - 1")}, [], "w - 1 - p mod w"),
    ({"p": ("0", "n - 1"), "q": ("0", "w - 1")}, [], "n*w - 1 - w*p - q"),
    ({"p": ("0", "n*h*w - 1")}, [], "h - 1 - p floordiv w mod h"),
    ({"c": ("0", "(n - 4) floordiv 4"), "t": ("0", "3")}, [], "n - 1 - 4*c - t"),
    ({"c": ("0", "(n - 4) floordiv 4"), "t": ("0", "3")}, [], "n - 4"),
    ({"c": ("0", "(n + 63) floordiv 64 - 1")}, [], "n - 1 - 64*c"),
    ({"c": ("0", "7"), "k": ("0", "min(4, n - 4*c) - 1")}, [], "n - 1 - 4*c - k"),
    ({"c": ("0", "7"), "k": ("0", "min(4, n - 4*c) - 1")}, [], "31 - 4*c - k"),
    ({"d": ("", "")}, ["n - 1"], "n - 1 - max(min(d, n - 1), 0)"),
    ({"d": ("", "")}, [], "max(min(d, n - 1), 0)"),
    ({"d": ("0", "n - 1")}, [], "n - 1 - d"),
    ({"p": ("0", "9")}, [], "p mod 4 + 4*(p floordiv 4)"),
    ({"p": ("0", "n - 1"), "t": ("0", "1")}, ["m - 2*n"], "m - 1 - 2*p - t"),
    ({"p": ("0", "n - 1")}, [], "n - 1 - (n - 1 - p)"),
    ({"p": ("0", "n - 1"), "t": ("0", "15")}, [], "n + 3 - p - 2*(t floordiv 6)"),
    ({"t": ("-7", "15")}, [], "2*(t floordiv 6) + 4"),
])
def test_found(ranges: Mapping[str, tuple[str, str]], facts: list[str], goal: str) -> None:
    assert prover(ranges, *facts).is_nonnegative(E(goal))


@pytest.mark.parametrize(("ranges", "facts", "goal"), [
    ({}, [], "n - 1"),  # a size may be 0
    ({}, [], "n - m"),
    ({}, ["n - m"], "m - n"),
    ({"p": ("0", "n - 1")}, [], "n - 2 - p"),
    ({"p": ("0", "n - 1")}, [], "m - 1 - p"),
    ({"p": ("0", "(n + 63) floordiv 64 - 1"), "t": ("0", "63")}, [], "n - 1 - 64*p - t"),
    ({"d": ("", "")}, [], "n - 1 - max(min(d, n - 1), 0)"),
    ({"d": ("", "")}, ["n - 1"], "n - 1 - d"),
    ({"p": ("0", "4")}, [], "4 - p - w*(p floordiv w)"),
    ({"p": ("0", "n - 1"), "t": ("0", "15")}, [], "n + 2 - p - 2*(t floordiv 6)"),
    ({"t": ("-7", "15")}, [], "2*(t floordiv 6) + 3"),
])
def test_not_certain(ranges: Mapping[str, tuple[str, str]], facts: list[str], goal: str) -> None:
    assert not prover(ranges, *facts).is_nonnegative(E(goal))


# ---------------------------------------------------------------------- what is certain
SIZES = Symbol.size("n"), Symbol.size("m")
MOST = 5
"""Sizes are tried from 0 to this."""

POINTS = 2000
"""At how many points a proven goal is tried, at most."""


class Case:
    """Random ranges, facts and a goal, of the forms that indices have, and others."""

    def __init__(self, random: Random):
        self.random = random
        self.ranges: dict[Symbol, Span] = {}
        for name in map(Symbol.size, ("p", "c", "t")[:random.randint(0, 3)]):
            first = Expr.of(0) if random.random() < 0.7 else self.expr(0)
            self.ranges[name] = Span(first, first + self.expr(1) - 1)
        self.facts = [self.expr(1, list(SIZES)) for _ in range(random.randint(0, 2))]
        self.goal: Expr = self.expr(2)
        if self.ranges and random.random() < 0.5:  # as an index that is to stay below a size
            last = next(iter(self.ranges.values())).last
            assert last is not None
            self.goal = last + self.expr(1) - self.goal

    def expr(self, depth: int, names: list[Symbol] | None = None) -> Expr:
        symbols = names or [*SIZES, *self.ranges]
        total = Expr.of(self.random.randint(-3, 3))
        for _ in range(self.random.randint(1, 2)):
            term = Expr.symbol(self.random.choice(symbols))
            if depth and self.random.random() < 0.5:
                op = self.random.choice(["floordiv", "mod", "min", "max"])
                other = self.expr(depth - 1, names)
                if op in ("floordiv", "mod") and (self.random.random() < 0.7 or not other.terms):
                    other = Expr.of(self.random.randint(1, 4))
                term = apply_call(op, [self.expr(depth - 1, names), other])
            elif self.random.random() < 0.3:
                term = term * Expr.symbol(self.random.choice(symbols))
            total = total + term * self.random.choice([-2, -1, 1, 1, 2])
        return total

    def points(self) -> Iterator[dict[Symbol, int]]:
        """All values of the symbols at which ranges are not empty and facts hold."""
        for values in product(range(MOST + 1), repeat=len(SIZES)):
            sizes = dict(zip(SIZES, values, strict=True))
            try:
                known = all(f.evaluate(sizes) >= 0 for f in self.facts)
                inside = list(self._inside(list(self.ranges), sizes)) if known else []
            except ZeroDivisionError:
                continue
            if inside and None not in inside:
                yield from (p for p in inside if p is not None)

    def _inside(
        self, names: list[Symbol], values: dict[Symbol, int]
    ) -> Iterator[dict[Symbol, int] | None]:
        """The points of all ranges; None stands for one that is empty."""
        if not names:
            yield values
            return
        ends = self.ranges[names[0]]
        assert ends.first is not None and ends.last is not None
        first, last = int(ends.first.evaluate(values)), int(ends.last.evaluate(values))
        if first > last:
            yield None
            return
        for value in range(first, last + 1):
            yield from self._inside(names[1:], {**values, names[0]: value})

    def counterexample(self) -> dict[Symbol, int] | None:
        for point in islice(self.points(), POINTS):
            try:
                if self.goal.evaluate(point) < 0:
                    return point
            except ZeroDivisionError:
                continue
        return None


def check_random(seeds: range) -> int:
    """Check proofs of random goals; how many there were."""
    proven = 0
    for seed in seeds:
        case = Case(Random(seed))
        if Prover(case.ranges, case.facts).is_nonnegative(case.goal):
            proven += 1
            wrong = case.counterexample()
            assert wrong is None, (
                f"seed {seed}: {case.goal} >= 0 with {case.ranges}, {case.facts} at {wrong}")
    return proven


def test_proofs_hold_on_small_domains() -> None:
    assert check_random(range(600)) > 100


def test_facts_of_many_calls_are_not_taken_apart() -> None:
    """One fact with 40 maxima would be 2**40 facts without them."""
    sizes = [E(f"n{k}") for k in range(40)]
    total = sum((maximum(size, 1) + maximum(size - 4, 0) for size in sizes), E("0"))
    facts = Facts([E("1000") - total, *(size - 2 for size in sizes[:20])])
    assert len(facts.known) < 100
    assert facts.imply(E("1000") - total) and facts.imply(sizes[3] - 1)
    assert not facts.imply(sizes[30] - 1)


# ---------------------------------------------------------------------- what is refuted
def random_facts(random: Random) -> tuple[list[Expr], list[Expr]]:
    """Facts, among them bounds and equalities as models state them, and goals."""
    sizes = [Expr.symbol(Symbol.size(name)) for name in "nmw"]

    def some() -> Expr:
        a, b = random.choice(sizes), random.choice(sizes)
        kind = random.randrange(4)
        return (a, a + b, a * random.randint(1, 4), (a + random.randint(0, 9)) // 4)[kind]

    facts = [some() - random.randint(0, 200) for _ in range(2)]
    if random.random() < 0.5:
        difference = some() - some()
        facts += [difference, -difference]
    return facts, [some() * random.randint(-2, 3) - some() + random.randint(-9, 9)
                   for _ in range(6)]


def test_what_is_refuted_has_no_proof() -> None:
    """With and without the points at which goals are evaluated, the answers are the same."""
    random, refuted, proven = Random(5), 0, 0
    for _ in range(300):
        given, goals = random_facts(random)
        facts, searching = Facts(given), Facts(given)
        searching._points = []
        for goal in goals:
            assert facts.imply(goal) == searching.imply(goal), (given, goal)
            refuted += facts._refute(goal)
            proven += facts.imply(goal)
    assert refuted > 300
    assert proven > 100


def test_goals_with_very_many_terms_are_given_up_soon() -> None:
    """A product of minima has a term for each combination; none of its parts is shorter."""
    goal = Expr.of(-1)
    for k in range(9):
        goal = goal * (minimum(Expr.size(f"a{k}"), Expr.size(f"b{k}")) - 1)
    found = Prover({})
    assert not found.is_nonnegative(goal)
    assert len(found._found) < 10
    assert Prover({}).is_nonnegative(goal + 3 - goal)
