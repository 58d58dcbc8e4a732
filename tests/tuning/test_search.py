"""The search for one kernel's schedule, on times that are made up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from compiler.tuning.bench import FEW_TURNS, take_turns
from compiler.tuning.search import AGAIN, CLEARLY, FINALISTS, MODES, Mode, Prepared, Search
from dialects.strata.schedule import Level, Schedule
from dialects.symbolic.symbol import Symbol

MODE = Mode("test", rounds=4, batch=3, turns=5, least=0.0)


def tiles(size: int) -> Schedule:
    return Schedule((Level("grid", Symbol.axis("i0"), size, lanes=True),))


def neighbours(around: Schedule) -> list[Schedule]:
    """Twice and half the tile."""
    size = around.levels[0].tile
    return [tiles(2 * size), tiles(max(1, size // 2))]


@dataclass
class Stub:
    """Tile -> time over that of the rules; None for one that computes something else."""

    times: Mapping[int, float | None]
    codes: Callable[[int], str] = str
    prepared: list[int] = field(default_factory=list[int])
    measured: list[int] = field(default_factory=list[int])
    now: float = 0.0

    def prepare(self, schedules: Sequence[Schedule], seconds: float) -> list[Prepared]:
        sizes = [s.levels[0].tile for s in schedules]
        self.prepared += sizes
        return [Prepared(tiles(n), self.codes(n)) for n in sizes if n in self.times]

    def renew(self) -> None:
        pass

    def measure(
        self, candidate: Prepared, best: float, turns: int, seconds: float
    ) -> float | None:
        self.now += 1
        self.measured.append(candidate.schedule.levels[0].tile)
        return self.times[candidate.schedule.levels[0].tile]


def search(stub: Stub, until: float = 1000.0) -> Search:
    return Search(neighbours, stub, Prepared(tiles(8), stub.codes(8)), MODE, until,
                  lambda: stub.now)


def test_goes_on_from_the_best() -> None:
    stub = Stub({4: 1.2, 16: 0.9, 32: 0.8, 64: 0.85})
    found = search(stub).run()
    assert found is not None
    assert (found.schedule, found.ratio) == (tiles(32), 0.8)
    assert stub.prepared == [16, 4, 32, 64]


def test_the_rules_stay_where_nothing_is_clearly_faster() -> None:
    assert search(Stub({4: 1.1, 16: CLEARLY + 0.01, 32: 1.0})).run() is None


def test_wrong_and_uncompilable_candidates_are_out() -> None:
    found = search(Stub({16: None, 4: 0.9, 2: 1.0})).run()
    assert found is not None and found.schedule == tiles(4)


def test_equal_code_is_timed_once() -> None:
    stub = Stub({4: 0.9, 16: 0.9, 2: 0.5}, codes=lambda n: "same" if n >= 8 else str(n))
    search(stub).run()
    assert 16 in stub.prepared and 16 not in stub.measured


def test_a_winner_is_measured_again() -> None:
    luck = iter((0.5, 1.0, 1.0, 0.6, 0.6, 1.0))

    class Lucky(Stub):
        def measure(
            self, candidate: Prepared, best: float, turns: int, seconds: float
        ) -> float | None:
            return next(luck)

    assert search(Lucky({16: 0.0, 4: 0.0, 32: 0.0})).run() is None


def test_stops_when_time_is_up() -> None:
    stub = Stub({4 << n: 0.9 ** n for n in range(10)})
    found = search(stub, until=1.0).run()
    assert found is not None and found.schedule == tiles(16)
    assert stub.measured == [16] * 2  # the best is measured again whatever the time is


@pytest.mark.parametrize("until", [20.0, 40.0])
def test_finalists_have_their_time(until: float) -> None:
    stub = Stub({4 << n: 0.9 ** n for n in range(40)})
    many = search(stub, until)
    many.mode = replace(MODE, rounds=100)
    assert many.run() is not None
    assert stub.now <= until
    assert stub.measured[-AGAIN * FINALISTS:-AGAIN] == stub.measured[-AGAIN * FINALISTS:][:AGAIN]


def test_the_modes_are_ordered() -> None:
    quick, thorough = MODES["default"], MODES["max-autotune"]
    assert quick.rounds < thorough.rounds and quick.batch < thorough.batch


# ---------------------------------------------------------------------- turns
def ticking(seconds: Sequence[float]) -> Callable[[int], float]:
    """A timer that tells these times, then the last one for ever."""
    left = list(seconds)
    return lambda calls: left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.parametrize(("times", "turns"), [
    ([1.6], 2), ([1.2], FEW_TURNS), ([1.05], 7), ([0.5, 3.0, 0.5], 7)])
def test_the_hopeless_get_fewer_turns(times: list[float], turns: int) -> None:
    timed = take_turns((ticking(times), ticking([1.0])), 1, 1.0, 7, 1e9, lambda: 0.0)
    assert len(timed.seconds) == turns


def test_turns_end_with_the_time() -> None:
    timed = take_turns((ticking([1.0]), ticking([1.0])), 1, 1.0, 7, 0.0, lambda: 1.0)
    assert len(timed.seconds) == FEW_TURNS


def test_what_disturbs_some_turns_does_not_count() -> None:
    pair = ticking([9.0, 0.6, 0.6, 0.6]), ticking([1.0, 50.0, 1.0])
    assert take_turns(pair, 1, 10.0, 5, 1e9, lambda: 0.0).ratio == 0.6


def test_the_best_turns_must_be_better_too() -> None:
    pair = ticking([0.9]), ticking([1.0, 1.0, 0.8, 1.0])
    assert take_turns(pair, 1, 10.0, 4, 1e9, lambda: 0.0).ratio == pytest.approx(0.9 / 0.8)
