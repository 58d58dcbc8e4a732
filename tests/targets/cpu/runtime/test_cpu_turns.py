"""How threads share the programs of a launch: every one runs once, and nobody waits for long."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier

import numpy as np
import pytest

from targets.cpu.build.cache import ObjectCache
from targets.cpu.build.jit import compile_texts, link
from targets.cpu.driver.spread import note, spread
from targets.cpu.driver.table import LINE_BYTES
from targets.cpu.driver.turns import begin, next_range
from targets.cpu.llvm.modules import definitions
from targets.cpu.machine import machine_of
from targets.cpu.runtime.threads import FIRST_ARGUMENT, SCHEDULER_ENTRY, scheduler_addresses

_ENTRIES = """
define void @begin(ptr %turns, i64 %thread) {
  call void @strata_begin(ptr %turns, i64 %thread)
  ret void
}
define void @spread(ptr %table, ptr %turns, i64 %thread, i64 %threads) {
  call void @strata_spread(ptr %table, ptr %turns, i64 %thread, i64 %threads)
  ret void
}
define void @note(ptr %table, ptr %turns, i64 %threads) {
  call void @strata_note(ptr %table, ptr %turns, i64 %threads)
  ret void
}
define void @next(ptr %table, ptr %turns, i64 %total, i64 %least, i64 %thread, i64 %threads, \
ptr %result) {
  %pair = call {i64, i64} @strata_next_range(ptr %table, ptr %turns, i64 %total, i64 %least, \
i64 %thread, i64 %threads)
  store {i64, i64} %pair, ptr %result
  ret void
}
"""


@cache
def _native(name: str) -> Callable[..., None]:
    text = definitions([begin, next_range, note, spread], {}).text + _ENTRIES
    library = link(compile_texts([text], machine_of(), ObjectCache(None)), name)
    _libraries.append(library)
    return ctypes.CFUNCTYPE(None)(library.address)


_libraries: list[object] = []


class _Turns:
    """The memory of turns, and the programs that a thread gets from it."""

    def __init__(self, threads: int):
        self.threads = threads
        self.memory = np.zeros((threads + 1) * LINE_BYTES, np.uint8)
        self.base = ctypes.c_void_p(self.memory.ctypes.data)
        self.table = (ctypes.c_void_p * FIRST_ARGUMENT)()

    def begin(self, thread: int) -> None:
        _native("begin")(self.base, ctypes.c_int64(thread))

    def take(self, thread: int, total: int, least: int = 1) -> list[tuple[int, int]]:
        """All that this thread gets until there is nothing left."""
        pair, found = (ctypes.c_int64 * 2)(), list[tuple[int, int]]()
        numbers = [ctypes.c_int64(n) for n in (total, least, thread, self.threads)]
        while True:
            _native("next")(self.table, self.base, *numbers, ctypes.byref(pair))
            if pair[0] >= pair[1]:
                return found
            found.append((pair[0], pair[1]))


def _programs(pieces: list[tuple[int, int]]) -> list[int]:
    return sorted(k for low, high in pieces for k in range(low, high))


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize("total", [0, 1, 2, 7, 24, 1009])
@pytest.mark.parametrize("least", [1, 5, 2000])
def test_a_thread_that_is_alone_in_time_runs_all(threads: int, total: int, least: int) -> None:
    turns = _Turns(threads)
    for _ in range(3):  # one launch after another
        for thread in range(threads):
            turns.begin(thread)
        early = turns.take(threads - 1, total, least)
        assert _programs(early) == list(range(total))
        assert all(turns.take(thread, total, least) == [] for thread in range(threads))


def test_a_thread_starts_with_its_own_part() -> None:
    turns = _Turns(4)
    for thread in range(4):
        turns.begin(thread)
    assert turns.take(2, 400)[:2] == [(200, 213), (213, 226)]
    assert turns.take(0, 400) == []


def test_one_thread_takes_all_at_once() -> None:
    turns = _Turns(1)
    turns.begin(0)
    assert turns.take(0, 1000) == [(0, 1000)]


def test_small_programs_come_in_larger_numbers() -> None:
    turns = _Turns(2)
    for thread in range(2):
        turns.begin(thread)
    assert turns.take(0, 100, least=30) == [(0, 30), (30, 50), (50, 80), (80, 100)]


@pytest.mark.parametrize("total", [1, 3, 64, 5003])
def test_every_program_runs_once(total: int) -> None:
    """Threads that race through many launches; each is behind a barrier, as in a model."""
    threads, launches = 4, 60
    turns, together = _Turns(threads), Barrier(threads)

    def work(thread: int) -> list[list[tuple[int, int]]]:
        found = list[list[tuple[int, int]]]()
        for _ in range(launches):
            together.wait()
            turns.begin(thread)
            found.append(turns.take(thread, total))
        return found

    with ThreadPoolExecutor(threads) as pool:
        shares = list(pool.map(work, range(threads)))
    for launch in range(launches):
        assert _programs([p for share in shares for p in share[launch]]) == list(range(total))


# ---------------------------------------------------------------------- where threads run
@pytest.mark.skipif(not any(scheduler_addresses()) or len(os.sched_getaffinity(0)) < 2,
                    reason="needs Linux, and two processors")
@pytest.mark.parametrize("clash", [True, False])
def test_a_helper_leaves_the_processor_of_another(clash: bool) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    first, second = allowed[:2]
    turns = _Turns(2)
    turns.table[SCHEDULER_ENTRY: FIRST_ARGUMENT] = scheduler_addresses()

    def caller() -> None:
        _native("note")(turns.table, turns.base, ctypes.c_int64(2))

    def helper() -> set[int]:
        os.sched_setaffinity(0, {first if clash else second})
        turns.memory[16:20].view(np.int32)[0] = first + 1  # the caller may have moved since
        _native("spread")(turns.table, turns.base, ctypes.c_int64(1), ctypes.c_int64(2))
        return os.sched_getaffinity(0)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(caller).result()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(helper).result()
    assert found == ({*allowed} - {first} if clash else {second})
    assert sorted(os.sched_getaffinity(0)) == allowed
    place = turns.memory[LINE_BYTES + 16: LINE_BYTES + 20].view(np.int32)[0]
    assert place - 1 in found


def test_without_the_functions_threads_stay_where_they_are() -> None:
    turns = _Turns(2)
    _native("note")(turns.table, turns.base, ctypes.c_int64(2))
    _native("spread")(turns.table, turns.base, ctypes.c_int64(1), ctypes.c_int64(2))
    assert not turns.memory.any()
