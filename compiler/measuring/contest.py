"""Times several runtimes on one model in turns.

Other load on the machine then affects all of them alike, and the median of many calls is reported.
Two effects that would favour one runtime are avoided:

- caches: a call that is shorter than a turn is repeated, and the first one, which runs with the
  caches that the others left, is not counted;
- threads: OpenMP's workers spin for some milliseconds after their work. With several threads, a
  turn begins when the others' workers have gone to sleep.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from compiler.diagnostics import Problem, StrataError
from compiler.io.arrays import to_numpy
from compiler.measuring.comparison import error_of
from targets.profiles import QUIET, seconds_waited

if TYPE_CHECKING:
    from dialects.strata.types import Array

Run = Callable[[], Sequence[Any]]
"""One call, which returns the outputs in the runtime's own form."""
Count = Callable[[int, int], None]
Agreed = Callable[[float], float]
TURN_SECONDS = 0.005
MOST_IN_A_TURN = 100
_WARMED_SECONDS = 0.05
"""Longer calls fill caches by themselves."""
_HOPELESS, _HOPELESS_SECONDS, _FEW_TURNS = 10.0, 2.5, 3
"""A run that takes so many times as long as the fastest one takes turns for about so many seconds,
and at least in so many rounds: more of them would cost minutes, and change nothing."""
SETTLE_SECONDS = 0.01
"""Longer than libgomp's workers spin by default."""


@dataclass(frozen=True)
class Timing:
    """Milliseconds of a call: wall time, and CPU time of the process, all its threads together."""

    median_ms: float
    best_ms: float
    cpu_ms: float


class Interval(NamedTuple):
    """The median of milliseconds, and a 95% confidence interval of it."""

    low: float
    median: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Interval:
        """By order statistics: how many of n values are below the median is binomial, and nothing
        is assumed about how they are distributed. Fewer than six values span all of them.
        """
        ordered, count = sorted(values), len(values)
        outside = 0
        while sum(math.comb(count, k) for k in range(outside + 1)) / 2**count <= 0.025:
            outside += 1
        skipped = max(0, outside - 1)
        return Interval(ordered[skipped], statistics.median(ordered), ordered[-1 - skipped])


@dataclass(frozen=True)
class Entrant:
    """A runtime with a model ready to run; `load_s`: the seconds until its first result."""

    run: Run
    load_s: float
    outputs: Sequence[Array]


@dataclass
class Contest:
    """Runtimes on one model and the same inputs; the first that is added is ours.

    `problems`: name -> why a peer does not take part. `agreed`: what several ranks make of the
    seconds that each of them took, so that all make as many calls.
    """

    threads: int
    agreed: Agreed = lambda seconds: seconds
    entrants: dict[str, Entrant] = field(default_factory=dict[str, Entrant])
    problems: dict[str, StrataError] = field(default_factory=dict[str, StrataError])

    def add(self, name: str, run: Run, made_ready_s: float) -> None:
        """Add a runtime and call it once. `made_ready_s`: the seconds so far. Raises the call's
        errors.
        """
        started = time.perf_counter()
        outputs = run()
        seconds = made_ready_s + time.perf_counter() - started
        self.entrants[name] = Entrant(run, seconds, [_copied(x) for x in outputs])

    def add_peer(self, name: str, load: Callable[[], Run]) -> None:
        """Load a peer and call it once; a failure is recorded as its problem."""
        started = time.perf_counter()
        try:
            run = load()
            self.add(name, run, time.perf_counter() - started)
        except StrataError as error:
            self.problems[name] = error
        except Exception as error:  # a runtime of others has many kinds, of no common class
            self.problems[name] = StrataError(f"{name} cannot run the model", [Problem(
                f"{type(error).__name__}: {error}")])

    def rows(self, rounds: int, report: Count = lambda done, total: None) -> list[dict[str, Any]]:
        """A row per entrant: name, times, load_s, and how far its outputs are from ours.

        `report` is called between rounds with how many are done, and how many there are.
        """
        timings = take_turns({n: e.run for n, e in self.entrants.items()}, rounds, self.threads,
                             report, self.agreed)
        ours = next(iter(self.entrants.values())).outputs
        return [{"name": name, **vars(timings[name]), "load_s": entrant.load_s,
                 "difference": difference(entrant.outputs, ours)}
                for name, entrant in self.entrants.items()]


def take_turns(
    runs: dict[str, Run], rounds: int, threads: int, report: Count = lambda done, total: None,
    agreed: Agreed = lambda seconds: seconds,
) -> dict[str, Timing]:
    """The time of each run's calls, a turn of each per round. `report`: as in `Contest.rows`;
    `agreed`: as in `Contest`."""
    turns = _turns(runs, rounds, threads, report, agreed=agreed)
    return {name: _timing([call for turn in found for call in turn])
            for name, found in turns.items()}


@dataclass
class Waiting:
    """How much of the time since this was made others had the thread's processor."""

    began: float = field(default_factory=time.perf_counter)
    waited: float = field(default_factory=seconds_waited)

    @property
    def share(self) -> float:
        passed = time.perf_counter() - self.began
        return (seconds_waited() - self.waited) / passed if passed > 0 else 0.0


def intervals(
    runs: dict[str, Run], rounds: int, threads: int, report: Count = lambda done, total: None,
    waiting: Waiting | None = None,
) -> dict[str, Interval]:
    """The time of a call of each run, with its interval over rounds. Calls of one turn share what
    disturbs them, so a turn counts as one value, the median of its calls. Runs may be variants of a
    program, between which caches must not decide: longer calls are warmed up, too. Those that are
    hopelessly slow take fewer turns.

    `waiting`: for runs of one thread, which wait for nothing but the processor. Where others had
    it, a call's own time on it counts, if that is less; to read that clock takes a microsecond.
    """
    turns = _turns(runs, rounds, threads, report, _WARMED_SECONDS)
    own = waiting is not None and threads == 1 and waiting.share > QUIET
    times = {name: [_timing(turn) for turn in found] for name, found in turns.items()}
    return {name: Interval.of([min(t.median_ms, t.cpu_ms) if own else t.median_ms for t in found])
            for name, found in times.items()}


def _turns(
    runs: dict[str, Run], rounds: int, threads: int, report: Count, warmed: float = 0.0,
    agreed: Agreed = lambda seconds: seconds,
) -> dict[str, list[list[tuple[float, float]]]]:
    """The seconds of wall and of CPU time of the calls in each turn of each run. `warmed`: the
    seconds of calls that are made once before they count."""
    pause = SETTLE_SECONDS if threads > 1 and len(runs) > 1 else 0.0
    seconds = {name: agreed(_about(run, warmed)) for name, run in runs.items()}
    most = _most_turns(seconds) if warmed else {}
    taken: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in runs}
    for done in range(rounds):
        report(done, rounds)
        for name, run in runs.items():
            if done >= most.get(name, rounds):
                continue
            time.sleep(pause)
            count = min(MOST_IN_A_TURN, max(1, math.floor(TURN_SECONDS / seconds[name])))
            taken[name].append(_turn(run, count, count > 1 or seconds[name] < warmed))
    return taken


def _about(run: Run, warmed: float) -> float:
    """The seconds of a call; of short ones, of two."""
    first = _seconds_of(run)
    return min(first, _seconds_of(run)) if first < warmed * 10 else first


def _most_turns(seconds: dict[str, float]) -> dict[str, int]:
    """How many turns those get that are hopelessly slow."""
    fastest = min(seconds.values(), default=0.0)
    return {name: max(_FEW_TURNS, math.floor(_HOPELESS_SECONDS / taken))
            for name, taken in seconds.items() if taken > _HOPELESS * fastest}


def rounds_within(runs: dict[str, Run], seconds: float, least: int = 5, most: int = 200) -> int:
    """The number of rounds that take about `seconds` in all."""
    started = time.perf_counter()
    for run in runs.values():
        run()
    per_round = max(time.perf_counter() - started, TURN_SECONDS * len(runs))
    return int(np.clip(seconds / per_round, least, most))


def difference(found: Sequence[Array], ours: Sequence[Array]) -> float:
    """The largest error of outputs against ours; a float's type may be another than ours."""
    if len(found) != len(ours):
        return inf
    return max((error_of(f.astype(o.dtype) if o.dtype.kind == "f" else f, o)
                for f, o in zip(found, ours, strict=True)), default=0.0)


def _copied(output: Any) -> Array:
    """A copy of the output, since some runtimes reuse its memory for the next call."""
    return np.array(to_numpy(output))


def _seconds_of(run: Run) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _turn(run: Run, count: int, warm: bool) -> list[tuple[float, float]]:
    """Seconds of wall and of CPU time of some calls in a row. `warm`: after one that is not
    counted."""
    if warm:
        run()
    taken: list[tuple[float, float]] = []
    for _ in range(count):
        cpu, wall = time.process_time(), time.perf_counter()
        run()
        taken.append((time.perf_counter() - wall, time.process_time() - cpu))
    return taken


def _timing(calls: Sequence[tuple[float, float]]) -> Timing:
    walls, cpus = ([1e3 * seconds for seconds in times] for times in zip(*calls, strict=True))
    return Timing(statistics.median(walls), min(walls), statistics.median(cpus))
