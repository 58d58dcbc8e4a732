"""What passes and targets tell each other: plain data. Imports no pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dialects.strata.schedule import Schedule
from dialects.symbolic.symbol import Symbol


@dataclass(frozen=True)
class Panel:
    """How to pack an operand: panels of `tile` along `axis`, with reduce axes inside in this order.

    The last of these axes is cut into groups of `group` elements, which are innermost.
    """

    axis: Symbol
    tile: int
    inner: tuple[Symbol, ...]
    group: int = 1


@dataclass(frozen=True)
class Border:
    """How to copy an operand including its padding: the order of its dims, slowest first."""

    order: tuple[int, ...]


Packing = Panel | Border | None


@dataclass(frozen=True)
class Caches:
    """The caches for prefetching: bytes of a line, and bytes of a core's private cache."""

    line: int
    capacity: int


@dataclass(frozen=True)
class Choice:
    """The fastest schedule, with canonical axis names; None if it is the rules' own schedule.

    `gain` is its speed relative to the rules' own schedule.
    """

    schedule: Schedule | None
    gain: float = 1.0


Choices = Mapping[str, Choice]
"""Choices by key. A mapping belongs to one target and machine."""
