"""Memory that native code asks for while it runs: buffers whose size is known only then.

The heap is an array of 64-bit words that native code and Python share:

    0 aligned_alloc   1 free   2 the list of blocks   3 a word that threads pass on
    4 the list of spare blocks   5 how many they are
    6 the number of the check that failed   7 ... what it saw   RESULTS ... addresses and shapes

A block starts with 64 bytes: two links and its size. The list tells what is left to free when a
call ends, also when it ends in an error. A few released blocks are kept until then as spare ones,
for loops, which ask for the same sizes again and again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from targets.cpu.native import function_address, process

if TYPE_CHECKING:
    from dialects.array_type import ArrayType
    from dialects.types import Array

_LIST, _CHECK, _SEEN, SEEN_WORDS = 2, 6, 7, 33
CHECK_WORD, SEEN_WORD = _CHECK, _SEEN
RESULTS = _SEEN + SEEN_WORDS
"""The first word of the results: per returned output its address and its shape."""


class Heap:
    """The heap of one compiled model."""

    def __init__(self, returned: Sequence[ArrayType]):
        self._returned = list(returned)
        words = RESULTS + sum(1 + type_.rank for type_ in returned)
        self._words = (ctypes.c_int64 * words)()
        self._words[0], self._words[1] = map(function_address, ("aligned_alloc", "free"))

    @property
    def address(self) -> int:
        return ctypes.addressof(self._words)

    @property
    def has_blocks(self) -> bool:
        """Whether the call has left memory: returned outputs, if any."""
        return self._words[_LIST] != 0

    def take_outputs(self) -> list[Array]:
        """Copies of the returned outputs, in order; their blocks and all others are freed."""
        arrays: list[Array] = []
        place = RESULTS
        for type_ in self._returned:
            shape = tuple(self._words[place + 1: place + 1 + type_.rank])
            array = np.empty(shape, type_.dtype)
            ctypes.memmove(array.ctypes.data, self._words[place], array.nbytes)
            arrays.append(array)
            place += 1 + type_.rank
        self.release()
        return arrays

    def failure(self) -> tuple[int, list[int]]:
        """The number of the check that failed, and the values it saw; frees all blocks."""
        self.release()
        return self._words[_CHECK], list(self._words[_SEEN: RESULTS])

    def release(self) -> None:
        """Free every block that is left."""
        free = process().free
        block = self._words[_LIST]
        while block:
            following = ctypes.c_int64.from_address(block).value
            free(ctypes.c_void_p(block))
            block = following
        self._words[_LIST] = 0

