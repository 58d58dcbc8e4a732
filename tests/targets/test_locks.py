"""Locks that survive signal handlers and forks."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from targets.locks import SafeLock, Turns
from tests import processes

ROOT = Path(__file__).parents[2]


def test_a_thread_may_take_a_safe_lock_again() -> None:
    lock, seen = SafeLock(), list[int]()

    def handle(*_: object) -> None:
        with lock:
            seen.append(1)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with lock:
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [1]


FORK = """
import os, threading, time
from targets.locks import OneProcess, SafeLock, Turns
lock, turns, process = SafeLock(), Turns("work", ValueError), OneProcess("work", ValueError)
held, done = threading.Event(), threading.Event()
def hold():
    with lock, turns:
        held.set()
        done.wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if not child:
    with lock, turns:
        pass
    try:
        process.check()
        os._exit(1)
    except ValueError as error:
        os._exit(0 if "spawn" in str(error) else 2)
print(os.waitpid(child, 0)[1])
done.set()
"""


def test_a_forked_child_waits_for_nobody() -> None:
    done = processes.run([sys.executable, "-W", "ignore", "-c", FORK], cwd=ROOT, limit=60,
                         capture_output=True, text=True, env=os.environ)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_taking_turns() -> None:
    turns, inside, most = Turns("work", ValueError), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(200):
            with turns:
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1)


def test_work_inside_itself_is_an_error_and_not_a_hang() -> None:
    turns = Turns("work", ValueError)
    for _ in range(2):
        with turns, pytest.raises(ValueError, match="work is under way in this thread"), turns:
            pass
    with turns:
        pass


def test_a_signal_at_any_moment_of_taking_turns() -> None:
    """Either the handler has its turn, or it is told that it cannot."""
    turns, outcomes = Turns("work", ValueError), list[bool]()

    def handle(*_: object) -> None:
        try:
            with turns:
                outcomes.append(True)
        except ValueError:
            outcomes.append(False)

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    try:
        deadline = time.monotonic() + 20
        while len(outcomes) < 200 and time.monotonic() < deadline:
            with turns:
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert {*outcomes} == {True, False}
