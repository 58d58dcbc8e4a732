"""Imports that Ctrl-C does not cut short.

Packages of C++ call Python while they are imported. If Python raises KeyboardInterrupt there, some
end the process (`terminate called after throwing an instance of 'nanobind::python_error'`).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Generator[None]:
    """Deliver SIGINT at the end of the context, to whoever handles it. Only the main thread, which
    Python interrupts, changes anything."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    arrived: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: arrived.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if arrived:
            signal.raise_signal(signal.SIGINT)
