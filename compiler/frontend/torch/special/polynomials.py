"""Polynomials in a value."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.frontend.values import Value


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial of these coefficients, the highest power first, by Horner's rule."""
    found = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        found = found * x + coefficient
    return found
