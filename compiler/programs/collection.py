"""Makes Python's garbage collector run less often while the compiler works.

A module is a large graph of long-lived objects, all of which each collection traverses. With
Python's default thresholds, that took a third of the compile time of large models.

At the end, the objects of the compilation count as old. Otherwise the collector would traverse all
of them at the next allocation, because the default thresholds are low: 5% to 7% of compile time.
Those made before each of its phases do so from then on: most are imported modules and the model.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Generator
from contextlib import contextmanager

from targets.locks import SafeLock

FIRST = 300_000
"""So many objects are made before the first collection inside each context. Most phases of a
compilation make fewer, of which one in twenty is garbage by then. To visit them took 4% to 5% of
the time of a first compilation.
"""

THRESHOLDS = (50_000, 20, 20)
"""The collector's thresholds for its three generations, after the first collection. The first one
visits only what is new since the last collection, of which most is in use: a tenth of a second of
ten.

Rarer collections leave more garbage between objects that stay, and Python returns an area of 1 MiB
only once nothing in it is in use: with a million objects, a process kept 75 MiB of such areas after
the two graphs of a recurrent network of 32 steps.
"""

LEAVES, MOST_LEAVES = 4, 128
"""Once in so many compilations of a process, what they left behind is collected at the end: at
least once in `LEAVES` where that is cheap, and once in `MOST_LEAVES` in any case.
"""
PAUSE = 50
"""A collection visits all objects of the program, not only the compiler's. After one, so many times
its duration must pass before the next, so that a program of many objects is not slowed down.
"""
SECONDS_PER_OBJECT = 1e-6
"""What a collection is taken to last before the first one has been timed: it visits each object."""


class _Collector:
    """The process has one collector: the first user changes it, and the last restores it."""

    def __init__(self) -> None:
        self._lock = SafeLock()
        self._inside = self._sparing = 0
        self._left = 0
        self._last = time.perf_counter()
        self._seconds: float | None = None
        self._before = gc.get_threshold()
        self._frozen = False

    def enter(self, keeps_little: bool = False) -> None:
        with self._lock:
            if not self._inside:
                self._before = gc.get_threshold()
                gc.callbacks.append(self._collected)
            self._sparing += keeps_little
            if not self._sparing:
                self._age()
            self._allow(THRESHOLDS[0] if self._sparing else FIRST)
            self._inside += 1

    def leave(self, keeps_little: bool = False) -> None:
        with self._lock:
            self._inside -= 1
            self._sparing -= keeps_little
            if not self._inside:
                self._left += 1
                if self._is_due():
                    self._collect()
                else:
                    if keeps_little:
                        gc.collect(1)
                    self._age()
                gc.callbacks.remove(self._collected)
                gc.set_threshold(*self._before)

    def _allow(self, objects: int) -> None:
        """Let so many new objects, or more if the program does, wait for a collection."""
        if self._before[0]:  # at 0, the program has turned collections off
            gc.set_threshold(*map(max, self._before, (objects, *THRESHOLDS[1:])))

    def _collected(self, phase: str, _: object) -> None:
        """The collector calls this before and after each collection inside the context."""
        if phase == "stop":
            self._allow(THRESHOLDS[0])

    def _age(self) -> None:
        """Move all objects to the oldest generation, without traversing them; not in a program that
        has frozen some, which `unfreeze` would move, too. To count these takes milliseconds.
        """
        self._frozen = self._frozen or gc.get_freeze_count() > 0
        if not self._frozen:
            gc.freeze()
            gc.unfreeze()

    def _is_due(self) -> bool:
        if self._left < LEAVES:
            return False
        if self._seconds is None:
            self._seconds = self._estimate()
        rested = time.perf_counter() - self._last >= PAUSE * self._seconds
        return rested or self._left >= MOST_LEAVES

    def _estimate(self) -> float:
        """How many seconds the first collection will take: a process that has just imported
        its libraries has many objects, and compiles its first models while users wait.
        """
        return len(gc.get_objects()) * SECONDS_PER_OBJECT

    def _collect(self) -> None:
        started = time.perf_counter()
        gc.collect()
        self._left, self._last = 0, time.perf_counter()
        self._seconds = self._last - started


_COLLECTOR = _Collector()


@contextmanager
def rare_collections(keeps_little: bool = False) -> Generator[None]:
    """Let the collector run rarely inside the context.

    `keeps_little`: so often that the process keeps less memory afterwards, in this context and in
    those inside. It takes some hundredths more time, and is for processes that need their memory
    for long, as training does.
    """
    _COLLECTOR.enter(keeps_little)
    try:
        yield
    finally:
        _COLLECTOR.leave(keeps_little)
