"""The report of a tuning run: results per kernel and the total gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SHOWN = 30
"""The maximum number of rows in a report."""


@dataclass
class Row:
    """A kernel in the report. `seconds`: the time of a call with the rules' schedule.

    `schedule`: the winner's, or empty if the rules' choice is the best. `note`: why there was no
    search.
    """

    name: str
    launches: int
    seconds: float = 0.0
    gain: float = 1.0
    schedule: str = ""
    note: str = ""
    tried: int = 0

    @property
    def total(self) -> float:
        return self.seconds * self.launches


@dataclass
class Report:
    """The result of tuning. `faults`: candidates that could not be compiled, or were wrong."""

    database: str
    rows: list[Row]
    faults: list[str]
    notes: list[str]
    seconds: float
    whole: Sequence[str] = ()
    """One line per model with the time of the whole model."""
    script: str = ""
    """The best schedules, as a script for `--schedule`."""

    @property
    def before(self) -> float:
        """The seconds of all kernels with the rules' schedules."""
        return sum(row.total for row in self.rows)

    @property
    def after(self) -> float:
        return sum(row.total / row.gain for row in self.rows)

    @property
    def gain(self) -> float:
        """The speedup of all kernels together."""
        return self.before / self.after if self.after else 1.0

    def lines(self) -> list[str]:
        """A row per relevant kernel, notes, and the total."""
        lines = [_line(row) for row in self.rows[:SHOWN]]
        if len(self.rows) > SHOWN:
            lines.append(f"... and {len(self.rows) - SHOWN} that take less")
        won = sum(1 for row in self.rows if row.schedule)
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"failed: {fault}" for fault in self.faults]
        lines.append(f"{won} of {len(self.rows)} kernels have tuned schedules, kept in "
                     f"{self.database}; it took {self.seconds:.0f} s")
        lines.append(f"all kernels: {1e3 * self.before:.3f} ms by the rules, "
                     f"{1e3 * self.after:.3f} ms tuned ({self.gain:.3f}x)")
        return [*lines, *self.whole]


def _line(row: Row) -> str:
    note = row.note or f"{row.tried} others tried"
    what = f"{row.schedule}  ({note})" if row.schedule else f"the rules' schedule ({note})"
    return f"{1e3 * row.total:10.3f} ms x{row.launches:<3} {row.gain:6.2f}x  {row.name}  {what}"
