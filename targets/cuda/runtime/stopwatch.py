"""Times a model's launches alone, as they run inside a graph of many.

One graph holds so many runs that neither its start nor the clock's resolution counts. A model whose
constants are a large part of the shared cache may find none of a kernel's there, so that each run
reads another copy of them, further back than the cache reaches; what a kernel takes from others has
just been written, and may be there.
"""

from __future__ import annotations

import math

from targets.cuda.runtime import driver
from targets.cuda.runtime.graph_cache import GraphRunner
from targets.cuda.runtime.memory import Memory

NEAR = 4
"""Constants of a model are held to stay in the shared cache up to this part of it. What was found
fast for one matrix that just fits, 4096 x 4096 halves on an H200, took 25% more from memory."""
SECONDS = 5e-4
"""About how long a graph runs."""
FIRST, MOST = 4, 256
"""Runs in the graph that tells how many make such a one, and in any."""
MOST_COPIES = 64


class Stopwatch:
    """The seconds of a run, on the average of those in the graph."""

    def __init__(self, runner: GraphRunner, spoiled: int, stream: int):
        """`spoiled`: bytes that are read between two uses of a constant; 0: none."""
        self.runner, self.stream = runner, stream  # whose memory the graph works on
        size = runner.program.constants_size
        count = min(MOST_COPIES, math.ceil(spoiled / size) + 1) if size and spoiled else 0
        self.copies = [Memory(size) for _ in range(count)]
        self.start, self.end = driver.Event(timing=True), driver.Event(timing=True)
        self._make(FIRST)
        count = min(MOST, max(FIRST, math.ceil(SECONDS / max(self(1), 1e-7))))
        self.graph.close()
        self._make(count)

    def _make(self, count: int) -> None:
        self.count, self.graph = count, self.runner.repeated(self.copies[:count], count)

    def __call__(self, calls: int) -> float:
        """At least so many in a row, begun while a graph before them still runs."""
        replays = math.ceil(calls / self.count)
        self.graph.launch(self.stream)
        self.start.record(self.stream)
        for _ in range(replays):
            self.graph.launch(self.stream)
        self.end.record(self.stream)
        return self.end.milliseconds_since(self.start) / 1e3 / (replays * self.count)
