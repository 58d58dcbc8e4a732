"""Memory for what calls return: large results lie where earlier ones lay that nobody has any more.

New memory of megabytes is mapped and cleared page by page, which may take longer than computing
what goes there. So an array that is returned borrows its memory, which comes back once the array
and all that looks into it (views, tensors of other libraries) are gone, in whatever thread that
happens. One spare piece is kept per output, so never more than the outputs of one call. Nothing is
locked, and a forked child has pages of its own: both may go on.
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
"""Bytes from which on a result borrows its memory, which begins with a cache line; smaller pieces
the allocator keeps itself."""

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
    """Arrays of one shape and dtype: one after another, or as many at a time as callers keep."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]):
        self.shape, self.dtype = shape, dtype
        self.nbytes = prod(shape) * dtype.itemsize
        self._spare: Spare = deque(maxlen=1)

    def array(self) -> Array:
        """An array of its own, whose elements are whatever was there before."""
        if self.nbytes < LARGE:
            return np.empty(self.shape, self.dtype)
        loan = _Loan(self._memory(), self._spare)
        return np.ndarray(self.shape, self.dtype, np.asarray(loan))

    def _memory(self) -> Array:
        try:
            return self._spare.pop()
        except IndexError:
            return aligned_bytes(self.nbytes)
