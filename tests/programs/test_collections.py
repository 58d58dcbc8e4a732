"""How often compilations collect what they leave behind, in programs of few and of many objects."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable

import pytest

from compiler.programs import collection
from compiler.programs.collection import (
    FIRST,
    LEAVES,
    MOST_LEAVES,
    PAUSE,
    THRESHOLDS,
    rare_collections,
)

MOST_GARBAGE = 100_000
"""Objects of a compilation that nothing refers to may wait for a collection: some 10 MB. Those of
its first `FIRST` objects wait for the first one.
"""


@pytest.fixture
def collector() -> collection._Collector:  # pyright: ignore[reportPrivateUsage]
    return collection._Collector()  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(("seconds", "most"), [(0.0, LEAVES), (1e3, MOST_LEAVES)],
                         ids=["few objects", "many objects"])
def test_costly_collections_are_rare_but_come(
    collector: collection._Collector,  # pyright: ignore[reportPrivateUsage]
    monkeypatch: pytest.MonkeyPatch, seconds: float, most: int,
) -> None:
    """`seconds`: how long a collection takes; nothing else takes time."""
    now, number, found = [0.0], [0], list[int]()
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(collector, "_age", lambda: None)
    monkeypatch.setattr(collector, "_estimate", lambda: seconds)
    monkeypatch.setattr(collector, "_last", 0.0)

    def collect() -> int:
        found.append(number[0])
        now[0] += seconds
        return 0

    monkeypatch.setattr(gc, "collect", collect)
    for _ in range(4 * most):
        number[0] += 1
        collector.enter()
        collector.leave()
    assert found == [(k + 1) * most for k in range(4)]
    now[0] += PAUSE * seconds
    for _ in range(LEAVES):
        collector.enter()
        collector.leave()
    assert len(found) == 5


def test_frozen_objects_are_counted_once_and_stay_so(
    collector: collection._Collector,  # pyright: ignore[reportPrivateUsage]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counting visits each of them."""
    calls: list[str] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: len(calls.append("count") or "12"))
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: calls.append("unfreeze"))
    monkeypatch.setattr(collector, "_is_due", lambda: False)
    for _ in range(5):
        collector.enter()
        collector.leave()
    assert calls == ["count"]


def test_what_was_made_before_a_phase_counts_as_old(
    collector: collection._Collector,  # pyright: ignore[reportPrivateUsage]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: calls.append("unfreeze"))
    collector.enter()
    collector.enter()
    assert calls == ["freeze", "unfreeze"] * 2
    collector.leave()
    collector.leave()
    assert calls == ["freeze", "unfreeze"] * 3


def test_the_collector_is_set_back_whoever_is_last() -> None:
    before = gc.get_threshold()
    first, second = rare_collections(), rare_collections()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() >= THRESHOLDS
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before


def test_what_compilations_leave_behind_is_collected_in_the_end(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process that has compiled nothing before, and has run for a while."""
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    fresh = collection._Collector()  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(fresh, "_estimate", lambda: 0.0)
    monkeypatch.setattr(collection, "_COLLECTOR", fresh)
    left = [_left_behind(Cycle) for _ in range(LEAVES)]
    assert left[0]() is None


def test_garbage_inside_one_compilation_is_collected_soon() -> None:
    """A large model's compilation, too, holds little more than it uses."""
    class Cycle:
        living = most = 0

        def __init__(self) -> None:
            self.itself = self
            Cycle.living += 1
            Cycle.most = max(Cycle.most, Cycle.living)

        def __del__(self) -> None:
            Cycle.living -= 1

    with rare_collections():
        for _ in range(FIRST + MOST_GARBAGE):
            Cycle()
        assert Cycle.most <= FIRST + MOST_GARBAGE // 10
        Cycle.most = Cycle.living
        for _ in range(4 * MOST_GARBAGE):
            Cycle()
    assert Cycle.most <= MOST_GARBAGE


def test_what_a_phase_of_a_small_compilation_makes_is_not_visited() -> None:
    """As most objects are in use, a collection would cost much and free little."""
    found: list[str] = []

    def note(phase: str, _: object) -> None:
        found.append(phase)

    gc.collect()
    gc.callbacks.append(note)
    try:
        with rare_collections():
            kept = [[number] for number in range(FIRST * 3 // 4)]
            assert len(kept) == FIRST * 3 // 4
            assert not found
    finally:
        gc.callbacks.remove(note)


def test_collections_that_the_program_turned_off_stay_off() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with rare_collections():
            assert gc.get_threshold()[0] == 0
        assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


def test_nothing_of_a_compilation_stays_with_the_collector() -> None:
    before = list(gc.callbacks)
    with rare_collections(), rare_collections():
        gc.collect()
        assert gc.get_threshold() >= THRESHOLDS
    assert gc.callbacks == before


def _left_behind(make: Callable[[], object]) -> weakref.ref[object]:
    """A reference to garbage of a context with rare collections."""
    with rare_collections():
        return weakref.ref(make())


def test_the_first_collection_waits_for_programs_of_many_objects(
    collector: collection._Collector,  # pyright: ignore[reportPrivateUsage]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that has just imported its libraries is not stopped by a collection."""
    monkeypatch.setattr(collection, "SECONDS_PER_OBJECT", 1.0)
    found: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: found.append("collected"))
    for _ in range(MOST_LEAVES):
        assert not found
        collector.enter()
        collector.leave()
    assert found == ["collected"]


def test_a_context_that_keeps_little_ages_nothing_inside(
    collector: collection._Collector,  # pyright: ignore[reportPrivateUsage]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What an old object refers to waits for the rare collections of all."""
    aged: list[str] = []
    monkeypatch.setattr(collector, "_age", lambda: aged.append("aged"))
    before = gc.get_threshold()
    collector.enter(keeps_little=True)
    collector.enter()
    assert gc.get_threshold()[0] == max(before[0], THRESHOLDS[0]) and not aged
    collector.leave()
    collector.leave(keeps_little=True)
    assert aged == ["aged"] and gc.get_threshold() == before
    collector.enter()
    assert gc.get_threshold()[0] == max(before[0], FIRST)
    collector.leave()


def test_garbage_of_a_context_that_keeps_little_is_gone_at_its_end(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    monkeypatch.setattr(collection, "_COLLECTOR", collection._Collector())  # pyright: ignore[reportPrivateUsage]
    with rare_collections(keeps_little=True):
        left = weakref.ref(Cycle())
        with rare_collections():
            inner = weakref.ref(Cycle())
    assert left() is None and inner() is None
