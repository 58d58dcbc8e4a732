"""When launches and exchanges end that share multiprocessors."""

from __future__ import annotations

from itertools import pairwise

import pytest

from passes.analyses.host.occupancy import Task, seconds_of


@pytest.mark.parametrize(("turns", "seconds"), [(1, 3.0), (4, 3.0), (5, 6.0), (13, 12.0)])
def test_a_launch_alone_takes_waves(turns: int, seconds: float) -> None:
    assert seconds_of([Task(turns, 3.0, ())], 4) == seconds


def test_launches_fill_what_others_leave() -> None:
    assert seconds_of([Task(5, 1.0, ()), Task(3, 1.0, ())], 4) == 2.0
    assert seconds_of([Task(5, 1.0, ()), Task(3, 1.0, (0,))], 4) == 3.0


def test_delays_are_hidden_behind_others() -> None:
    alone = [Task(4, 1.0, (), 0.5)]
    assert seconds_of(alone, 4) == 1.5
    assert seconds_of([*alone, Task(4, 1.0, (), 0.5)], 4) == 2.5
    assert seconds_of([*alone, Task(4, 1.0, (0,), 0.5)], 4) == 3.0


def test_an_exchange_holds_its_multiprocessors() -> None:
    exchange = Task(1, 10.0, (), is_exchange=True)
    assert seconds_of([exchange, Task(6, 2.0, ())], 4) == 10.0
    assert seconds_of([exchange, Task(18, 2.0, ())], 4) == 12.0  # 3 at a time, then 4
    assert seconds_of([Task(0, 10.0, (), is_exchange=True), Task(18, 2.0, ())], 4) == 10.0


def test_an_exchange_waits_for_turns_that_have_begun() -> None:
    """It has none of those that wait when it is ready, but the next ones."""
    launch, short = Task(8, 5.0, ()), Task(1, 1.0, ())
    exchange = Task(2, 4.0, (1,), is_exchange=True)
    assert seconds_of([launch, short, exchange], 4) == 15.0
    spared = Task(8, 5.0, (), most=2)
    assert seconds_of([spared, short, exchange], 4) == 20.0


def test_exchanges_follow_each_other() -> None:
    tasks = [Task(2, 1.0, (), is_exchange=True)]
    tasks += [Task(2, 1.0, (k,), is_exchange=True) for k in range(4)]
    assert seconds_of(tasks, 4) == 5.0


@pytest.mark.parametrize("count", [1, 7, 132, 500])
def test_no_plan_is_faster_than_all_multiprocessors(count: int) -> None:
    tasks = [Task(count, 1.0, ()), *(Task(count, 1.0, (k,)) for k in range(3))]
    found = [seconds_of(tasks, n) for n in (1, 2, 132, 1000)]
    assert all(b <= a for a, b in pairwise(found))
    assert all(f >= 4 * count / n for f, n in zip(found, (1, 2, 132, 1000), strict=True))
