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
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

_PROGRAM = Path(__file__).parent / "workers" / "compile_kernels.py"
_LAST_WORDS = 2000

Request = dict[str, Any]
"""A job, as `workers/compile_kernels.py` describes it."""


class Worker:
    """A process that has imported Triton, and compiles until it is closed."""

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
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        found: dict[int, str] = {}
        with suppress(BrokenPipeError):
            print(json.dumps({"jobs": jobs, "processes": processes}), file=stdin, flush=True)
            for line in islice(stdout, len(jobs)):
                reply = json.loads(line)
                found[reply["job"]] = reply["error"]
                finished(reply["job"], reply["error"])
        return [found[k] if k in found else self._failure() for k in range(len(jobs))]

    def _failure(self) -> str:
        """Why the process ended before it had finished."""
        self._process.wait()
        return (f"its process ended with status {self._process.returncode}\n"
                + self._log.read_text()[-_LAST_WORDS:])

    def close(self) -> None:
        """End the process and remove its files."""
        self._process.communicate()
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
