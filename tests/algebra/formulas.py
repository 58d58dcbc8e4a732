"""Expressions as formulas of Z3. Divisors must be positive there: for those, Z3 rounds as we do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import z3

from dialects.symbolic.expr import Atom, Call, Expr
from tests.algebra.trees import Tree


def of_expr(expr: Expr, symbols: Mapping[Any, z3.ArithRef]) -> Any:
    total: Any = z3.IntVal(0)
    for monomial, factor in expr.terms:
        product: Any = z3.IntVal(factor)
        for atom in monomial:
            product = product * _of_atom(atom, symbols)
        total = total + product
    return total


def _of_atom(atom: Atom, symbols: Mapping[Any, z3.ArithRef]) -> Any:
    if not isinstance(atom, Call):
        return symbols[atom]
    left, right = (of_expr(a, symbols) for a in atom.args)
    return _applied(atom.op, left, right)


def _applied(op: str, left: Any, right: Any) -> Any:
    if op in ("//", "floordiv"):
        return left / right
    if op in ("%", "mod"):
        return left % right
    above = left >= right
    return z3.If(above, left, right) if op == "max" else z3.If(above, right, left)


def of_tree(tree: Tree, symbols: Mapping[str, z3.ArithRef]) -> Any:
    if isinstance(tree, int):
        return z3.IntVal(tree)
    if isinstance(tree, str):
        return symbols[tree]
    op, *parts = tree
    left, right = (of_tree(p, symbols) for p in parts)
    if op in ("+", "-", "*"):
        return {"+": left + right, "-": left - right, "*": left * right}[op]
    return _applied(op, left, right)


def refuted(claim: Any, *given: Any, limit: int = 2000) -> z3.ModelRef | None:
    """Values for which the claim does not hold, though what is given does; None if Z3 has none.

    Where it finds no answer within `limit` milliseconds it has none, too.
    """
    solver = z3.Solver()
    solver.set("timeout", limit)
    solver.add(*given, z3.Not(claim))
    return solver.model() if solver.check() == z3.sat else None
