"""Times a model's launches without the host's overhead, inside a graph of many runs.

One graph holds enough runs that neither its start nor the clock's resolution matters. In a model
whose constants fill much of the L2 cache, a kernel's constants are usually not cached when it runs.
To reproduce that, each run reads another copy of the constants, so that the cache has lost the copy
before it is read again. Inputs from other kernels were written just before and may be cached.
"""

from __future__ import annotations

import math

from targets.cuda.runtime import driver
from targets.cuda.runtime.graph_cache import GraphRunner
from targets.cuda.runtime.memory.device import Memory

NEAR = 4
"""Constants of a model are assumed to stay in the L2 cache if they take at most one part in `NEAR`
of it. Chosen on an H200, where a matrix that just fits is slower once it is read from memory."""
SECONDS = 5e-4
"""About how many seconds a graph runs."""
FIRST, MOST = 4, 256
"""Runs in the first graph, from whose time the final number is computed, and the most in any."""
MOST_COPIES = 64


class Stopwatch:
    """The average seconds of one run in the graph."""

    def __init__(self, runner: GraphRunner, spoiled: int, stream: int):
        """`spoiled`: bytes that are read between two uses of a constant; 0: none."""
        self.runner, self.stream = runner, stream  # keeps the graph's memory alive
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
        """At least `calls` runs in a row, started while an earlier graph is still running."""
        replays = math.ceil(calls / self.count)
        self.graph.launch(self.stream)
        self.start.record(self.stream)
        for _ in range(replays):
            self.graph.launch(self.stream)
        self.end.record(self.stream)
        return self.end.milliseconds_since(self.start) / 1e3 / (replays * self.count)
