"""Makes Python's garbage collector run less often while the compiler works.

A module is a large graph of long-lived objects, all of which each collection traverses. With
Python's default thresholds, that took a third of the compile time of large models.

At the end, the objects of the compilation count as old. Otherwise the collector would traverse all
of them at the next allocation, because the default thresholds are low: 5% to 7% of compile time.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

from targets.locks import SafeLock

THRESHOLDS = (100_000, 20, 20)
"""The collector's thresholds for its three generations: about 50 MB of garbage."""

LEAVES = 4
"""Once in so many compilations of a process, what they left behind is collected at the end."""


class _Collector:
    """The process has one collector: the first user changes it, and the last restores it."""

    def __init__(self) -> None:
        self._lock = SafeLock()
        self._inside = 0
        self._left = 0
        self._before = gc.get_threshold()

    def enter(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = gc.get_threshold()
                gc.set_threshold(*(max(p) for p in zip(self._before, THRESHOLDS, strict=True)))
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._left += 1
                if self._left % LEAVES:
                    _age()
                else:
                    gc.collect()
                gc.set_threshold(*self._before)


_COLLECTOR = _Collector()


def _age() -> None:
    """Move all objects to the oldest generation, without traversing them."""
    if not gc.get_freeze_count():  # otherwise `unfreeze` would also move what the program froze
        gc.freeze()
        gc.unfreeze()


@contextmanager
def rare_collections() -> Generator[None]:
    """Let the collector run rarely inside the context."""
    _COLLECTOR.enter()
    try:
        yield
    finally:
        _COLLECTOR.leave()
