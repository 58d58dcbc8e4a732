"""What was measured of a row, and the goal of its ratio."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Goal:
    """What a ratio must be at least, or at most: to do, and better still."""

    bar: float
    stretch: float
    at_most: bool = False

    def verdict(self, ratio: float) -> str:
        if self._reaches(ratio, self.stretch):
            return "stretch"
        return "met" if self._reaches(ratio, self.bar) else "**missed**"

    def cells(self, ratio: float) -> str:
        """The bar, the stretch, and how a ratio stands to them, as cells of a table."""
        sign = "≤ " if self.at_most else ""
        return f"{sign}{self.bar:g} | {sign}{self.stretch:g} | {self.verdict(ratio)}"

    def _reaches(self, ratio: float, limit: float) -> bool:
        return ratio <= limit if self.at_most else ratio >= limit


@dataclass(frozen=True)
class Figures:
    """What was measured: ours and the peers', in words, and the ratio that the goal is about.
    `auto`: ours where kernels may be calls of libraries, if some are."""

    ours: str
    peers: Mapping[str, str]
    ratio: float
    notes: tuple[str, ...] = field(default=())
    auto: str = ""


class Missing(Exception):
    """What a row needs is not installed, or not there."""


def milliseconds(value: float) -> str:
    return f"{value:.3g} ms" if value < 1000 else f"{value:.0f} ms"
