"""A straight program as a chain of its steps, with an event before the first and behind each.

The steps' times are the differences of consecutive events, so they add up to the time of the chain.
An event itself takes time, which a graph of nothing but events tells. Runs come in rounds. Each run
of a round is a chain with events of its own, so that the device tells of every one how long it and
its steps took, and how long it waited for the next. Where others use the device, it leaves a run in
the middle to serve them, so only the quickest rounds count: the host's clock and the events see the
same runs, whichever these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from targets.cuda.profiling.code_facts import code_facts
from targets.cuda.runtime import driver
from targets.cuda.runtime.driver_graph import Graph, Node, RecordNode, chain
from targets.cuda.runtime.graph_cache import GraphRunner
from targets.cuda.runtime.planned import Collect, Launch
from targets.profiles import LaunchTime, mean_seconds, quick_part, runs_in

ROUND = 2e-2
"""About how many seconds of runs come between two looks at the events."""
MOST_EVENTS = 4096
"""How many events the runs of a round have at most; two runs have them in any case."""


@dataclass(frozen=True)
class GraphTimes:
    """Mean seconds over the rounds that count: of a run by the host's clock, between runs, of the
    events, of the copies, of each launch. `all_walls`: of a run by the host's clock, in all rounds.
    """

    wall: float
    between: float
    clocks: float
    copies: float
    launches: list[LaunchTime]
    calls: int
    all_walls: float


@dataclass(frozen=True)
class _Round:
    """Mean seconds of the runs of a round: by the host's clock, between runs, of each step."""

    wall: float
    between: float
    steps: list[float]


class _Run:
    """A chain of steps with events of its own."""

    def __init__(self, steps: list[Node | None]) -> None:
        self.events = [driver.Event(timing=True) for _ in range(len(steps) + 1)]
        nodes: list[Node] = [RecordNode(self.events[0])]
        for step, event in zip(steps, self.events[1:], strict=True):
            nodes += [*([step] if step is not None else []), RecordNode(event)]
        self.graph: Graph = chain(nodes)

    def intervals(self) -> list[float]:
        """The seconds between the events of the last replay."""
        return [b.milliseconds_since(a) / 1e3 for a, b in pairwise(self.events)]


class TimedGraph:
    """The last run of a program again, step by step. `stream`: where it runs."""

    def __init__(self, runner: GraphRunner, stream: int) -> None:
        self.runner, self.stream = runner, stream  # keeps the memory alive
        self.steps = runner.packed()
        self._packed: list[Node | None] = [packed for _, packed in self.steps]
        self._runs = [_Run(self._packed), _Run(self._packed)]

    def measure(self, seconds: float) -> GraphTimes:
        """The means of runs over about so many seconds."""
        event = self._event_seconds()
        exchanges = self.runner.program.plan.exchanges
        self._replay()
        fitting = runs_in(ROUND, self._replay(), exchanges)
        count = max(min(fitting, MOST_EVENTS // (len(self.steps) + 1)), 2)
        self._runs += [_Run(self._packed) for _ in range(count - 2)]
        once = self._replay()  # the first replay of a graph also uploads it
        rounds = [self._round() for _ in range(runs_in(seconds, count * once, exchanges))]
        kept = quick_part(rounds, lambda x: x.wall)
        sums = [sum(values) / len(kept) for values in zip(*(x.steps for x in kept), strict=True)]
        means = [max(value - event, 0.0) for value in sums]
        copies = sum(value for (step, _), value in zip(self.steps, means, strict=True)
                     if not isinstance(step, Launch | Collect))
        return GraphTimes(
            _mean([x.wall for x in kept]), _mean([x.between for x in kept]),
            sum(sums) - sum(means), copies, self._launches(means), len(kept) * count,
            _mean([x.wall for x in rounds]))

    def _launches(self, means: list[float]) -> list[LaunchTime]:
        return [LaunchTime(value if packed else 0.0, float(packed is not None), code_facts(packed))
                for (step, packed), value in zip(self.steps, means, strict=True)
                if isinstance(step, Launch | Collect)]

    def _round(self) -> _Round:
        """A replay of all runs, and what their events say of it."""
        wall = self._replay()
        between = sum(b.events[0].milliseconds_since(a.events[-1])
                      for a, b in pairwise(self._runs)) / 1e3
        steps = [sum(values) / len(self._runs) for values in zip(
            *(run.intervals() for run in self._runs), strict=True)]
        return _Round(wall, between / len(self._runs), steps)

    def _replay(self) -> float:
        """The host's mean seconds of a run, in a row of all, until the device has ended them."""
        def all_runs() -> None:
            for run in self._runs:
                run.graph.launch(self.stream)
            driver.synchronize(self.stream)

        return mean_seconds(all_runs, 1) / len(self._runs)

    def _event_seconds(self) -> float:
        """The seconds from one event to the next where nothing lies between."""
        empty, found = _Run([None] * len(self.steps)), list[float]()
        for _ in range(10):
            empty.graph.launch(self.stream)
            driver.synchronize(self.stream)
            found += empty.intervals()
        return sorted(found)[len(found) // 2]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
