"""The thread pool: libgomp, shared with PyTorch where that is loaded.

Only four functions of GCC's OpenMP runtime are used. Their addresses go into the table that the
entry function gets, so compiled code refers to no symbol outside itself.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FUNCTIONS = ("GOMP_parallel", "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads")
"""What compiled code calls, in the order of the table."""


@dataclass(frozen=True)
class ThreadPool:
    """Addresses of `FUNCTIONS`, and where they come from. Without a library: zeros."""

    source: str
    addresses: tuple[int, ...]

    @property
    def is_parallel(self) -> bool:
        return self.addresses[0] != 0


def thread_pool() -> ThreadPool:
    """PyTorch's libgomp if it is loaded in this process, else the system's, else none."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        maps = ""
    return _pool(loaded_libgomp(maps) or "libgomp.so.1")


def loaded_libgomp(maps: str) -> str | None:
    """The path of a libgomp in a process's memory map; PyTorch's own before any other."""
    paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if "libgomp" in line}
    return min(paths, key=lambda path: ("torch" not in path, path), default=None)


@cache
def _pool(path: str) -> ThreadPool:
    try:
        library = ctypes.CDLL(path)
        pointers = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
                    for name in FUNCTIONS]
    except (OSError, AttributeError):
        return ThreadPool("none: libgomp.so.1 is not installed, so one thread runs everything",
                          (0,) * len(FUNCTIONS))
    return ThreadPool(path, tuple(pointers))
