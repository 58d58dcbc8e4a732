"""Python's garbage collector while the compiler works: it looks for garbage less often.

A module is a large graph of objects that live long, and each look walks all of it. With Python's
own settings that took a third of the time of large models.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

from targets.locks import SafeLock

THRESHOLDS = (100_000, 20, 20)
"""New objects between looks, and looks between looks at older objects: some 50 MB of garbage."""


class _Collector:
    """The process has one collector: the first who is inside sets it, the last sets it back."""

    def __init__(self) -> None:
        self._lock = SafeLock()
        self._inside = 0
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
                gc.set_threshold(*self._before)


_COLLECTOR = _Collector()


@contextmanager
def rare_collections() -> Generator[None]:
    """Let the collector run rarely inside. At the end of the outermost it has much to look at."""
    _COLLECTOR.enter()
    try:
        yield
    finally:
        _COLLECTOR.leave()
