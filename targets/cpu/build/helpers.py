"""The compiler's side of processes that compile LLVM IR. They run `worker.py`.

If much work is foreseen (`foresee`), processes start before there is any, so that they have loaded
LLVM when the first text arrives.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Generator

from targets.cpu.build import worker
from targets.cpu.machine import Machine

LOST = (OSError, EOFError, pickle.UnpicklingError)
"""What a `Helper` raises if its process has ended."""


class Helper:
    """A process that compiles, until `end` or the end of its input."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, worker.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL)

    def send(self, text: str, machine: Machine) -> None:
        """Pass on a text to compile. Raises one of `LOST` if the process has ended."""
        stdin = self._process.stdin
        assert stdin is not None
        pickle.dump((text, *machine.code_generator), stdin)
        stdin.flush()

    def receive(self) -> bytes:
        """The object code of the first text that was sent and not yet received. Raises as `send`.
        """
        stdout = self._process.stdout
        assert stdout is not None
        return pickle.load(stdout)

    def end(self) -> None:
        """End the process at once, whatever it does: leaving on its own would take it 15 ms."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        self._process.kill()
        with contextlib.suppress(OSError):
            stdin.close()
        stdout.close()
        self._process.wait()


_foreseen: list[Helper] = []
"""Processes that were started for work that is foreseen, and have none yet."""


def foresee(count: int) -> None:
    """Start processes for texts that will soon need them, unless as many wait for work."""
    _foreseen[:] = [h for h in _foreseen if h.owner == os.getpid()]  # none of a parent by `fork`
    while len(_foreseen) < count:
        _foreseen.append(Helper())


def are_foreseen() -> bool:
    """Whether a process waits for work."""
    return any(h.owner == os.getpid() for h in _foreseen)


def dismiss() -> None:
    """End the processes that were foreseen and got no work."""
    while (found := _taken()) is not None:
        found.end()


@contextlib.contextmanager
def helper() -> Generator[Helper]:
    """A process that was foreseen, or a new one; it ends with the context."""
    found = _taken() or Helper()
    try:
        yield found
    finally:
        found.end()


def _taken() -> Helper | None:
    """A foreseen process of this one, if there is any."""
    while True:
        try:
            found = _foreseen.pop()
        except IndexError:  # another thread may have taken the last one
            return None
        if found.owner == os.getpid():
            return found
