"""Runs of one state follow each other, on whatever streams: they use the same memory."""

from __future__ import annotations

from targets.cuda.runtime import driver

DEFAULT = 0
"""The stream that is always there, and therefore needs no event before another is used."""


class RunOrder:
    """`own`: the stream of runs whose callers have none. `last`: that of the last run."""

    def __init__(self) -> None:
        self.own = driver.make_stream(self)
        self._done, self.last = driver.Event(), self.own
        self._done.record(self.own)
        self._synchronize = driver.synchronize  # of the driver that the stream is of

    def begin(self, stream: int) -> None:
        """Let the stream's later work wait for all earlier runs."""
        if stream == self.last:
            return
        if self.last == DEFAULT:
            self._done.record(DEFAULT)
        self._done.wait(stream)

    def end(self, stream: int) -> None:
        """A run has been put into the stream."""
        self.last = stream
        if stream != DEFAULT:
            self._done.record(stream)

    def finish(self) -> None:
        """Wait for all runs."""
        self.begin(self.own)
        self._synchronize(self.own)
