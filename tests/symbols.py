"""Values of symbols, named as their text is: `values_of(batch=2)`, `by_symbol({"i0": 3})`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from dialects.symbolic.expr_syntax import symbol_of
from dialects.symbolic.symbol import Symbol

T = TypeVar("T")


def by_symbol(values: Mapping[str, T]) -> dict[Symbol, T]:
    """The same values by the symbols whose texts the keys are."""
    return {symbol_of(text): value for text, value in values.items()}


def values_of(**values: int) -> dict[Symbol, int]:
    """Values of sizes whose names are plain words."""
    return by_symbol(values)
