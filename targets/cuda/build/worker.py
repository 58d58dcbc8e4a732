"""The compiler's side of the process that compiles kernels with Triton.

If work is foreseen (`foresee`), the process starts before there is any, so that it imports Triton
while the passes run. It runs `workers/compile_kernels.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

_PROGRAM = Path(__file__).parent / "workers" / "compile_kernels.py"
_LAST_WORDS = 2000

Request = dict[str, Any]
"""A job, as `workers/compile_kernels.py` describes it."""


class Replies:
    """Hands the lines of a process to those who wait for them, each by the number of a request."""

    def __init__(self) -> None:
        self._numbers, self._lock, self._ended = count(), Lock(), False
        self._waiting: dict[int, SimpleQueue[dict[str, Any] | None]] = {}

    def expect(self) -> tuple[int, SimpleQueue[dict[str, Any] | None]]:
        """A new number, and where its replies arrive; None if there are no more."""
        with self._lock:
            number, queue = next(self._numbers), SimpleQueue[dict[str, Any] | None]()
            self._waiting[number] = queue
            if self._ended:
                queue.put(None)
            return number, queue

    def forget(self, number: int) -> None:
        with self._lock:
            del self._waiting[number]

    def read(self, lines: Iterable[str]) -> None:
        """Hand on all replies until the process ends."""
        try:
            for line in lines:
                reply = json.loads(line)
                with self._lock:
                    queue = self._waiting.get(reply["request"])
                if queue is not None:  # else who asked was interrupted
                    queue.put(reply)
        finally:
            with self._lock:
                self._ended = True
                for queue in self._waiting.values():
                    queue.put(None)


class Worker:
    """A process that has imported Triton, and compiles until it is closed, for any number of
    threads at a time."""

    def __init__(self) -> None:
        """Start the process. Triton's output goes to a file, because an unread pipe would block the
        process once it is full."""
        self._folder = tempfile.TemporaryDirectory(prefix="strata-triton-")
        self.folder = Path(self._folder.name)
        environment = dict(os.environ) | {"TRITON_CACHE_DIR": self._folder.name}
        environment.pop("TRITON_INTERPRET", None)
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_PROGRAM)], env=environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        weakref.finalize(self, self._process.kill)
        self._replies, self._sending = Replies(), Lock()
        self._reader = Thread(target=self._replies.read, args=[self._process.stdout], daemon=True)
        self._reader.start()

    @property
    def _log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def is_lost(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def compile(
        self, jobs: Sequence[Request], processes: int,
        finished: Callable[[int, str], None],
    ) -> list[str]:
        """Compile kernels. Returns the text of each one's error, empty for none.

        `finished` is called with each kernel's number and error as soon as it is done.
        """
        stdin, found = self._process.stdin, dict[int, str]()
        assert stdin is not None
        number, replies = self._replies.expect()
        try:
            request = json.dumps({"request": number, "jobs": jobs, "processes": processes})
            with suppress(BrokenPipeError), self._sending:
                print(request, file=stdin, flush=True)
            while len(found) < len(jobs) and (reply := replies.get()) is not None:
                found[reply["job"]] = reply["error"]
                finished(reply["job"], reply["error"])
        finally:
            self._replies.forget(number)
        return [found[k] if k in found else self._failure() for k in range(len(jobs))]

    def _failure(self) -> str:
        """Why the process ended before it had finished."""
        self._process.wait()
        return (f"its process ended with status {self._process.returncode}\n"
                + self._log.read_text()[-_LAST_WORDS:])

    def close(self) -> None:
        """End the process and remove its files."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        self._folder.cleanup()


_foreseen: list[Worker] = []
"""At most one worker, started for work that is foreseen."""


def foresee() -> None:
    """Start a worker for kernels that will soon need it."""
    if not _foreseen:
        _foreseen.append(Worker())


def worker() -> Worker:
    """The worker that `foresee` started, or a new one."""
    try:
        return _foreseen.pop()
    except IndexError:
        return Worker()
