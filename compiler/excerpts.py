"""Places in a text, shown as line and column, and as the line itself with a caret.

    where: in model.mlir, line 2, column 8
      2 |   %y = graph.exp %x : f32[m]
        |        ^^^^^^^^^
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from compiler.diagnostics import Problem

WIDTH = 96
"""The number of characters shown of a line; lines with weights are long."""
CUT = "..."


class Place(NamedTuple):
    """Characters of a text, from `start` to before `end`."""

    text: str
    start: int
    end: int

    @property
    def line(self) -> int:
        """The line number, from 1."""
        return self.text.count("\n", 0, self.start) + 1

    @property
    def column(self) -> int:
        """From 1 on."""
        return self.start - self._line_start + 1

    @property
    def _line_start(self) -> int:
        return self.text.rfind("\n", 0, self.start) + 1

    def excerpt(self) -> str:
        """The line, and a second line with a caret below the place."""
        end = self.text.find("\n", self._line_start)
        line = self.text[self._line_start:end if end >= 0 else len(self.text)]
        at = self.start - self._line_start
        length = max(1, min(self.end - self.start, len(line) - at))
        first = max(0, at - WIDTH // 2) if len(line) > WIDTH else 0
        shown = line[first:first + WIDTH]
        head, tail = CUT * (first > 0), CUT * (first + WIDTH < len(line))
        before = "".join("\t" if c == "\t" else " " for c in line[first:at])
        number = str(self.line)
        caret = "^" * min(length, max(1, WIDTH - (at - first)))
        return (f"{number} | {head}{shown}{tail}\n"
                f"{' ' * len(number)} | {' ' * len(head)}{before}{caret}")


def problem_at(place: Place, what: str, file: Path, hint: str = "") -> Problem:
    """A problem at a place of a file."""
    where = f"{file}, line {place.line}, column {place.column}"
    return Problem(what, file=where, hint=hint, excerpt=place.excerpt())
