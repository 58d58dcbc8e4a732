"""Ends a process that waits for a lost rank inside a CUDA graph.

torch.distributed watches the operations that it enqueues itself. It never sees those that a graph
holds again: where another rank has died, or runs another program, NCCL's kernels wait until
somebody ends the process, and so does the host. So a thread watches the runs of each graph that
holds such operations. As torch.distributed does, it counts from the last call, and ends the process
if that call is not done when the process group gives up; nothing else could end the kernels, and
the results of all later work would be wrong. Kernels that exchange tiles give up by themselves, as
a fault of the device, which whoever waits for the device meets; the thread says why.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Protocol

from dialects.ranks.launcher import rank_text, tell_launcher
from targets.communication import Exchange, patience_of, process_group
from targets.cuda.errors import CudaError
from targets.cuda.libraries.symmetric import given_up

THREAD = "strata-ranks"
_GRACE = 3.0
"""Seconds beyond the group's own limit, within which its own errors come first."""


class Point(Protocol):
    """A point in a stream's work, such as a CUDA event."""

    def record(self, stream: int) -> None: ...

    def is_done(self) -> bool: ...


class Watch:
    """The runs of one graph. `end`: what ends the process, with a message."""

    def __init__(
        self, exchanges: Sequence[Exchange], point: Point, seconds: float,
        end: Callable[[str], None], interval: float = 1.0,
    ) -> None:
        """`exchanges`: the graph's, at least one; `seconds`: for how long a run may take."""
        self._exchanges, self._point, self._seconds, self._end = exchanges, point, seconds, end
        self._since = 0.0
        """When the last run was enqueued; 0 once it is done."""
        Thread(target=_look, args=[weakref.ref(self), interval], name=THREAD, daemon=True).start()

    def enqueued(self, stream: int) -> None:
        """A run was enqueued on the stream."""
        self._point.record(stream)
        self._since = time.monotonic()

    def look(self) -> None:
        """End the process if the last run should be done and is not."""
        since = self._since
        if not since:
            return
        try:
            is_done = self._point.is_done()
        except CudaError:
            self._since = 0.0
            if why := given_up(self._exchanges):
                say(why)
            return
        if self._since != since:
            return
        if is_done:
            self._since = 0.0
        elif time.monotonic() - since > self._seconds:
            first = self._exchanges[0]
            node = f" at node {first.node!r}" if first.node else ""
            self._end(f"a step that begins with {first.how}{node} was not done after "
                      f"{self._seconds:g} s: another rank is lost, or runs another program")


def watch(exchanges: Sequence[Exchange], make: Callable[[], Point]) -> Watch | None:
    """A watch over a graph with these exchanges; none if no other rank takes part. `make`: makes
    the point at which a run is done."""
    found = [e for e in exchanges if e.how.group.size > 1]
    if not found:
        return None
    patience = patience_of(process_group(found[0].how.group)).total_seconds()
    return Watch(found, make(), patience + _GRACE, end_process)


def say(message: str) -> None:
    """Say what is wrong, also to torchrun."""
    text = f"error{rank_text()}: {message}"
    print(text, file=sys.stderr, flush=True)
    tell_launcher(text)


def end_process(message: str) -> None:
    """Say what is wrong, and end the process at once."""
    say(message)
    os._exit(1)


def _look(watched: weakref.ref[Watch], interval: float) -> None:
    """Look until nothing else holds the watch."""
    while (found := watched()) is not None:
        found.look()
        del found
        time.sleep(interval)
