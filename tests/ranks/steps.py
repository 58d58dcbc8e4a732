"""Steps of a job on one rank, each with a time limit, so that a rank that hangs says where."""

from __future__ import annotations

import faulthandler
import os
import sys
import time

SECONDS = {"cpu": 100.0, "cuda": 40.0}
"""For how long a rank may work at a step, by its kind of device. Ranks on the CPU may have to share
a processor with all others."""
_limit = 0.0
_started = time.perf_counter()


def limit_steps(seconds: float) -> None:
    """Let no step that begins from now on take longer than this."""
    global _limit
    _limit = seconds


def step(name: str) -> None:
    """Begin a step: log its name. If the next one does not begin in time, all threads' stacks are
    logged, and the process ends."""
    said = f"rank {os.environ['RANK']}, {time.perf_counter() - _started:6.1f} s: {name}"
    print(said, file=sys.stderr, flush=True)
    if _limit:
        faulthandler.dump_traceback_later(_limit, exit=True)


def last_step() -> None:
    """Nothing is limited from here on."""
    faulthandler.cancel_dump_traceback_later()
