"""Attributes that are computed when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class computed_once(Generic[T]):
    """As `functools.cached_property`, which takes a lock until Python 3.12: most of its time."""

    def __init__(self, function: Callable[[Any], T]):
        self.function = function

    def __get__(self, instance: Any, owner: type) -> T:
        value = instance.__dict__[self.function.__name__] = self.function(instance)
        return value
