"""Interval arithmetic: bounds of an expression whose symbols have constant bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from dialects.symbolic.expr import Atom, Call, Expr
from dialects.symbolic.symbol import Symbol

Interval: TypeAlias = tuple[int, int]
"""The smallest and the largest value."""


def interval_of(expr: Expr, known: Mapping[Symbol, Interval]) -> Interval | None:
    """An interval that certainly contains an expression; None if no bounds are known.

    Occurrences of a symbol are treated as independent: `i - i` inside a quotient is not recognized
    as 0.
    """
    low = high = 0
    for monomial, factor in expr.terms:
        least = most = factor
        for atom in monomial:
            found = _of_atom(atom, known)
            if found is None:
                return None
            ends = least * found[0], least * found[1], most * found[0], most * found[1]
            least, most = min(ends), max(ends)
        low, high = low + least, high + most
    return low, high


def _of_atom(atom: Atom, known: Mapping[Symbol, Interval]) -> Interval | None:
    if not isinstance(atom, Call):
        return known.get(atom)
    left, right = (interval_of(a, known) for a in atom.args)
    if left is None or right is None:
        return None
    if atom.op in ("min", "max"):
        choose = min if atom.op == "min" else max
        return choose(left[0], right[0]), choose(left[1], right[1])
    if right[0] < 1:
        return None
    if atom.op == "floordiv":
        ends = [end // divisor for end in left for divisor in right]
        return min(ends), max(ends)
    if right[0] == right[1] and left[0] // right[0] == left[1] // right[0]:
        return left[0] % right[0], left[1] % right[0]
    return 0, right[1] - 1
