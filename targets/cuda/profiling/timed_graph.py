"""A straight program as a chain of its steps, with an event before the first and behind each.

The steps' times are the differences of consecutive events, so they add up to the time of the chain.
An event itself takes time, which a graph of nothing but events tells. Two such chains run in turns,
each with events of its own, so that the device also tells how long it waits between runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from targets.cuda.profiling.code_facts import code_facts
from targets.cuda.runtime import driver
from targets.cuda.runtime.driver_graph import Node, RecordNode, chain
from targets.cuda.runtime.graph_cache import GraphRunner
from targets.cuda.runtime.planned import Collect, Launch
from targets.profiles import LaunchTime, mean_seconds, runs_in

ROUND = 2e-2
"""About how many seconds of runs come between two looks at the events."""


@dataclass(frozen=True)
class GraphTimes:
    """Mean seconds: of a run by the host's clock, between runs, of the events, of the copies, of
    each launch."""

    wall: float
    between: float
    clocks: float
    copies: float
    launches: list[LaunchTime]
    calls: int


class TimedGraph:
    """The last run of a program again, step by step. `stream`: where it runs."""

    def __init__(self, runner: GraphRunner, stream: int) -> None:
        self.runner, self.stream = runner, stream  # keeps the memory alive
        self.steps = runner.packed()
        self.earlier, self.events = ([driver.Event(timing=True) for _ in range(
            len(self.steps) + 1)] for _ in range(2))
        self._graphs = [chain(self._nodes(events)) for events in (self.earlier, self.events)]
        self._clocks = chain([RecordNode(event) for event in self.events])

    def _nodes(self, events: list[driver.Event]) -> list[Node]:
        nodes: list[Node] = [RecordNode(events[0])]
        for (_, packed), event in zip(self.steps, events[1:], strict=True):
            nodes += [*([packed] if packed is not None else []), RecordNode(event)]
        return nodes

    def measure(self, seconds: float) -> GraphTimes:
        """The means of runs over about so many seconds."""
        event = self._event_seconds()
        self._replay(2)
        pairs = runs_in(ROUND, 2 * self._replay(2), self.runner.program.plan.exchanges)
        rounds = runs_in(seconds, ROUND)
        sums, wall, between = [0.0] * len(self.steps), 0.0, 0.0
        for _ in range(rounds):
            wall += self._replay(pairs)
            between += self.events[0].milliseconds_since(self.earlier[-1]) / 1e3
            for k, value in enumerate(self._intervals()):
                sums[k] += value
        means = [max(value / rounds - event, 0.0) for value in sums]
        clocks = sum(sums) / rounds - sum(means)
        return GraphTimes(wall / rounds, between / rounds, clocks, sum(
            value for (step, _), value in zip(self.steps, means, strict=True)
            if not isinstance(step, Launch | Collect)), self._launches(means), 2 * rounds * pairs)

    def _launches(self, means: list[float]) -> list[LaunchTime]:
        return [LaunchTime(value if packed else 0.0, float(packed is not None), code_facts(packed))
                for (step, packed), value in zip(self.steps, means, strict=True)
                if isinstance(step, Launch | Collect)]

    def _replay(self, pairs: int) -> float:
        """The host's mean seconds of pairs of runs in a row, until the device has ended them."""
        def run() -> None:
            for graph in self._graphs:
                graph.launch(self.stream)

        def all_runs() -> None:
            mean_seconds(run, pairs)
            driver.synchronize(self.stream)

        return mean_seconds(all_runs, 1) / (2 * pairs)

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
