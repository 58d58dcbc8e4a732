"""Streams for a device of tests: work is done when somebody waits for it, and no earlier.

So what one stream does can be early or late by any amount for another one that does not wait for
it: work that relies on luck fails.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from threading import RLock

Work = Callable[[], None]


class FakeStreams:
    """Work by stream. `lock`: the driver's own; threads may call it at once. `clock`: the device's,
    in milliseconds, which kernels advance."""

    def __init__(self) -> None:
        self.lock, self.clock = RLock(), 0.0
        self._waiting: defaultdict[int, deque[Work]] = defaultdict(deque)
        self._asked, self._done = Counter[int](), Counter[int]()
        self._made = 7

    def make(self, owner: object = None) -> int:
        """A new stream."""
        del owner
        with self.lock:
            self._made += 1
            return self._made - 1

    def later(self, work: Work, stream: int) -> None:
        """Do it in its turn."""
        with self.lock:
            self._waiting[stream].append(work)
            self._asked[stream] += 1

    def point(self, stream: int) -> int:
        """How much the stream has been asked for."""
        return self._asked[stream]

    def reach(self, stream: int, point: int) -> None:
        """Do what the stream had been asked for by then, and what that waits for."""
        with self.lock:
            while self._done[stream] < point:
                try:
                    self._waiting[stream].popleft()()
                finally:
                    self._done[stream] += 1

    def finish(self, stream: int) -> None:
        self.reach(stream, self.point(stream))

    def finish_all(self) -> None:
        with self.lock:
            for stream in list(self._waiting):
                self.finish(stream)

    def is_done(self, stream: int) -> bool:
        return self._done[stream] == self._asked[stream]


class FakeEvent:
    """A point in a stream's work."""

    def __init__(self, streams: FakeStreams, timing: bool = False) -> None:
        self.streams, self.timing, self.at = streams, timing, 0.0
        self.recorded: tuple[int, int] | None = None

    def record(self, stream: int) -> None:
        with self.streams.lock:
            if self.timing:
                self.streams.later(self.reached, stream)
            self.recorded = stream, self.streams.point(stream)

    def reached(self) -> None:
        self.at = self.streams.clock

    def wait(self, stream: int) -> None:
        """As in the driver, it is the event's last point by now that the stream waits for."""
        assert self.recorded is not None
        other, point = self.recorded
        self.streams.later(lambda: self.streams.reach(other, point), stream)

    def milliseconds_since(self, earlier: FakeEvent) -> float:
        assert self.timing and earlier.timing
        if self.recorded is not None:  # else a graph records it, which the caller waits for
            self.streams.reach(*self.recorded)
        return self.at - earlier.at
