"""Times of calls in turns, and the rate of memory.

The clock counts on a GPU, and the processor's time on a CPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

ROUNDS, LEAST = 7, 0.02
"""Rounds, and the least seconds of calls in each."""


def in_turns(runs: Mapping[str, Callable[[], Any]], device: str) -> dict[str, float]:
    """Milliseconds of a call of each, medians of rounds in turns."""
    counts = {}
    for name, run in runs.items():
        for _ in range(3):
            run()
        counts[name] = max(1, min(200, int(LEAST / max(seconds_of(run, 1, device), 1e-6))))
    times: dict[str, list[float]] = {n: [] for n in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times[name].append(seconds_of(run, counts[name], device))
    return {n: statistics.median(found) * 1e3 for n, found in times.items()}


def seconds_of(run: Callable[[], Any], count: int, device: str) -> float:
    """Seconds of a call: of the clock on a GPU, of the processor on a CPU."""
    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    clock = time.perf_counter if device == "cuda" else time.process_time
    wait()
    started = clock()
    for _ in range(count):
        run()
    wait()
    return (clock() - started) / count


def rate_of(device: str) -> float:
    """Bytes per second: of a copy, both ways, on a GPU; of a sum on a CPU."""
    if device == "cuda":
        one = torch.empty(1 << 29, dtype=torch.int8, device=device)
        other = torch.empty_like(one)
        run = partial(other.copy_, one)
        run()
        return 2 * one.numel() / min(seconds_of(run, 10, device) for _ in range(5))
    import numpy as np

    data = np.ones(1 << 26, np.float32)  # 256 MiB
    data.sum()
    return data.nbytes / min(seconds_of(data.sum, 2, device) for _ in range(7))
