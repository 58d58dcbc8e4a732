"""Arrays of mapped files. Nothing here imports xDSL."""

from __future__ import annotations

import mmap
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

if TYPE_CHECKING:
    from dialects.strata.types import Array


READ_WHOLE = 64 << 20
"""Bytes up to which a file is read rather than mapped: what is cut short meanwhile ends nothing."""


def mapping_of(array: Array) -> mmap.mmap | None:
    """The mapped file whose bytes an array is a view of, if it is."""
    base = _owner(array)
    return base if isinstance(base, mmap.mmap) else None


def _owner(array: Array) -> object:
    """What holds the memory of an array."""
    base: object = array
    while isinstance(base, (np.ndarray, memoryview)):
        base = cast(object, base.base if isinstance(base, np.ndarray) else base.obj)
    return base


class MappedFiles(NamedTuple):
    """The memory of this process that is of files, whoever mapped them: PyTorch, say, through which
    no array can be seen. Ranges are in order."""

    starts: list[int]
    ends: list[int]

    @staticmethod
    def now() -> MappedFiles:
        """As the system tells it; nothing where it does not (it is not Linux).

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
        """Whether an array is of a mapped file, or of the bytes of one that was read whole."""
        place = bisect_right(self.starts, array.ctypes.data) - 1
        return isinstance(_owner(array), (mmap.mmap, bytes)) or (
            place >= 0 and array.ctypes.data < self.ends[place])
