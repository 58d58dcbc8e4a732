"""Child processes of tests: each has a time limit, and Ctrl-C ends it as in a terminal.

`run` and `start` are those of `subprocess` otherwise, and `fork` is that of `os`. Where the tests
run in the background (`nohup make test &`), SIGINT is ignored, and children would inherit that.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

LIMIT = 300.0
"""Seconds after which a child is killed, and the test fails. A child that works takes far less."""


class Child(subprocess.Popen[Any]):
    """A process that is killed after `limit` seconds; waiting for it raises TimeoutExpired then."""

    def __init__(self, words: Sequence[Any], limit: float = LIMIT, **options: Any):
        self.limit, self.late = limit, False
        with _interruptible():
            super().__init__([os.fspath(w) for w in words], **options)
        self.watch = threading.Timer(limit, self._end)
        self.watch.daemon = True
        self.watch.start()

    def _end(self) -> None:
        self.late = True
        self.kill()

    def wait(self, timeout: float | None = None) -> int:
        status = super().wait(timeout)
        self.watch.cancel()
        if self.late:
            raise subprocess.TimeoutExpired(self.args, self.limit)
        return status


def start(words: Sequence[Any], limit: float = LIMIT, **options: Any) -> Child:
    """A child process that goes on while the test does."""
    return Child(words, limit, **options)


def run(
    words: Sequence[Any], limit: float = LIMIT, input: Any = None, check: bool = False,
    capture_output: bool = False, **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """A child process, to its end. Raises TimeoutExpired after `limit` seconds; with `check`,
    CalledProcessError if it fails.
    """
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Child(words, limit, **options) as child:
        output, errors = child.communicate(input)
    done = subprocess.CompletedProcess(child.args, child.returncode, output, errors)
    if check:
        done.check_returncode()
    return done


def fork(limit: float = LIMIT) -> int:
    """`os.fork`; SIGALRM ends the child after `limit` seconds."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limit)
    return child


@contextmanager
def _interruptible() -> Iterator[None]:
    """Children that are started inside take SIGINT, although this process ignores it. A handler
    does not survive the start of another program, but SIG_IGN does.
    """
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
