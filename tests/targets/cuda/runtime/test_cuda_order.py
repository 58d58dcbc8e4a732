"""Which steps of a graph wait for which."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from targets.cuda.runtime.dependencies import Access, waits_of

LANES = 4


def read(start: int, end: int, memory: int = 0) -> Access:
    return Access(memory, start, end, False)


def write(start: int, end: int, memory: int = 0) -> Access:
    return Access(memory, start, end, True)


def test_what_shares_no_bytes_does_not_wait() -> None:
    assert waits_of([[write(0, 4)], [write(4, 8)], [write(0, 4, 1)], [read(8, 9), write(9, 10)]],
                    LANES) == [[], [], [], []]
    assert waits_of([[read(0, 4)], [read(2, 6)]], LANES) == [[], []]
    assert waits_of([[write(0, 0)], [write(0, 0)], []], LANES) == [[], [], []]


def test_three_products_of_one_input_and_what_takes_them_all() -> None:
    products = [[read(0, 4), write(4 * k, 4 * k + 4)] for k in (1, 2, 3)]
    assert waits_of([[write(0, 4)], *products, [read(4, 16), write(16, 20)]], LANES) == [
        [], [0], [0], [0], [1, 2, 3]]


def test_a_step_waits_for_no_other_that_these_wait_for() -> None:
    steps = [[write(0, 4)], [read(0, 4), write(4, 8)], [read(0, 8)]]
    assert waits_of(steps, LANES) == [[], [0], [1]]


def test_memory_that_is_used_again_waits_for_its_readers() -> None:
    steps = [[write(0, 4)], [read(0, 2)], [read(2, 4)], [write(0, 3)], [read(3, 4)]]
    assert waits_of(steps, LANES) == [[], [0], [0], [1, 2], [0]]


def test_many_steps_that_need_nobody_are_few_lanes() -> None:
    steps = [[write(4 * k, 4 * k + 4)] for k in range(7)]
    assert waits_of(steps, lanes=3) == [[], [], [], [0], [1], [2], [3]]
    joined = waits_of([*steps, [read(0, 28), write(28, 32)], [read(28, 32)]], lanes=3)
    assert joined[-2:] == [[4, 5, 6], [7]]


def test_every_conflict_is_in_order() -> None:
    """Of random steps, each comes behind all earlier ones that it conflicts with.

    And of any four one comes behind another.
    """
    random = np.random.default_rng(0)
    for _ in range(50):
        steps = [[Access(int(m), int(s), int(s + n), bool(w)) for m, s, n, w in zip(
            random.integers(0, 2, 3), random.integers(0, 20, 3), random.integers(0, 6, 3),
            random.integers(0, 2, 3), strict=True)] for _ in range(20)]
        waits = waits_of(steps, lanes=3)
        behind: list[set[int]] = []
        for number, found in enumerate(waits):
            behind.append({*found, *(k for n in found for k in behind[n])})
            needed = {k for k in range(number) for a in steps[number] for b in steps[k]
                      if a.memory == b.memory and a.conflicts(b)}
            assert needed <= behind[number]
            assert all(k not in behind[n] for k in found for n in found)
        assert all(any(a in behind[b] for a, b in combinations(group, 2))
                   for group in combinations(range(20), 4))
