"""Products of sizes, such as the number of elements of a shape."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from dialects.symbolic.expr import Expr, Size

_FEW_TERMS = 4


def product(sizes: Iterable[Size]) -> Expr:
    """The product of all sizes (1 for none): the number of elements of a shape."""
    total: Expr | None = None
    for size in sizes:
        total = Expr.of(size) if total is None else total * size
    return Expr.of(1) if total is None else total


def short_product(sizes: Iterable[Size]) -> Expr | None:
    """The product of all sizes; None if its expansion has more than a few terms.

    The expanded product of four sums of five terms has 625 terms. Generated code then multiplies
    the values of the sums instead.
    """
    factors = [Expr.of(size) for size in sizes]
    few = prod(len(factor.terms) for factor in factors) <= _FEW_TERMS
    return product(factors) if few else None
