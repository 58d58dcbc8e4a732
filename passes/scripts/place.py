"""The name of a level in a script: its axis, such as `i0`.

If the axis has several levels, they are `i0.0`, `i0.1` ... from the outermost one.
"""

from __future__ import annotations

import json
import re

from dialects.records import dataclass
from dialects.strata.schedule import Level, Schedule
from dialects.strata.types import format_symbols
from dialects.symbolic.symbol import Symbol, quoted

PLACE = r'(?:"(?:[^"\\]|\\.)*"|[^\W\d]\w*)(?:\.\d+)?'
"""How a place is written. An axis whose name is no identifier is quoted."""


class StepError(Exception):
    """A step cannot be applied; the message says why."""


@dataclass(frozen=True)
class Place:
    """The name of a level. `number`: counts the axis's levels from the outermost one; None if the
    axis has only one."""

    axis: Symbol
    number: int | None = None

    def __str__(self) -> str:
        name = self.axis.name
        plain = re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is not None
        return (name if plain else quoted(name)) + (
            "" if self.number is None else f".{self.number}")

    def index(self, schedule: Schedule) -> int:
        """The level's index among all levels. Raises StepError."""
        found = [k for k, x in enumerate(schedule.levels) if x.axis == self.axis]
        if not found:
            there = format_symbols(dict.fromkeys(x.axis for x in schedule.levels))
            raise StepError(f"there is no axis {self.axis}; there are: {there}")
        if self.number is None and len(found) > 1:
            levels = ", ".join(str(Place(self.axis, k)) for k in range(len(found)))
            raise StepError(f"axis {self.axis} has {len(found)} levels: write one of {levels}")
        if (self.number or 0) >= len(found):
            last = Place(self.axis, len(found) - 1)
            raise StepError(f"there is no level {self}; the innermost level of axis {self.axis} is "
                            f"{last}")
        return found[self.number or 0]

    def level(self, schedule: Schedule) -> Level:
        """Raises StepError."""
        return schedule.levels[self.index(schedule)]


def parse_place(text: str) -> Place:
    """The place in a text that `PLACE` matches."""
    match = re.fullmatch(r'("(?:[^"\\]|\\.)*"|[^\W\d]\w*)(?:\.(\d+))?', text)
    assert match is not None, "PLACE matches it"
    name = str(json.loads(match[1])) if match[1][0] == '"' else match[1]
    return Place(Symbol.axis(name), None if match[2] is None else int(match[2]))
