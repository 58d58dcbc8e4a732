"""How long calls take: on the device, from cold caches, and on the host.

Contestants take turns. Device time is between two events around a call. Before the first, the L2
cache is overwritten and the device waits for as long as the host needs for the call, so that what
lies between the events is work, and not waiting for launches. On the CPU (`--smoke`) a clock
around the call stands in for all of that.
"""

from __future__ import annotations

import fcntl
import statistics
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from rows import Setting

Call = Callable[[], Any]
FLUSHED = 256 << 20
"""Bytes that are written between calls, several times the L2 cache."""
LEAST, MOST = 5, 200
WARM = 3
CYCLES = 1.9e9
"""More per second than the clock of any GPU that there is to measure."""
LEAST_WAIT, LONGEST_WAIT = 2e-4, 2e-3
"""Of the device for the host, in seconds. Where contestants take turns, results move, which a host
may have to tell a graph: it needs more than in calls without turns."""


@contextmanager
def turn(setting: Setting) -> Generator[None]:
    """Others, who compile meanwhile, measure nothing inside."""
    if setting.lock is None:
        yield
        return
    with setting.lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def device_times(calls: Mapping[str, Call], setting: Setting) -> dict[str, float]:
    """The median milliseconds of each call."""
    with turn(setting):
        taken = _on_cpu(calls) if setting.smoke else _on_gpu(calls, setting.seconds)
    return {name: statistics.median(times) for name, times in taken.items()}


def wall_times(calls: Mapping[str, Call], setting: Setting) -> dict[str, float]:
    """The median milliseconds from a call to its result on the device."""
    def measure(call: Call) -> float:
        call()  # the caches are as its own last call leaves them
        return _wall(call)

    return _medians(calls, setting, measure)


def host_times(calls: Mapping[str, Call], setting: Setting, in_a_turn: int = 50
               ) -> dict[str, float]:
    """The median microseconds after which a call comes back, its work still ahead."""
    def measure(call: Call) -> float:
        started = time.perf_counter()
        for _ in range(in_a_turn):
            call()
        seconds = (time.perf_counter() - started) / in_a_turn
        synchronize()
        return seconds * 1e6

    return _medians(calls, setting, measure)


def _medians(
    calls: Mapping[str, Call], setting: Setting, measure: Callable[[Call], float]
) -> dict[str, float]:
    """What is measured of each call, in turns, as long as the setting says."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    with turn(setting):
        for call in calls.values():
            _warm(call)
        until = time.perf_counter() + setting.seconds
        while _goes_on(taken, until, setting):
            for name, call in calls.items():
                taken[name].append(measure(call))
    return {name: statistics.median(times) for name, times in taken.items()}


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


# ---------------------------------------------------------------------- turns
def _goes_on(taken: Mapping[str, list[float]], until: float, setting: Setting) -> bool:
    rounds = min(map(len, taken.values()))
    if setting.smoke:
        return rounds < 1
    return rounds < LEAST or (rounds < MOST and time.perf_counter() < until)


def _wall(call: Call) -> float:
    synchronize()
    started = time.perf_counter()
    call()
    synchronize()
    return 1e3 * (time.perf_counter() - started)


def _warm(call: Call) -> float:
    """Milliseconds of the last of a few calls, on the host alone."""
    for _ in range(WARM):
        synchronize()
        started = time.perf_counter()
        call()
        taken = time.perf_counter() - started
    synchronize()
    return 1e3 * taken


def _on_cpu(calls: Mapping[str, Call]) -> dict[str, list[float]]:
    return {name: [_wall(call)] for name, call in calls.items()}


def _on_gpu(calls: Mapping[str, Call], seconds: float) -> dict[str, list[float]]:
    flushed = torch.empty(FLUSHED, dtype=torch.uint8, device="cuda")
    waits = {name: min(max(2e-3 * _warm(call), LEAST_WAIT), LONGEST_WAIT)
             for name, call in calls.items()}
    taken: dict[str, list[float]] = {name: [] for name in calls}
    until, rounds = time.perf_counter() + seconds, 0
    while rounds < LEAST or (rounds < MOST and time.perf_counter() < until):
        events = {name: _record(call, waits[name], flushed) for name, call in calls.items()}
        synchronize()
        for name, (start, end) in events.items():
            taken[name].append(start.elapsed_time(end))
        rounds += 1
    return taken


def _record(call: Call, wait: float, flushed: torch.Tensor) -> tuple[Any, Any]:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    flushed.zero_()
    torch.cuda._sleep(int(CYCLES * wait))
    start.record()
    call()
    end.record()
    return start, end
