"""What passes and targets say to each other: plain data, which imports no pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dialects.strata.schedule import Schedule
from dialects.symbolic.symbol import Symbol


@dataclass(frozen=True)
class Panel:
    """How to pack an operand: panels of `tile` along `axis`; inside, reduce axes in this order.

    The last of these is cut into groups of `group`, which lie inside the tile.
    """

    axis: Symbol
    tile: int
    inner: tuple[Symbol, ...]
    group: int = 1


@dataclass(frozen=True)
class Border:
    """How to copy an operand, with what is read outside of it: its dims, slowest first."""

    order: tuple[int, ...]


Packing = Panel | Border | None


@dataclass(frozen=True)
class Caches:
    """Where memory is brought to: bytes of a line, and of the cache that a core has alone."""

    line: int
    capacity: int


@dataclass(frozen=True)
class Choice:
    """The fastest schedule, its axes by canonical names; None where the rules' own is.

    `gain`: how many times as fast as the rules' own it was.
    """

    schedule: Schedule | None
    gain: float = 1.0


Choices = Mapping[str, Choice]
"""By key. One mapping is for one target and machine."""
