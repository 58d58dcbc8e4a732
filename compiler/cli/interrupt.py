"""Ctrl-C: the command ends within a second and reports in one line what was kept.

Python raises KeyboardInterrupt only between bytecode instructions. While LLVM compiles a large
kernel, or threads wait for other processes, that can take long. A thread therefore also waits for
the signal. It kills the process and its children if they have not ended by themselves.

A command that is started with SIGINT ignored, as shells start commands in the background of a
script (`nohup strata tune ... &`), goes on ignoring it, like other programs: Ctrl-C is then meant
for what runs in the foreground. SIGTERM ends it.
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

from compiler.io.printing import show

STATUS = 128 + signal.SIGINT
GRACE = 0.4
"""Seconds that the command has to end on its own."""


@dataclass
class Interrupt:
    """The report when the command is interrupted.

    `kept` describes in a few words what remains of the work. It is called from another thread when
    the signal arrives.
    """

    kept: Callable[[], str] = lambda: "nothing was written"
    _told: threading.Lock = field(default_factory=threading.Lock)

    def report(self) -> None:
        """Print the line, once."""
        if self._told.acquire(blocking=False):
            with contextlib.suppress(OSError, ValueError):
                after = [""] if sys.stderr.isatty() else []  # the terminal's own ^C
                show(*after, f"interrupted: {self.kept()}", file=sys.stderr)
                sys.stderr.flush()

    def leave(self) -> NoReturn:
        """End this process and its children at once.

        A regular exit would free a large model object by object, which takes longer than a second.
        Exit handlers, which remove temporary folders, run first, as far as the watching thread
        leaves time.
        """
        end_children()
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
        os._exit(STATUS)

    def watch(self) -> None:
        """Ensure that the signal soon ends this process. To be called in the main thread."""
        receiver, sender = os.pipe()
        os.set_blocking(sender, False)
        signal.set_wakeup_fd(sender, warn_on_full_buffer=False)
        threading.Thread(target=self._wait, args=(receiver,), daemon=True).start()

    def _wait(self, receiver: int) -> None:
        while signal.SIGINT not in os.read(receiver, 64):  # the numbers of received signals
            pass
        time.sleep(GRACE)
        self.report()
        end_children()
        os._exit(STATUS)


def end_children() -> None:
    """Kill all descendants of this process."""
    for process in _descendants(os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)


def _descendants(process: int) -> list[int]:
    """The descendants of a process, the youngest generation first; none if there is no /proc."""
    found: list[int] = []
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, file.read_text().split()):
                found += [*_descendants(child), child]
    return found
