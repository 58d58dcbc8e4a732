"""A process that answers questions about models, is ended if it takes too long, and may die.

Questions and answers are lines of JSON. The next question after the end of a process starts a new
one.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LOOK = 0.25
"""Seconds between two looks at what a process does."""
START = 60.0
"""The additional seconds that a new process may take."""


class Gone(Exception):
    """The process did not answer: `kind` is crash or timeout."""

    def __init__(self, kind: str, text: str):
        super().__init__(text)
        self.kind = kind


@dataclass
class Process:
    """`module` runs with `words` and `--phases FILE`. `limit`: seconds for an answer; `by_phase`:
    for each phase that it tells on the way. `on_phase` is called with each phase that is seen.
    """

    module: str
    words: Sequence[str]
    phases: Path
    limit: float
    by_phase: bool = False
    on_phase: Callable[[str], None] | None = field(default=None, repr=False)
    running: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def phase(self) -> str:
        """The last phase that the process told."""
        return self.phases.read_text(encoding="utf-8") if self.phases.exists() else "the start"

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a question. Raises Gone."""
        fresh = self.running is None
        process = self.running = self.running or self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
        except OSError:
            raise self._gone(process) from None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            self._wait(selector, self.limit + (START if fresh else 0))
        line = process.stdout.readline()
        if not line:
            raise self._gone(process)
        return json.loads(line)

    def _wait(self, selector: selectors.BaseSelector, seconds: float) -> None:
        """Wait for an answer. Raises Gone."""
        seen, until = self._last_told(), time.monotonic() + seconds
        while not selector.select(LOOK):
            if (told := self._last_told()) != seen:
                seen = told
                if self.on_phase is not None:
                    self.on_phase(self.phase)
                if self.by_phase:
                    until = time.monotonic() + self.limit
            if time.monotonic() > until:
                self.end()
                raise Gone("timeout", f"no answer within {self.limit:g} s")

    def _last_told(self) -> int:
        return self.phases.stat().st_mtime_ns if self.phases.exists() else 0

    def _gone(self, process: subprocess.Popen[str]) -> Gone:
        status = process.wait()
        self.end()
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return Gone("crash", f"the process ended with {how}")

    def _start(self) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", self.module, *self.words, "--phases", str(self.phases)]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True, encoding="utf-8")

    def end(self) -> None:
        """End the process, if there is one."""
        if self.running is not None:
            self.running.kill()
            self.running.communicate()
            self.running = None
