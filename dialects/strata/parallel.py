"""Processes large arrays in several threads: NumPy and hashlib release the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

MOST_THREADS = 8
"""More threads do not speed up copying and hashing, which memory bandwidth limits."""


def in_threads(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Apply `work` to each item in threads. Results are in order; the first error is raised.

    Each item should be worth starting a thread, for instance megabytes of data. Threads inherit
    the caller's context variables, such as NumPy's error state.
    """
    todo = list(items)
    count = min(len(todo), MOST_THREADS, _processors())
    if count < 2:
        return [work(item) for item in todo]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(count) as pool:
        waiting = [pool.submit(copy_context().run, work, item) for item in todo]
        return [future.result() for future in waiting]


def _processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
