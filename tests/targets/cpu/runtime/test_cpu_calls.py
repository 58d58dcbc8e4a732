"""Calls of one executable at once: none waits for another, and each has all that it writes."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
from targets.base import Executable
from targets.call_states import CallStates
from targets.cpu.runtime.calls import CallState
from targets.cpu.runtime.executable import CpuExecutable
from tests import processes
from tests.control.programs import COUNTED, PROGRAMS, Program

ROOT = Path(__file__).parents[4]
X, TRIPS = np.ones((2, 3), np.float32), np.array(3)


def compiled(program: Program, folder: Path, threads: int = 1) -> CpuExecutable:
    path = folder / f"{program.name}.mlir"
    path.write_text(program.text)
    loaded: Executable = compiler.compile(path, threads=threads, cache="off").loaded
    assert isinstance(loaded, CpuExecutable)
    return loaded


def at_once(*works: Callable[[], object]) -> None:
    """Run all in threads; the first error of one is raised."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.fixture
def counted(tmp_path: Path) -> CpuExecutable:
    return compiled(COUNTED, tmp_path)


def during_calls(executable: CpuExecutable, action: Callable[[], object]) -> None:
    """Let every call do something just before its machine code runs."""
    entry = executable._entry

    def with_action(address: Any) -> int:
        action()
        return entry(address)

    executable._entry = with_action


# ---------------------------------------------------------------------- at once
def test_two_calls_are_under_way_at_once(counted: CpuExecutable) -> None:
    during_calls(counted, threading.Barrier(2, timeout=30).wait)
    at_once(*[lambda: counted.run([X, TRIPS])] * 2)


@pytest.mark.parametrize("threads", [1, 3])
def test_many_threads_with_many_sizes(tmp_path: Path, threads: int) -> None:
    """Sizes that differ from call to call, control flow, memory asked for during the call."""
    executables = [compiled(program, tmp_path, threads) for program in PROGRAMS]
    expected = [[e.run(i) for i in p.inputs]
                for p, e in zip(PROGRAMS, executables, strict=True)]

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(30):
            k = int(rng.integers(len(PROGRAMS)))
            case = int(rng.integers(len(PROGRAMS[k].inputs)))
            found = executables[k].run(PROGRAMS[k].inputs[case])
            for a, b in zip(found, expected[k][case], strict=True):
                np.testing.assert_array_equal(a, b)

    at_once(*[lambda seed=seed: work(seed) for seed in range(16)])
    for executable in executables:
        assert len(executable.calls.idle) <= executable.calls.most
        assert not any(state.heap.has_blocks for state in executable.calls.idle)


def test_calls_at_once_are_no_more_than_processors(counted: CpuExecutable) -> None:
    under_way, most = 0, 0
    lock = threading.Lock()

    def action() -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.001)
        with lock:
            under_way -= 1

    counted.calls.most = 3
    during_calls(counted, action)
    at_once(*[lambda: [counted.run([X, TRIPS]) for _ in range(10)]] * 12)
    assert 2 <= most <= 3
    assert len(counted.calls.idle) <= 3 and counted.calls.busy == 0


def test_calls_share_the_threads(tmp_path: Path) -> None:
    executable = compiled(COUNTED, tmp_path, threads=8)
    counts: list[int] = []
    share = CallState.share

    def noted(self: CallState, pool: Any, threads: int) -> None:
        counts.append(threads)
        share(self, pool, threads)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CallState, "share", noted)
        executable.run([X, TRIPS])
        during_calls(executable, threading.Barrier(2, timeout=30).wait)
        at_once(*[lambda: executable.run([X, TRIPS])] * 2)
    assert counts[0] in (1, 8) and sorted(counts[1:]) == sorted((counts[0], max(1, counts[0] // 2)))


def test_a_failed_call_gives_its_state_back(counted: CpuExecutable) -> None:
    for _ in range(10):
        with pytest.raises(ValueError, match="input"):
            counted.run([X])
        with pytest.raises(ValueError):
            counted.run([X, np.array(-3)])
    assert len(counted.calls.idle) == 1
    np.testing.assert_array_equal(counted.run([X, TRIPS])[0], X / 8)


# ---------------------------------------------------------------------- the pool
class State:
    owner = 0


class Pool:
    """States that know nothing of models."""

    def __init__(self, most: int):
        self.states = CallStates(State, lambda: most)

    def use(self) -> Any:
        state = self.states.take()
        self.states.give(state)
        return state


def test_one_caller_has_one_state() -> None:
    pool = Pool(8)
    assert len({id(pool.use()) for _ in range(100)}) == 1


def test_who_waits_gets_a_state() -> None:
    """Though another thread takes what it gives back, again and again."""
    pool, done = Pool(1), threading.Event()

    def hog() -> None:
        while not done.is_set():
            pool.use()

    def patient() -> None:
        for _ in range(5):
            pool.use()

    hogs = [threading.Thread(target=hog) for _ in range(2)]
    for thread in hogs:
        thread.start()
    waiter = threading.Thread(target=patient)
    waiter.start()
    waiter.join(30)
    done.set()
    assert not waiter.is_alive()
    for thread in hogs:
        thread.join(30)
        assert not thread.is_alive()
    assert len(pool.states.idle) == 1 and not pool.states.busy


def test_a_call_inside_a_call_does_not_wait_for_it() -> None:
    pool = Pool(1)
    outer = pool.states.take()
    inner = pool.states.take()
    assert inner is not outer
    for state in (inner, outer):
        pool.states.give(state)


def test_a_lost_state_is_replaced() -> None:
    """As when Ctrl-C comes just when it was taken."""
    pool = Pool(1)
    pool.states.take()
    gc.collect()
    at_once(pool.use)


def test_a_state_that_nobody_gives_back_for_long() -> None:
    pool, taken = Pool(1), threading.Event()

    def hold() -> None:
        state = pool.states.take()
        taken.set()
        time.sleep(0.3)
        pool.states.give(state)

    def wait() -> None:
        taken.wait()
        pool.use()

    at_once(hold, wait, wait, wait)
    assert len(pool.states.idle) == 1


# ---------------------------------------------------------------------- signals and forks
@pytest.fixture
def restored() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("restored")
def test_a_signal_handler_calls_the_same_executable(counted: CpuExecutable) -> None:
    """In the middle of a call, of which there may be no more than one."""
    results: list[Any] = []
    counted.calls.most = 1

    def handle(*_: object) -> None:
        results.append(counted.run([X[:1], np.array(1)])[0])

    signal.signal(signal.SIGUSR1, handle)
    entry, first = counted._entry, True

    def interrupted(address: Any) -> int:
        nonlocal first
        if first:
            first = False
            signal.raise_signal(signal.SIGUSR1)
        return entry(address)

    counted._entry = interrupted
    np.testing.assert_array_equal(counted.run([X, TRIPS])[0], X / 8)
    np.testing.assert_array_equal(results[0], X[:1] / 2)
    assert len(results) == 1


@pytest.mark.usefixtures("restored")
def test_signals_at_any_time(counted: CpuExecutable) -> None:
    count = 0

    def handle(*_: object) -> None:
        nonlocal count
        count += 1
        np.testing.assert_array_equal(counted.run([X[:1], np.array(2)])[0], X[:1] / 4)

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        deadline = time.monotonic() + 20
        while count < 50 and time.monotonic() < deadline:
            np.testing.assert_array_equal(counted.run([X, TRIPS])[0], X / 8)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert count >= 50


FORK = """
import os, sys, threading, numpy as np, compiler
exe = compiler.compile(sys.argv[1], threads=int(sys.argv[2]), cache="off", **OPTIONS)
x = np.ones((2, 3), np.float32)
exe(x, np.array(3))
done = threading.Event()
def work():
    while not done.is_set():
        exe(x, np.array(500))
workers = [threading.Thread(target=work) for _ in range(4)]
for w in workers:
    w.start()
for _ in range(6):
    child = os.fork()
    if not child:
        h, _ = exe(x, np.array(3))
        os._exit(0 if (h == 0.125).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
done.set()
for w in workers:
    w.join()
"""


@pytest.mark.parametrize(("threads", "options"), [
    (1, "{}"), pytest.param(2, "{}", marks=pytest.mark.slow),
    pytest.param(1, "{'specialize': compiler.Specialize(after=2)}", marks=pytest.mark.slow)],
    ids=["one", "several", "specialized"])
def test_a_fork_while_others_are_in_calls(tmp_path: Path, threads: int, options: str) -> None:
    path = tmp_path / "counted.mlir"
    path.write_text(COUNTED.text)
    done = processes.run(
        [sys.executable, "-W", "ignore", "-c", FORK.replace("OPTIONS", options), path,
         str(threads)], cwd=ROOT, env=os.environ, limit=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
