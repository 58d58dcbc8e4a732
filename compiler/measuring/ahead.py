"""Compiles code of programs in a thread while further programs are lowered.

What is begun while the thread is busy is compiled together when it has finished: the slowest
kernels of several programs then share the processors.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from targets.parts import Building


class Ahead:
    """One thread that compiles. `building`: that of any program, as their options are alike."""

    def __init__(self, building: Building) -> None:
        self.building = building
        self._thread = ThreadPoolExecutor(1)
        self._waiting: SimpleQueue[Any] = SimpleQueue()

    def begin(self, jobs: Sequence[Any]) -> Future[None]:
        """Compile jobs soon. The result is there once they are compiled, or have failed to be."""
        for job in jobs:
            self._waiting.put(job)
        return self._thread.submit(self._compile)

    def _compile(self) -> None:
        """Compile all that waits. For jobs that an earlier call took, nothing is left to do."""
        if jobs := self._taken():
            self.building.compile_ahead(jobs)

    def _taken(self) -> list[Any]:
        found: list[Any] = []
        while True:
            try:
                found.append(self._waiting.get_nowait())
            except Empty:
                return found
