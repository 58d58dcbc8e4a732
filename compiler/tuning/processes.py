"""The tuner's worker processes, including the handling of crashes and timeouts.

They are started as new programs and not forked, so that they inherit neither threads nor open
files. Their output is discarded.
"""

from __future__ import annotations

import pickle
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

_START = ("import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
          "from compiler.tuning.worker import main; main()")


class WorkerError(Exception):
    """A request failed; the message says why."""


class TooLate(WorkerError):
    """The request was not started."""


class Lost(WorkerError):
    """The process ended, because of the request or for a reason of its own."""


class Worker:
    """One process. It starts at the first request, and restarts after it is lost."""

    def __init__(self, folder: str):
        """`folder`: its working directory."""
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.lock = threading.Lock()
        """For users that share the process, rather than obtaining it from `Workers`."""

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def ask(self, name: str, arguments: Sequence[Any], seconds: float) -> Any:
        """Call a function of `worker.Server`, and return its result. Raises WorkerError."""
        process = self._process or self._start()
        try:
            assert process.stdout is not None
            self._send(process, (name, arguments))
            if not select.select([process.stdout], [], [], max(0.0, seconds))[0]:
                raise TimeoutError
            done, result = pickle.load(process.stdout)
        except TimeoutError:
            self.stop()
            raise WorkerError(f"it takes more than {seconds:.0f} s") from None
        except (OSError, EOFError, pickle.UnpicklingError):
            self.stop()
            raise Lost("its process ended") from None
        if not done:
            raise WorkerError(result)
        return result

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, cwd=self.folder)
        self.starts += 1
        self._send(self._process, sys.path)
        return self._process

    def _send(self, process: subprocess.Popen[bytes], message: Any) -> None:
        assert process.stdin is not None
        pickle.dump(message, process.stdin)
        process.stdin.flush()

    def stop(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


class Workers:
    """Several processes, which take jobs as they become free."""

    def __init__(self, count: int, folder: str):
        self.all = [Worker(folder) for _ in range(count)]
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self.all:
            self._free.put(worker)

    def ask_all(
        self, name: str, jobs: Sequence[Any], seconds: float, patience: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> list[Any]:
        """The result for each job, or its WorkerError; no job starts after `seconds`.

        `patience`: the time limit of one job. A job whose process ends is given to one more
        process, since the system may have ended the first: only a job that ends both is at fault.
        """
        until = clock() + seconds

        def once(job: Any) -> Any:
            worker = self._free.get()
            try:
                if clock() > until:
                    return TooLate("there was no time")
                return worker.ask(name, (job,), patience)
            except WorkerError as error:
                return error
            finally:
                self._free.put(worker)

        def one(job: Any) -> Any:
            result = once(job)
            return once(job) if isinstance(result, Lost) else result

        with ThreadPoolExecutor(len(self.all)) as threads:
            return list(threads.map(one, jobs))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.all:
            worker.stop()
