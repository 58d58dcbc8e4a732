"""The search for the fastest schedule of one kernel.

It starts at the rules' own choice and asks the target for candidates around the best so far, until
no step helps, or the time or the number of candidates is used up. A candidate wins only if it is
clearly faster whenever it is measured again, for of many measurements the best is partly luck, and
so is where code and data come to lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dialects.strata.schedule import Schedule

CLEARLY = 0.97
"""A winner takes at most this part of the time of the rules' own choice."""
FINALISTS = 2
AGAIN = 3
"""How often a finalist is measured again, each time with all in other places of memory."""
RESERVE = 0.3
"""The share of the time that is kept for that, at most."""
AT_ONCE = 4
"""Candidates of a task that are compiled before the first of them is timed."""


@dataclass(frozen=True)
class Mode:
    """How long to search. `rounds`: how often to go on from the best. `batch`: candidates of a
    round. `turns`: how often a candidate is timed. `least`: the share of a model's time from which
    on a kernel is worth it."""

    name: str
    rounds: int
    batch: int
    turns: int
    least: float


MODES = {m.name: m for m in (
    Mode("default", 3, 18, 7, 0.01),
    Mode("max-autotune", 8, 60, 11, 0.0),
)}


@dataclass(frozen=True)
class Trial:
    """A candidate that was timed: its time over that of the rules' own choice."""

    schedule: Schedule
    ratio: float


@dataclass(frozen=True)
class Prepared:
    """A candidate whose code is there. `code`: equal for equal code."""

    schedule: Schedule
    code: str


class Laboratory(Protocol):
    """Compiles and times candidates of one kernel."""

    def prepare(self, schedules: Sequence[Schedule], seconds: float) -> Sequence[Prepared]:
        """Those that can be compiled."""
        ...

    def measure(
        self, candidate: Prepared, best: float, turns: int, seconds: float
    ) -> float | None:
        """The time over that of the rules' own choice; None for one that is wrong."""
        ...

    def renew(self) -> None:
        """Load the rules' own choice again, to other places of memory."""
        ...


@dataclass
class Search:
    """One search. `rules`: the rules' own choice and the hash of its code."""

    candidates: Callable[[Schedule], Sequence[Schedule]]
    laboratory: Laboratory
    rules: Prepared
    mode: Mode
    until: float
    clock: Callable[[], float]
    trials: list[Trial] = field(default_factory=list[Trial])
    begun: float = field(init=False)
    measuring: float = 0.0
    """Seconds that measuring has taken so far."""

    def __post_init__(self) -> None:
        self.begun = self.clock()

    def run(self) -> Trial | None:
        """The winner; None where the rules' own choice is the best."""
        seen, codes = {self.rules.schedule}, {self.rules.code}
        best = Trial(self.rules.schedule, 1.0)
        ready: dict[Schedule, Prepared] = {}
        for _ in range(self.mode.rounds):
            fresh = [s for s in self.candidates(best.schedule) if s not in seen]
            batch = fresh[:self.mode.batch]
            seen.update(batch)
            found = self._timed(batch, codes, best, ready)
            if found is best:
                break
            best = found
        return self._confirmed(ready)

    def _timed(
        self, batch: Sequence[Schedule], codes: set[str], best: Trial,
        ready: dict[Schedule, Prepared],
    ) -> Trial:
        """The best after a batch. Candidates of the same code are one."""
        for start in range(0, len(batch), AT_ONCE):
            if self.left() <= 0:
                break
            some = self.laboratory.prepare(batch[start: start + AT_ONCE], self.left())
            for candidate in some:
                if candidate.code not in codes and self.left() > 0:
                    codes.add(candidate.code)
                    best = self._tried(candidate, best, ready)
        return best

    def _tried(
        self, candidate: Prepared, best: Trial, ready: dict[Schedule, Prepared]
    ) -> Trial:
        """The better one of the best so far and a candidate."""
        started = self.clock()
        ratio = self.laboratory.measure(candidate, best.ratio, self.mode.turns, self.left())
        self.measuring += self.clock() - started
        if ratio is None:
            return best
        trial = Trial(candidate.schedule, ratio)
        self.trials.append(trial)
        ready[trial.schedule] = candidate
        return min(best, trial, key=lambda t: t.ratio)

    def _confirmed(self, ready: dict[Schedule, Prepared]) -> Trial | None:
        """The best of those that seem clearly faster, and are whenever they are measured again.

        The best is measured again whatever the time is; all else only while there is some.
        """
        seem = sorted((t for t in self.trials if t.ratio < CLEARLY), key=lambda t: t.ratio)
        again: list[Trial] = []
        for trial in seem[:FINALISTS]:
            if not again or self._remains() > 0:
                again.append(self._again(ready[trial.schedule]))
        return min((t for t in again if t.ratio < CLEARLY), key=lambda t: t.ratio, default=None)

    def _again(self, candidate: Prepared) -> Trial:
        """The worst of some measurements; they end with the first that is not clearly faster."""
        worst = 0.0
        for _ in range(AGAIN):
            self.laboratory.renew()
            left = max(0.0, self._remains())
            found = self.laboratory.measure(candidate, 1.0, self.mode.turns, left)
            worst = max(worst, 1.0 if found is None else found)
            if worst >= CLEARLY or self._remains() <= 0:
                break
        return Trial(candidate.schedule, worst)

    def left(self) -> float:
        """Seconds that are left for candidates: what measuring finalists will take is not."""
        each = self.measuring / max(1, len(self.trials))
        reserve = min(FINALISTS * AGAIN * each, RESERVE * (self.until - self.begun))
        return self._remains() - reserve

    def _remains(self) -> float:
        return self.until - self.clock()
