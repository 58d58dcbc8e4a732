"""An instrument that keeps what the page shows of the passes: texts of levels, and changes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compiler.instrument import Instrument
from compiler.instrument.changes import Changes, Line, compare, lines_of, shown

if TYPE_CHECKING:
    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step

SHOWN = 8
"""How many functions and kernels that changed are kept, and how many lines of each."""


@dataclass(frozen=True)
class Ran:
    """A pass that ran: its seconds, and what it changed, if that was looked at."""

    name: str
    level: str
    seconds: float
    changes: Changes | None

    @property
    def json(self) -> dict[str, Any]:
        row: dict[str, Any] = {"name": self.name, "level": self.level, "seconds": self.seconds}
        if self.changes is None:
            return row
        found = self.changes
        lines = list(shown(self.name, found, SHOWN))[1:] if found else []
        return {**row, **found.counted, "kinds": found.kinds(), "lines": lines}


@dataclass
class History(Instrument):
    """Keeps the text of each level as it was left, and what each pass changed.

    `texts`: pairs of a title and a text; the first is the model as it was read. `changes`: whether
    to compare the texts before and after each pass, which costs printing the module each time.
    """

    changes: bool = True
    texts: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    passes: list[Ran] = field(default_factory=list[Ran])
    running: str = ""
    """The pass that runs now; empty before the first and after the last."""

    def __post_init__(self) -> None:
        self.state: State | None = None
        self.finished = False
        self._lines: Sequence[Line] = ()

    def start(self, state: State) -> None:
        self.state = state
        self.texts.append((f"{state.level}, as read", state.text))
        self._lines = lines_of(state.text) if self.changes else ()

    def before(self, step: Step, state: State) -> None:
        self.running = step.name
        if step.level != state.level:
            self.texts.append((state.level, state.text))

    def after(self, step: Step, state: State, seconds: float, changed: bool) -> None:
        self.running = ""
        found = None
        if self.changes:
            before, self._lines = self._lines, lines_of(state.text)
            found = compare(before, self._lines)
        self.passes.append(Ran(step.name, state.level, seconds, found))

    def finish(self, state: State) -> None:
        self.texts.append((state.level, state.text))
        self.finished = True

    def keep_last(self) -> None:
        """Keep the text of a module whose compilation failed, if it can still be printed."""
        if self.state is None or self.finished:
            return
        with suppress(Exception):  # a pass may have left anything
            self.texts.append((f"{self.state.level}, when it failed", self.state.text))
