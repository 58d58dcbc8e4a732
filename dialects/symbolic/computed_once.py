"""Attributes that are computed on first access."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class computed_once(Generic[T]):
    """`functools.cached_property` without the lock, which dominates its cost before Python 3.12."""

    def __init__(self, function: Callable[[Any], T]):
        self.function = function

    def __get__(self, instance: Any, owner: type) -> T:
        value = instance.__dict__[self.function.__name__] = self.function(instance)
        return value
