"""The heap of native code at run time: buffers whose size is only known then.

The heap is an array of 64-bit words that native code and Python share:

    0 aligned_alloc   1 free   2 the list of blocks   3 a word that threads pass on
    4 the list of spare blocks   5 the number of spare blocks
    6 the number of the check that failed   7 ... the values that it recorded
    INTERRUPT_WORD the iteration that a signal ended   RAISED_WORD ... type, value and traceback of
    what the signal's handler raised   PYTHON_WORD ... the addresses of `ASKING`
    EXCHANGE_WORD the function that exchanges data with other ranks, and what it returned last
    RESULTS ... addresses and shapes

A block starts with 64 bytes: two links and its size. When a call ends, even in an error, the list
tells what is left to free. Until then a few released blocks are kept as spare blocks for loops,
which request the same sizes again and again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from targets.cpu.build.native import function_address, process

if TYPE_CHECKING:
    from dialects.strata.array_type import ArrayType
    from dialects.strata.types import Array

_LIST, _CHECK, _SEEN, SEEN_WORDS = 2, 6, 7, 33
LIST_WORD, CHECK_WORD, SEEN_WORD = _LIST, _CHECK, _SEEN
INTERRUPT_WORD = _SEEN + SEEN_WORDS
RAISED_WORD, _RAISED_WORDS = INTERRUPT_WORD + 1, 3
PYTHON_WORD = RAISED_WORD + _RAISED_WORDS
ASKING = ("PyGILState_Ensure", "PyErr_CheckSignals", "PyErr_Fetch", "PyGILState_Release")
"""The Python functions with which loops check for signals; the C library's clock precedes them."""
EXCHANGE_WORD = PYTHON_WORD + 1 + len(ASKING)
RESULTS = EXCHANGE_WORD + 2
"""The first word of the results: for each returned output its address and its shape."""


@cache
def asking_addresses() -> tuple[int, ...]:
    """The addresses of the clock and of `ASKING`."""
    functions = [getattr(ctypes.pythonapi, name) for name in ASKING]
    return (function_address("clock_gettime"),
            *(ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions))


class Heap:
    """The heap of one compiled model."""

    def __init__(self, returned: Sequence[ArrayType]):
        self._returned = list(returned)
        words = RESULTS + sum(1 + type_.rank for type_ in returned)
        self._words = (ctypes.c_int64 * words)()
        self._words[0], self._words[1] = map(function_address, ("aligned_alloc", "free"))
        self._words[PYTHON_WORD: EXCHANGE_WORD] = asking_addresses()

    @property
    def address(self) -> int:
        return ctypes.addressof(self._words)

    def exchange_by(self, address: int) -> None:
        """Let native code call a function at this address to exchange data with other ranks."""
        self._words[EXCHANGE_WORD] = address

    @property
    def has_blocks(self) -> bool:
        """Whether the call left any blocks: its returned outputs, if it has any."""
        return self._words[_LIST] != 0

    def take_outputs(self) -> list[Array]:
        """Copies of the returned outputs, in order; frees their blocks and all others."""
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
        """The number of the check that failed, and the values it recorded; frees all blocks."""
        self.release()
        return self._words[_CHECK], list(self._words[_SEEN: INTERRUPT_WORD])

    def raise_interruption(self) -> NoReturn:
        """Raise the exception that a signal's handler raised while native code checked for it."""
        raised = [ctypes.c_void_p(word)
                  for word in self._words[RAISED_WORD: RAISED_WORD + _RAISED_WORDS]]
        self._words[INTERRUPT_WORD] = 0
        ctypes.pythonapi.PyErr_Restore(*raised)  # ctypes then raises it
        raise AssertionError("native code was interrupted, and nothing was raised")

    def release(self) -> None:
        """Free all remaining blocks."""
        free = process().free
        block = self._words[_LIST]
        while block:
            following = ctypes.c_int64.from_address(block).value
            free(ctypes.c_void_p(block))
            block = following
        self._words[_LIST] = 0

