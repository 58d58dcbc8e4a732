"""The order of one state's runs, which share memory: one after another, on any streams."""

from __future__ import annotations

from targets.cuda.runtime import driver

DEFAULT = 0
"""The default stream. It always exists, so its event can be recorded when it is needed."""


class RunOrder:
    """`own`: the stream for callers without one. `last`: the stream of the last run."""

    def __init__(self) -> None:
        self.own = driver.make_stream(self)
        self._done, self.last = driver.Event(), self.own
        self._done.record(self.own)
        self._synchronize = driver.synchronize  # of the driver that made the stream

    def begin(self, stream: int) -> None:
        """Make later work of the stream wait for all earlier runs."""
        if stream == self.last:
            return
        if self.last == DEFAULT:
            self._done.record(DEFAULT)
        self._done.wait(stream)

    def end(self, stream: int) -> None:
        """Record that a run was enqueued on the stream."""
        self.last = stream
        if stream != DEFAULT:
            self._done.record(stream)

    def finish(self) -> None:
        """Wait for all runs to finish."""
        self.begin(self.own)
        self._synchronize(self.own)
