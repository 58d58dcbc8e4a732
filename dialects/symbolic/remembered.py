"""Functions that remember their latest results, and attributes that are computed on first access.

The passes and emitters ask for the same sums, products and substitutions again and again: equal
layers have equal sizes, and each position of a tile has the same address but for a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

LATEST = 1 << 11
"""How many results a function remembers. A kernel has fewer different expressions; what a model had
is forgotten in time."""


def remembered(function: F) -> F:
    """The function, which computes a result once for equal arguments. They must be hashable."""
    return cast(F, lru_cache(maxsize=LATEST)(function))


class computed_once(Generic[T]):
    """`functools.cached_property` without the lock, which dominates its cost before Python 3.12."""

    def __init__(self, function: Callable[[Any], T]):
        self.function = function

    def __get__(self, instance: Any, owner: type) -> T:
        value = instance.__dict__[self.function.__name__] = self.function(instance)
        return value
