"""Computations on the contents of weights that can be written to a file and read back.

A pass that derives an array from weights says how (`weights.py`). If it says so with an object of a
class as here, programs that are kept on disk can compute the array again, from other weights:

    @dataclass(frozen=True)
    class Scaled:
        factor: float

        def __call__(self, array: Array) -> Array:
            return array * self.factor

        def facts(self) -> list[Any]:
            return [self.factor]

        @staticmethod
        def read(facts: Sequence[Any]) -> Scaled:
            return Scaled(float(facts[0]))

The class is found by its name, so nothing lists them. One with `on_carriers = True` rounds on
floats only, and is exact on arrays with another arithmetic (`carriers.py`). Nothing here imports
xDSL, and computations that most models have should not either.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

if TYPE_CHECKING:
    from dialects.strata.types import Array

_HOMES = ("dialects.", "passes.")
"""The packages that may define computations."""


@runtime_checkable
class Computation(Protocol):
    """A callable that is data. Its class also has `read`, the inverse of `facts`."""

    def facts(self) -> Sequence[Any]:
        """All fields in a form that JSON can represent."""
        ...


def computation_facts(compute: Callable[..., Array]) -> Sequence[Any] | None:
    """A computation in a form that JSON can represent; None for one that is not data."""
    home = type(compute).__module__
    if not isinstance(compute, Computation) or not home.startswith(_HOMES):
        return None
    return [home, type(compute).__qualname__, compute.facts()]


def read_computation(facts: Sequence[Any]) -> Callable[..., Array]:
    """The inverse of `computation_facts`. Raises ValueError for what names no computation."""
    home, name, given = facts
    if not str(home).startswith(_HOMES):
        raise ValueError(f"{home} has no computations")
    found: Any = getattr(importlib.import_module(home), str(name), None)
    if not isinstance(found, type) or not issubclass(found, Computation):
        raise ValueError(f"{home}.{name} is no computation")
    return cast(Any, found).read(given)
