"""How long the launches of a running program take: what `Running.profile` of a target returns.

A `Profile` runs two programs in turns: one that times its launches, and the plain one. Nothing of
this is in programs that are not profiled. `CounterProfile` serves targets whose programs count
ticks themselves.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dialects.records import dataclass
from targets.communication import slowest

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from targets.communication import Exchange
    from targets.interface import Executable

LEAST_ROUNDS, MOST_ROUNDS = 8, 32
TRIES = 4
"""How many times as many rounds are made where others had the processor, if they do not take more
than so many times as long as was wished."""
MOST_RUNS = 100_000
QUIET = 0.05
"""The share of the time that others may have the processor without a word about it."""
Round = TypeVar("Round")


@dataclass(frozen=True)
class Probe:
    """What a machine's limits are measured with: the rows and columns of pairs of matrices that are
    multiplied, and the f32 elements of an array that is doubled, which no cache should hold.

    The fastest product counts. A small one may end before another process interrupts it, a large
    one keeps many threads busy. `narrow`: the type of narrower floats that the machine multiplies
    faster than f32, if any.
    """

    sides: tuple[int, ...]
    length: int
    narrow: str = ""


@dataclass(frozen=True)
class LaunchTime:
    """A launch: the seconds of a run in it, and how often a run makes it.

    `code`: facts of the code that ran, such as `registers` of a thread and `spills`, its bytes of
    memory for values that found no register.
    """

    seconds: float
    runs: float
    code: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Timings:
    """Mean seconds of a run in the quickest rounds: `wall` of the program that times launches,
    `plain` of the other one.

    `host`: of what lies between launches; `call`: of what lies between the runs' first and last
    ticks. Both are measured, so what launches, `host` and `call` leave of `wall`, which another
    clock tells, is what nobody accounts for. `where`: what ran the programs, as `2 thread(s)`.
    `between` and `outside`: in words, what `host` and `call` are. `notes`: sentences on how
    launches were timed. `disturbed`: others had the processor, so that no round shows the program
    alone: each figure is from its own quickest rounds, and `wall` is their sum.
    """

    wall: float
    plain: float
    host: float
    call: float
    calls: int
    launches: Sequence[LaunchTime]
    where: str
    between: str
    outside: str
    notes: Sequence[str] = ()
    disturbed: bool = False


class Profile(ABC):
    """Programs that are timed. `launches`: operations of the module, in the order of the times;
    collective operations are among them."""

    launches: Sequence[Any]

    @abstractmethod
    def measure(self, inputs: Sequence[Array], seconds: float) -> Timings:
        """The times of runs on these inputs, over about `seconds` for each program.

        Raises as `Executable.run`.
        """


def runs_in(seconds: float, once: float, exchanges: Sequence[Exchange] = ()) -> int:
    """How many runs of `once` seconds fill some seconds. `exchanges`: the program's collective
    operations, whose ranks all get the same number."""
    return int(min(max(seconds / max(slowest(once, exchanges), 1e-7), 1), MOST_RUNS))


def mean_seconds(run: Callable[[], object], count: int) -> float:
    """The mean seconds of so many runs."""
    started = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - started) / count


def seconds_waited() -> float:
    """How long this thread has waited for a processor that others used; 0 if Linux does not tell.
    """
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def disturbance(share: float) -> list[str]:
    """What to say of the share of the time in which others had the processor, if it matters."""
    return [] if share <= QUIET else [
        f"other programs had the processor for {share:.0%} of the time, so each row is of its own "
        "quickest runs, and the call is their sum; launches of some milliseconds were interrupted "
        "even there, and are faster on an idle machine"]


def quick_part(
    rounds: Sequence[Round], seconds: Callable[[Round], float], tries: int = 1
) -> list[Round]:
    """The quickest quarter of some rounds, at least one: those that others disturbed least. Of
    rounds that were made so many times, as many as of those that were planned."""
    return sorted(rounds, key=seconds)[: max(len(rounds) // (4 * tries), 1)]


class CounterProfile(Profile):
    """A program that times its launches, in ticks of some counter, and the plain program.

    `counts`: the counter's last value, a word of its own, and then for what is outside of runs, for
    the host's work, and for each launch the ticks and how often it ran, all as i64. The counter's
    frequency follows from the clock of the runs themselves.
    """

    def __init__(
        self, executable: Executable, plain: Executable, launches: Sequence[Any], counts: Array,
        where: str,
    ) -> None:
        self.executable, self.plain = executable, plain
        self.launches, self.counts, self.where = launches, counts, where

    @property
    def last(self) -> int:
        """The value of the counter when the last run ended."""
        return int(self.counts[0])

    def rows(self) -> list[tuple[int, int]]:
        """Ticks and number of runs: outside of runs, on the host, of each launch."""
        return [(int(a), int(b)) for a, b in self.counts[2:].reshape(-1, 2)]

    def measure(self, inputs: Sequence[Array], seconds: float) -> Timings:
        def timed() -> None:
            self.executable.run(inputs)

        def plain() -> None:
            self.plain.run(inputs)

        exchanges = self.plain.exchanges
        once = min(mean_seconds(plain, 1) for _ in range(3))
        count = runs_in(seconds / MOST_ROUNDS, once, exchanges)
        rounds = min(max(runs_in(seconds, count * once, exchanges), LEAST_ROUNDS), MOST_ROUNDS)
        timed()  # from whose end the frequency is measured
        first, began = self.last, time.perf_counter()
        waited, tries = seconds_waited(), 0
        pairs: list[tuple[_Counted, float]] = []
        share, most = 1.0, 1 if exchanges else TRIES  # ranks need equal numbers
        while share > QUIET and tries < most and (
                not tries or time.perf_counter() - began < 2 * TRIES * seconds):
            pairs += [(self._counted(timed, count), mean_seconds(plain, count))
                      for _ in range(rounds)]
            share, tries = (seconds_waited() - waited) / (time.perf_counter() - began), tries + 1
        timed()  # so that the counter and the clock are read together
        tick = (time.perf_counter() - began) / (self.last - first)
        counted = [x for x, _ in pairs]
        kept = quick_part(counted, lambda x: x.seconds(tick, count), tries)
        calls, disturbed = len(kept) * count, share > QUIET
        rows = _quickest_of_each(counted, len(kept)) if disturbed else np.sum(
            [x.rows for x in kept], 0)
        outside, host, *launches = found = [
            LaunchTime(int(ticks) * tick / calls, int(runs) / calls) for ticks, runs in rows]
        wall = sum(x.seconds for x in found) if disturbed else _mean([x.wall for x in kept])
        return Timings(
            wall, _mean(quick_part([p for _, p in pairs], lambda x: x, tries)),
            host.seconds, outside.seconds, calls, launches, self.where,
            "the host's work between launches: sizes, copies, control flow",
            "arguments, starting and ending threads", disturbance(share), disturbed)

    def _counted(self, timed: Callable[[], None], count: int) -> _Counted:
        """A round of runs behind one that does not count, from whose end their ticks begin."""
        timed()
        self.counts[2:] = 0
        wall = mean_seconds(timed, count)
        return _Counted(wall, self.counts[2:].reshape(-1, 2).copy())


@dataclass(frozen=True)
class _Counted:
    """The mean seconds of a round's runs, and what `CounterProfile.counts` says of all of them."""

    wall: float
    rows: Array

    def seconds(self, tick: float, runs: int) -> float:
        """The mean seconds of a run by the clock that tells more: an interruption just before the
        round begins is in the counter's alone."""
        return max(self.wall, int(self.rows[:, 0].sum()) * tick / runs)


def _quickest_of_each(counted: Sequence[_Counted], kept: int) -> Array:
    """The rows of so many rounds, of each row those in which it was quickest."""
    rows = np.stack([x.rows for x in counted])
    order = np.argsort(rows[:, :, 0], axis=0)[:kept]
    return np.take_along_axis(rows, order[:, :, None], axis=0).sum(0)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
