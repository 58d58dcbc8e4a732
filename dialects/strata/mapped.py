"""Arrays that are views of memory-mapped files. Nothing here imports xDSL."""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Sized
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

if TYPE_CHECKING:
    from dialects.strata.types import Array


READ_WHOLE = 64 << 20
"""Files up to this many bytes are read instead of mapped, so that truncating one is harmless."""

WORTH_RELEASING = 64 << 10
"""The least number of bytes for which releasing an array is worth a system call."""


def mapping_of(array: Array) -> mmap.mmap | None:
    """The mapped file that an array is a view of, or None."""
    base = _owner(array)
    return base if isinstance(base, mmap.mmap) else None


def _owner(array: Array) -> object:
    """The object that owns an array's memory."""
    base: object = array
    while isinstance(base, (np.ndarray, memoryview)):
        base = cast(object, base.base if isinstance(base, np.ndarray) else base.obj)
    return base


def release(array: Array) -> None:
    """Tell the system that an array of a mapped file is not needed in memory for now.

    Its elements keep their values, since the system reads them from the file again on the next
    access. Small arrays and arrays in other memory are left alone.
    """
    base = mapping_of(array)
    if base is None or array.nbytes < WORTH_RELEASING:
        return
    if array.flags.c_contiguous and hasattr(mmap, "MADV_DONTNEED"):
        first = array.ctypes.data - np.frombuffer(base, np.uint8, 1).ctypes.data
        start = first // mmap.PAGESIZE * mmap.PAGESIZE
        base.madvise(mmap.MADV_DONTNEED, start, first + array.nbytes - start)


class MappedFiles(NamedTuple):
    """The address ranges of this process that map files, in ascending order.

    They include mappings created by other libraries such as PyTorch, whose arrays hide their
    owner.
    """

    starts: list[int]
    ends: list[int]

    @staticmethod
    def around(arrays: Sized) -> MappedFiles:
        """The current mappings if there are arrays to look up: reading them takes milliseconds."""
        return MappedFiles.now() if len(arrays) else MappedFiles([], [])

    @staticmethod
    def now() -> MappedFiles:
        """The current mappings, read from Linux's `/proc`; empty on other systems.

        Source: Linux, proc_pid_maps(5): range, permissions, offset, device, inode, path.
        """
        found: list[tuple[int, int]] = []
        try:
            with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
                for line in file:
                    place, _, _, _, inode, *_ = line.split(maxsplit=5)
                    if inode != "0":
                        start, _, end = place.partition("-")
                        found.append((int(start, 16), int(end, 16)))
        except OSError:
            pass
        return MappedFiles([start for start, _ in found], [end for _, end in found])

    def hold(self, array: Array) -> bool:
        """Whether an array lies in a mapped file, or in the bytes of a file that was read whole."""
        place = bisect_right(self.starts, array.ctypes.data) - 1
        return isinstance(_owner(array), (mmap.mmap, bytes)) or (
            place >= 0 and array.ctypes.data < self.ends[place])
