"""A straight program as a chain of its steps, with an event before the first and behind each.

The steps' times are the differences of consecutive events, so they add up to the time of the chain.
An event itself takes time, which a graph of nothing but events tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from targets.cuda.profiling.code_facts import code_facts
from targets.cuda.runtime import driver
from targets.cuda.runtime.driver_graph import Node, RecordNode, chain
from targets.cuda.runtime.graph_cache import GraphRunner
from targets.cuda.runtime.planned import Launch
from targets.profiles import LaunchTime, mean_seconds, runs_in

ROUND = 2e-2
"""About how many seconds of runs come between two looks at the events."""


@dataclass(frozen=True)
class GraphTimes:
    """Mean seconds: of a run by the host's clock, of an event, of the copies, of each launch."""

    wall: float
    event: float
    copies: float
    launches: list[LaunchTime]
    calls: int


class TimedGraph:
    """The last run of a program again, step by step. `stream`: where it runs."""

    def __init__(self, runner: GraphRunner, stream: int) -> None:
        self.runner, self.stream = runner, stream  # keeps the memory alive
        self.steps = runner.packed()
        self.events = [driver.Event(timing=True) for _ in range(len(self.steps) + 1)]
        nodes: list[Node] = [RecordNode(self.events[0])]
        for (_, packed), event in zip(self.steps, self.events[1:], strict=True):
            nodes += [*([packed] if packed is not None else []), RecordNode(event)]
        self._graph = chain(nodes)
        self._clocks = chain([RecordNode(event) for event in self.events])

    def measure(self, seconds: float) -> GraphTimes:
        """The means of runs over about so many seconds."""
        event = self._event_seconds()
        self._replay(3)
        count = runs_in(ROUND, self._replay(3))
        rounds = runs_in(seconds, ROUND)
        sums, wall = [0.0] * len(self.steps), 0.0
        for _ in range(rounds):
            wall += self._replay(count)
            for k, value in enumerate(self._intervals()):
                sums[k] += value
        means = [max(value / rounds - event, 0.0) for value in sums]
        return GraphTimes(wall / rounds, event, sum(
            value for (step, _), value in zip(self.steps, means, strict=True)
            if not isinstance(step, Launch)), self._launches(means), rounds * count)

    def _launches(self, means: list[float]) -> list[LaunchTime]:
        return [LaunchTime(value if packed else 0.0, float(packed is not None), code_facts(packed))
                for (step, packed), value in zip(self.steps, means, strict=True)
                if isinstance(step, Launch)]

    def _replay(self, count: int) -> float:
        """The host's mean seconds of runs in a row, until the device has ended them."""
        def run() -> None:
            self._graph.launch(self.stream)

        def all_runs() -> None:
            mean_seconds(run, count)
            driver.synchronize(self.stream)

        return mean_seconds(all_runs, 1) / count

    def _intervals(self) -> list[float]:
        """The seconds between the events of the last run."""
        return [b.milliseconds_since(a) / 1e3 for a, b in pairwise(self.events)]

    def _event_seconds(self) -> float:
        """The seconds from one event to the next where nothing lies between."""
        found: list[float] = []
        for _ in range(10):
            self._clocks.launch(self.stream)
            found += self._intervals()
        return sorted(found)[len(found) // 2]
