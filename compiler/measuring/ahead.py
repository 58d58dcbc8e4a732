"""Compiles code of programs while further programs are lowered.

No program waits for the code of another one, except for code that they share, which is compiled
once: one slow kernel keeps no processor idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from targets.parts import Building


AT_ONCE = 8
"""The programs whose code is compiled at a time."""


class Ahead:
    """Threads that compile. `building`: that of any program, as their options are alike."""

    def __init__(self, building: Building) -> None:
        self.building = building
        self._threads = ThreadPoolExecutor(AT_ONCE)
        self._begun: dict[str, Future[None]] = {}

    def begin(self, jobs: Mapping[str, Any]) -> set[Future[None]]:
        """Compile jobs soon, of which equal ones have one name. All results are there once the jobs
        are compiled, or have failed to be."""
        new = {name: job for name, job in jobs.items() if name not in self._begun}
        if new:
            self._begun |= dict.fromkeys(new, self._threads.submit(
                self.building.compile_ahead, [*new.values()]))
        return {self._begun[name] for name in jobs}
