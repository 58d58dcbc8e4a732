"""Shows progress on standard error once an operation takes longer than two seconds.

On a terminal, it shows a progress bar with `n of m` and the remaining time, using rich, which is
only imported when needed. Elsewhere, if requested, it prints one line per phase, and one from time
to time in a phase that counts.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from compiler.diagnostics import visible
from compiler.instrument import Instrument
from compiler.io.printing import show

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step

PATIENCE = 2.0
"""Seconds before anything is shown."""
SILENCE = 10.0
"""The most seconds between the lines of a phase that counts."""
PER_SECOND = 4
"""The number of redraws per second."""
TELLING = 0.05
"""The share of the work that must be done before the remaining time is estimated."""


@dataclass
class Progress(Instrument):
    """Use it in a `with` statement. `enabled`: None means on a terminal only."""

    wants_passes = False

    enabled: bool | None = None
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    phase: str = ""
    done: int = 0
    total: int = 0
    until: float | None = None
    """The expected end of the work, if known."""

    def __enter__(self) -> Self:
        self.on_terminal = self.stream.isatty()
        self.active = self.on_terminal if self.enabled is None else self.enabled
        self.began = self.counting_since = self.shown = time.monotonic()
        self.bar: Bar | None = None
        self.lock = threading.RLock()
        self.timer = threading.Timer(PATIENCE, self._show)
        self.timer.daemon = True
        if self.active:
            self.timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.timer.cancel()
        with self.lock:
            self.active = False
            if self.bar is not None:
                self.bar.stop()

    # ------------------------------------------------------------------ events
    def report(self, phase: str) -> None:
        """A new phase begins."""
        self.phase = phase
        if self.active and time.monotonic() - self.began >= PATIENCE:
            self._show()

    def count(self, done: int, total: int, seconds: float | None = None) -> None:
        """Record progress; a total of 0 ends counting. `seconds`: the remaining time, if known."""
        now = time.monotonic()
        if total != self.total or done < self.done:
            self.counting_since = now
        self.done, self.total = done, total
        self.until = None if seconds is None else now + seconds
        if self.bar is not None:
            self._update(self.bar)
        elif total and self.active and not self.on_terminal and now - self.shown >= SILENCE:
            self._show()

    def before(self, step: Step, state: State) -> None:
        self.report(f"{state.name}: {step.name}")

    def print(self, text: str) -> None:
        """Print on standard output, above the line."""
        with self.lock:
            if self.bar is not None:
                self.bar.stop()
            show(text)
            sys.stdout.flush()
            if self.bar is not None and self.active:
                self.bar.start()

    def left(self) -> str:
        """`about 12 s left`, or an empty string if there is no estimate yet."""
        now = time.monotonic()
        if self.until is not None:
            return _about(self.until - now)
        if not self.total or self.done < max(1, TELLING * self.total):
            return ""
        return _about((now - self.counting_since) * (self.total - self.done) / self.done)

    # ------------------------------------------------------------------ display
    def _show(self) -> None:
        with self.lock:
            if not self.active or not self.phase:
                return
            self.shown = time.monotonic()
            if not self.on_terminal:
                show(f"{self.phase} ({self._facts()})", file=self.stream)
                self.stream.flush()
            elif self.bar is None:
                self.bar = self._new_bar()
                self._update(self.bar)
                self.bar.start()
            else:
                self._update(self.bar)

    def _facts(self) -> str:
        counted = f"{self.done} of {self.total}" if self.total else ""
        taken = f"{time.monotonic() - self.began:.0f} s so far"
        return ", ".join(filter(None, (counted, taken, self.left())))

    def _update(self, bar: Bar) -> None:
        bar.update(bar.task_ids[0], description=visible(self.phase), completed=self.done,
                   total=self.total or None)

    def _new_bar(self) -> Bar:
        from rich.console import Console
        from rich.progress import BarColumn, ProgressColumn, TextColumn
        from rich.progress import Progress as Bar
        from rich.text import Text

        facts = self._facts

        class Facts(ProgressColumn):
            """`12 of 40, 14 s so far, about 20 s left`."""

            def render(self, task: Any) -> Text:
                return Text(facts())

        bar = Bar(TextColumn("{task.description}", markup=False), BarColumn(20), Facts(),
                  console=Console(file=self.stream), transient=True, redirect_stdout=False,
                  redirect_stderr=False, refresh_per_second=PER_SECOND)
        bar.add_task(visible(self.phase), total=None)
        return bar


def _about(seconds: float) -> str:
    """`about 12 s left`, in minutes from 100 seconds on."""
    if seconds < 1:
        return ""
    if seconds < 100:
        return f"about {seconds:.0f} s left"
    return f"about {seconds / 60:.0f} min left"
