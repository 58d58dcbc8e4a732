"""Ctrl-C: the command ends within a second, and says in one line what was kept.

Python raises KeyboardInterrupt only between its own instructions: while LLVM compiles a large
kernel, or threads wait for other processes, that can take long. So a thread watches for the signal
as well, and ends the process, and those that it started, when it has not ended by itself.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

STATUS = 128 + signal.SIGINT
GRACE = 0.4
"""Seconds for the command to end by itself."""


@dataclass
class Interrupt:
    """What is to be told when the command is interrupted.

    `kept`: says in a few words what remains of the work. It is asked when the signal comes, from
    another thread.
    """

    kept: Callable[[], str] = lambda: "nothing was written"
    _told: threading.Lock = field(default_factory=threading.Lock)

    def tell(self) -> None:
        """Print the line, once."""
        if self._told.acquire(blocking=False):
            with contextlib.suppress(OSError, ValueError):
                line = "\n" if sys.stderr.isatty() else ""  # behind the terminal's own ^C
                print(f"{line}interrupted: {self.kept()}", file=sys.stderr, flush=True)

    def leave(self) -> NoReturn:
        """End this process and all that it started: what is told is on its way, and taking a large
        model apart object by object would take longer than the second.

        Temporary folders are removed before, as far as the thread that watches gives time.
        """
        end_children()
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
        os._exit(STATUS)

    def watch(self) -> None:
        """From now on a signal ends this process soon, whatever it does. In the main thread only.
        """
        receiver, sender = os.pipe()
        os.set_blocking(sender, False)
        signal.set_wakeup_fd(sender, warn_on_full_buffer=False)
        threading.Thread(target=self._wait, args=(receiver,), daemon=True).start()

    def _wait(self, receiver: int) -> None:
        while signal.SIGINT not in os.read(receiver, 64):  # the numbers of signals that came
            pass
        time.sleep(GRACE)
        self.tell()
        end_children()
        os._exit(STATUS)


def end_children() -> None:
    """End the processes that this one started, and those that these did."""
    for process in _descendants(os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)


def _descendants(process: int) -> list[int]:
    """All of them, the youngest generation first; none where the system does not tell."""
    found: list[int] = []
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, file.read_text().split()):
                found += [*_descendants(child), child]
    return found
