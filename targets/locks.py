"""Locks that are safe in signal handlers and across forks.

A plain lock deadlocks its thread when a signal handler or a finalizer asks for it again. It also
deadlocks a child made by `fork` if another thread of the parent held it at that moment.
"""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType


class SafeLock:
    """For short bookkeeping. The thread that holds the lock may take it again, and a forked child
    starts with a free one. What it protects must be consistent between any two statements."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Make the lock free, whoever held it."""
        self._lock = threading.RLock()


class Turns:
    """For work that cannot be nested. Threads take turns at it, and a call that would wait for
    itself is an error. A forked child starts with a free lock."""

    def __init__(self, work: str, error: type[Exception]):
        """`work`: its description, for messages. `error`: the type to raise."""
        self._work, self._error = work, error
        self.renew()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._is_under_way:
            self._lock.release()
            raise self._error(f"{self._work} is under way in this thread: a signal handler or "
                              "finalizer cannot call it again before it ends")
        self._is_under_way = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_under_way = False
        self._lock.release()

    def renew(self) -> None:
        """Make the lock free, whoever held it."""
        self._lock, self._is_under_way = threading.RLock(), False


_LOCKS: weakref.WeakSet[SafeLock | Turns] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_LOCKS):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


class OneProcess:
    """A guard for work that a child made by `fork` cannot continue: only its process may use it."""

    def __init__(self, work: str, error: type[Exception]):
        """`work`: its description, for messages. `error`: the type to raise."""
        self._message = (f"{work} began in another process: a child made by fork cannot "
                         "continue it; start processes with multiprocessing's 'spawn'")
        self._error, self._process = error, os.getpid()

    def check(self) -> None:
        """Raises the error in any other process."""
        if self._process != os.getpid():
            raise self._error(self._message)
