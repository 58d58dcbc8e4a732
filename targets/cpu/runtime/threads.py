"""The thread pool: libgomp, shared with PyTorch if that is loaded.

Only four functions of GCC's OpenMP runtime are used. Their addresses are in the table that is
passed to the entry function, so compiled code refers to no symbol outside itself.

A pool that has been used belongs to its process. A child made by `fork` lacks the threads, and
would wait for them for ever, so such a child runs on one thread.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

from dialects.records import dataclass
from targets.cpu.build.native import function_address, process

FUNCTIONS = ("GOMP_parallel", "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads")
"""The functions that compiled code calls, in the order of the table."""

SYSTEM_LIBRARY = "libgomp.so.1"
LOOKS = "10000"
"""How often a thread looks for work before it sleeps: for a few tenths of a millisecond."""

TURNS_ENTRY = len(FUNCTIONS) + 1
"""The table entry of a call's work-sharing counters, after the functions and the heap; see
`driver/turns.py`."""

SCHEDULER = ("sched_getcpu", "sched_getaffinity", "sched_setaffinity", "sched_yield")
"""C library functions with which threads avoid sharing a processor (Linux only)."""

SCHEDULER_ENTRY = TURNS_ENTRY + 1
"""The table entry of the first of those functions; zeros if they are missing."""

FIRST_ARGUMENT = SCHEDULER_ENTRY + len(SCHEDULER)
"""The table entry of the first argument."""


@dataclass(eq=False)
class ThreadPool:
    """The addresses of `FUNCTIONS`, and the library they come from. Zeros without a library."""

    source: str
    addresses: tuple[int, ...]
    used: bool = False
    lost: bool = False
    """Whether its threads have stayed in the process that used them."""

    def claim(self) -> bool:
        """Whether this process can use the pool's threads from now on."""
        self.used = True
        return self.addresses[0] != 0 and not self.lost

    def leave(self) -> None:
        """Note that this process is a child made by `fork`."""
        self.lost = self.lost or self.used


NO_POOL = ThreadPool("none: one thread runs everything", (0,) * len(FUNCTIONS))


def thread_pool() -> ThreadPool:
    """PyTorch's libgomp if this process has loaded it, else the system's, else none."""
    path = loaded_libgomp(_memory_map())
    if path is None and _load_patiently(SYSTEM_LIBRARY) is not None:
        path = loaded_libgomp(_memory_map())
    return _pool(path or SYSTEM_LIBRARY)


def _memory_map() -> str:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _load_patiently(path: str) -> ctypes.CDLL | None:
    """Load libgomp so that its idle threads soon sleep, unless the user has set how they wait.

    By default they spin for some milliseconds. If other programs use the same processors, that
    keeps the thread for which all the others wait from running.
    """
    if any(name in os.environ for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")):
        return _load(path)
    os.environ["GOMP_SPINCOUNT"] = LOOKS  # libgomp reads it when it is loaded
    try:
        return _load(path)
    finally:
        del os.environ["GOMP_SPINCOUNT"]


def _load(path: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(path)
    except OSError:
        return None


@cache
def scheduler_addresses() -> tuple[int, ...]:
    """The addresses of `SCHEDULER`, or zeros."""
    if not all(hasattr(process(), name) for name in SCHEDULER):
        return (0,) * len(SCHEDULER)
    return tuple(map(function_address, SCHEDULER))


def torch_is_loaded() -> bool:
    """Whether PyTorch, and with it its libgomp, may be in this process; a cheap test."""
    return "torch" in sys.modules


def loaded_libgomp(maps: str) -> str | None:
    """The path of a libgomp in a process's memory map; PyTorch's own is preferred."""
    if "libgomp" not in maps:
        return None
    paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if "libgomp" in line}
    return min(paths, key=lambda path: ("torch" not in path, path), default=None)


@cache
def _pool(path: str) -> ThreadPool:
    library = _load(path)
    if library is None or not all(hasattr(library, name) for name in FUNCTIONS):
        return ThreadPool(f"none: {SYSTEM_LIBRARY} is not installed, so one thread runs everything",
                          NO_POOL.addresses)
    pointers = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
                for name in FUNCTIONS]
    pool = ThreadPool(path, tuple(pointers))
    os.register_at_fork(after_in_child=pool.leave)  # asking for the process at each call costs more
    return pool
