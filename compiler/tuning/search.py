"""The search for the fastest schedule of one kernel.

It starts at the rules' own choice and asks the target for candidates around the best so far, until
no step helps, or the time or the number of candidates is used up. A candidate wins only if it is
clearly faster each time it is measured again, because the best of many measurements is partly
luck, and so is the placement of code and data in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dialects.strata.schedule import Schedule

CLEARLY = 0.97
"""The maximum time of a winner relative to the rules' choice."""
FINALISTS = 2
AGAIN = 3
"""The number of repeated measurements of a finalist, each with a different memory placement."""
RESERVE = 0.3
"""The maximum share of the time that is reserved for these measurements."""
AT_ONCE = 4
"""The number of candidates that are compiled before the first of them is timed."""


@dataclass(frozen=True)
class Mode:
    """The effort of a search. `rounds`: the number of rounds, each starting from the best so far.

    `batch`: the number of candidates per round. `turns`: the number of timings per candidate.
    `least`: the least share of a model's time for which a kernel is tuned.
    """

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
    """A candidate that was timed: its time relative to the rules' choice."""

    schedule: Schedule
    ratio: float


@dataclass(frozen=True)
class Prepared:
    """A compiled candidate. `code`: equal for equal code."""

    schedule: Schedule
    code: str


class Laboratory(Protocol):
    """Compiles and times candidates of one kernel."""

    def prepare(self, schedules: Sequence[Schedule], seconds: float) -> Sequence[Prepared]:
        """Compile candidates, and return those that succeeded."""
        ...

    def measure(
        self, candidate: Prepared, best: float, turns: int, seconds: float
    ) -> float | None:
        """The time relative to the rules' choice; None for a wrong candidate."""
        ...

    def renew(self) -> None:
        """Load the rules' choice again, at other memory addresses."""
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
    """The seconds spent on measuring so far."""

    def __post_init__(self) -> None:
        self.begun = self.clock()

    def run(self) -> Trial | None:
        """Run the search. Returns the winner, or None if the rules' choice is the best."""
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
        """The best after a batch. Candidates with equal code count once."""
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
        """The better of the best so far and a candidate."""
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
        """The best of the candidates that are clearly faster each time they are measured again.

        The best candidate is always measured again; the others only while there is time.
        """
        seem = sorted((t for t in self.trials if t.ratio < CLEARLY), key=lambda t: t.ratio)
        again: list[Trial] = []
        for trial in seem[:FINALISTS]:
            if not again or self._remains() > 0:
                again.append(self._again(ready[trial.schedule]))
        return min((t for t in again if t.ratio < CLEARLY), key=lambda t: t.ratio, default=None)

    def _again(self, candidate: Prepared) -> Trial:
        """The worst of several measurements, which stop at the first that is not clearly faster."""
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
        """The seconds left for candidates, without the time reserved for finalists."""
        each = self.measuring / max(1, len(self.trials))
        reserve = min(FINALISTS * AGAIN * each, RESERVE * (self.until - self.begun))
        return self._remains() - reserve

    def _remains(self) -> float:
        return self.until - self.clock()
