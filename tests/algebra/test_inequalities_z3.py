"""Proofs of inequalities against Z3, over all integers and not only small ones."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from dialects.symbolic.expr import Call, Expr
from dialects.symbolic.inequalities import Prover
from dialects.symbolic.symbol import Symbol
from tests.algebra.test_inequalities import Case

z3: Any = pytest.importorskip("z3")


def term(expr: Expr, names: dict[Symbol, Any], sides: list[Any]) -> Any:
    """An expression as Z3 has it; `sides` are what quotients and remainders are said to be."""
    total: Any = z3.IntVal(0)
    for monomial, factor in expr.terms:
        product: Any = z3.IntVal(factor)
        for atom in monomial:
            product = product * (call(atom, names, sides) if isinstance(atom, Call)
                                 else names[atom])
        total = total + product
    return total


def call(atom: Call, names: dict[Symbol, Any], sides: list[Any]) -> Any:
    left, right = (term(a, names, sides) for a in atom.args)
    if atom.op in ("min", "max"):
        return z3.If((left <= right) == (atom.op == "min"), left, right)
    quotient, rest = z3.Ints(f"q{len(sides)} r{len(sides)}")
    sides += [right != 0, left == right * quotient + rest,
              z3.If(right > 0, z3.And(rest >= 0, rest < right), z3.And(rest <= 0, rest > right))]
    return quotient if atom.op == "floordiv" else rest


def counterexample(case: Case) -> Any:
    """Values at which a goal does not hold; None if there are none, or Z3 finds none in time."""
    symbols = {s for e in (case.goal, *case.facts) for s in e.symbols}
    symbols |= {s for span in case.ranges.values() for e in span if e for s in e.symbols}
    names = {s: z3.Int(s.name) for s in symbols | case.ranges.keys()}
    solver, sides = z3.Solver(), list[Any]()
    solver.set("timeout", 300)
    for symbol, name in names.items():
        span = case.ranges.get(symbol)
        if span is None:
            solver.add(name >= 0)
        else:
            assert span.first is not None and span.last is not None
            solver.add(term(span.first, names, sides) <= name,
                       name <= term(span.last, names, sides))
    solver.add(*[term(f, names, sides) >= 0 for f in case.facts])
    solver.add(term(case.goal, names, sides) < 0)
    solver.add(*sides)
    return solver.model() if solver.check() == z3.sat else None


@pytest.mark.parametrize("seeds", [
    range(10_000, 10_150), pytest.param(range(20_000, 23_000), marks=pytest.mark.slow)],
    ids=["few", "many"])
def test_proofs_hold_for_all_integers(seeds: range) -> None:
    proven = 0
    for seed in seeds:
        case = Case(Random(seed))
        if Prover(case.ranges, case.facts).is_nonnegative(case.goal):
            proven += 1
            wrong = counterexample(case)
            assert wrong is None, f"seed {seed}: {case.goal} with {case.ranges} at {wrong}"
    assert proven > 20
