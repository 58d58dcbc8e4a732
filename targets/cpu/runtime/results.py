"""Memory of returned arrays: a large result reuses the memory of an earlier one that was dropped.

New memory of megabytes is mapped and cleared page by page, which may take longer than computing the
result. A large result therefore borrows its memory. The memory comes back once the array and
everything that refers to it (views, tensors of other libraries) are gone, in whichever thread that
happens. One spare block is kept per output, so there are never more than the outputs of one call.
There is no lock, and a forked child has its own copy of the pages, so parent and child may both go
on.
"""

from __future__ import annotations

import weakref
from collections import deque
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from targets.memory import aligned_bytes

if TYPE_CHECKING:
    from dialects.strata.types import Array

LARGE = 1 << 20
"""Size in bytes from which a result borrows its memory, aligned to a cache line. The allocator
reuses smaller blocks on its own."""

Spare = deque["Array"]


class _Loan:
    """Owns the memory of one result; when nothing refers to it any more, the memory is spare."""

    __slots__ = ("__array_interface__", "_memory", "_spare")

    def __init__(self, memory: Array, spare: Spare):
        self.__array_interface__ = memory.__array_interface__
        self._memory, self._spare = memory, weakref.ref(spare)

    def __del__(self) -> None:
        spare = self._spare()
        if spare is not None:
            spare.append(self._memory)


class Result:
    """Arrays of one shape and dtype; callers may keep any number of them at a time."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]):
        self.shape, self.dtype = shape, dtype
        self.nbytes = prod(shape) * dtype.itemsize
        self.is_large = self.nbytes >= LARGE
        self._spare: Spare = deque(maxlen=1)

    def array(self) -> Array:
        """An uninitialized array with memory of its own."""
        if not self.is_large:
            return np.empty(self.shape, self.dtype)
        loan = _Loan(self._memory(), self._spare)
        return np.ndarray(self.shape, self.dtype, np.asarray(loan))

    def _memory(self) -> Array:
        try:
            return self._spare.pop()
        except IndexError:
            return aligned_bytes(self.nbytes)
