"""What tuning a model did, kernel by kernel, and what it gained."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from compiler.tuning.files import OFF

if TYPE_CHECKING:
    from compiler.api import Executable
    from compiler.contest import Run
    from compiler.frontend import MemoryModel
    from compiler.options import CompileOptions
    from dialects.types import Array
    from targets.base import Target

SHOWN = 30
"""Rows of a report where there are many."""
CONTEST_SECONDS = 10.0
"""About how long the whole model is timed."""
TURNS = 15
"""How often, where the target times it."""


@dataclass
class Row:
    """A kernel in the report. `seconds`: of a call with the rules' schedule. `schedule`: the
    winner's, empty where the rules' own is best. `note`: why nothing was searched."""

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
    """What tuning a model did. `faults`: candidates that could not be compiled, or were wrong."""

    database: str
    rows: list[Row]
    faults: list[str]
    notes: list[str]
    seconds: float

    @property
    def before(self) -> float:
        """Seconds of all kernels with the rules' schedules."""
        return sum(row.total for row in self.rows)

    @property
    def after(self) -> float:
        return sum(row.total / row.gain for row in self.rows)

    @property
    def gain(self) -> float:
        """How many times as fast all kernels together are."""
        return self.before / self.after if self.after else 1.0

    def lines(self) -> list[str]:
        """A row per kernel that counts, what is to be noted, and the sum."""
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
        return lines


def _line(row: Row) -> str:
    note = row.note or f"{row.tried} others tried"
    what = f"{row.schedule}  ({note})" if row.schedule else f"the rules' schedule ({note})"
    return f"{1e3 * row.total:10.3f} ms x{row.launches:<3} {row.gain:6.2f}x  {row.name}  {what}"


def whole_model(
    model: str | MemoryModel, options: CompileOptions, database: str, sizes: Mapping[str, int]
) -> str:
    """The model's own time with the rules' schedules and with the tuned ones, as a line."""
    from compiler.api import compile_with
    from compiler.contest import rounds_within, take_turns
    from compiler.plugins import load_plugins
    from dialects.syntax import size_symbol

    plain = replace(options, threads=1, cache="off", specialize=None, dump_dir=None)
    ways = [compile_with(model, replace(plain, tuned=tuned)) for tuned in (OFF, database)]
    target = load_plugins(options.plugins).find_target(options.target)
    known = {size_symbol(name): size for name, size in sizes.items()}
    inputs = list(ways[0].signature.random(0, known).values())
    runs: dict[str, Run] = {
        name: lambda exe=exe: exe.run(inputs)
        for name, exe in zip(("rules", "tuned"), ways, strict=True)}
    if target.measures_apart():
        return _apart(target, ways, inputs, plain)
    try:
        times = take_turns(runs, rounds_within(runs, CONTEST_SECONDS), 1)
    except ValueError as error:
        return f"the whole model was not timed: {error}"
    rules, tuned = times["rules"].cpu_ms, times["tuned"].cpu_ms
    return (f"whole model, one thread: {rules:.3f} ms by the rules, {tuned:.3f} ms tuned "
            f"({rules / tuned:.3f}x)")


def _apart(
    target: Target, ways: Sequence[Executable], inputs: Sequence[Array], options: CompileOptions
) -> str:
    """The same by the target's own timer, turn by turn."""
    from targets.interface import TargetError

    settled = target.settled(options.target_options())
    for way in ways:
        way.run(inputs)
    try:
        timers = [target.timer(way.loaded, inputs, 0, settled) for way in ways]
    except TargetError as error:
        return f"the whole model was not timed: {error}"
    turns = [[timer(1) for timer in timers] for _ in range(TURNS)]
    rules, tuned = (1e3 * statistics.median(times) for times in zip(*turns, strict=True))
    return (f"whole model: {rules:.4f} ms by the rules, {tuned:.4f} ms tuned "
            f"({rules / tuned:.3f}x)")
