"""Tells on standard error what is being done, once that takes longer than two seconds.

On a terminal one line is rewritten; elsewhere, if asked for, every phase gets a line of its own.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from compiler.instrument import Instrument

if TYPE_CHECKING:
    from compiler.driver import State
    from compiler.pipeline import Step

PATIENCE = 2.0
"""Seconds of silence."""
PERIOD = 0.25
CLEAR = "\r\x1b[K"


@dataclass
class Progress(Instrument):
    """Use it in a `with` statement. `enabled`: None means on a terminal only."""

    wants_passes = False

    enabled: bool | None = None
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    phase: str = ""
    since: float = 0.0
    shown: bool = False
    drawn: bool = False

    def __enter__(self) -> Self:
        self.on_terminal = self.stream.isatty()
        self.active = self.on_terminal if self.enabled is None else self.enabled
        self.began, self.done = time.monotonic(), threading.Event()
        if self.active:
            self.thread = threading.Thread(target=self._watch, daemon=True)
            self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.active:
            self.done.set()
            self.thread.join()
            self._clear()

    def tell(self, phase: str) -> None:
        """A new phase begins."""
        self.phase, self.since, self.shown = phase, time.monotonic(), False

    def before(self, step: Step, state: State) -> None:
        self.tell(f"{state.name}: {step.name}")

    def _watch(self) -> None:
        while not self.done.wait(PERIOD):
            if self.phase and time.monotonic() - self.began >= PATIENCE:
                self._show()

    def _show(self) -> None:
        if self.on_terminal:
            taken = time.monotonic() - self.since
            self.stream.write(f"{CLEAR}{self.phase} ({taken:.0f} s)")
            self.drawn = True
        elif not self.shown:
            self.stream.write(f"{self.phase} ({time.monotonic() - self.began:.0f} s so far)\n")
            self.shown = True
        self.stream.flush()

    def _clear(self) -> None:
        if self.drawn:
            self.stream.write(CLEAR)
            self.stream.flush()
