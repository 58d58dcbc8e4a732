"""Memory that native code asks for: a loop uses again what it released, and all is given back."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
from tests.control.programs import COUNTED, GROWING, Program

ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class CountingHeap:
    """Stands between an executable and the C library, and counts."""

    def __init__(self, executable: Any):
        self.taken, self.given = 0, 0
        calls = executable.loaded.calls
        calls.give(state := calls.take())
        words = state.heap._words
        self._calls = ALLOCATE(words[0]), FREE(words[1])
        self._own = ALLOCATE(self._allocate), FREE(self._free)
        for place, function in enumerate(self._own):
            words[place] = ctypes.cast(function, ctypes.c_void_p).value

    def _allocate(self, alignment: int, size: int) -> int:
        self.taken += 1
        return self._calls[0](alignment, size)

    def _free(self, block: int) -> None:
        self.given += 1
        self._calls[1](block)


def loaded(program: Program, folder: Path) -> tuple[Any, CountingHeap]:
    path = folder / "program.mlir"
    path.write_text(program.text)
    executable = compiler.compile(path, threads=1, cache="off")
    return executable, CountingHeap(executable)


def taken(executable: Any, heap: CountingHeap, inputs: Sequence[Any]) -> int:
    """How often a call asks for memory."""
    before = heap.taken
    executable(*inputs)
    return heap.taken - before


def test_a_loop_uses_its_memory_again(tmp_path: Path) -> None:
    executable, heap = loaded(COUNTED, tmp_path)
    x = np.ones((8, 3), np.float32)
    counts = [taken(executable, heap, [x, np.array(trips)]) for trips in (5, 50, 500)]
    assert counts[0] == counts[1] == counts[2] < 20


@pytest.mark.parametrize("program", [COUNTED, GROWING], ids=lambda p: p.name)
def test_everything_is_given_back(program: Program, tmp_path: Path) -> None:
    executable, heap = loaded(program, tmp_path)
    returned = sum(output is not None for output in executable.loaded.plan.returned)
    for calls, inputs in enumerate(program.inputs, 1):
        executable(*inputs)
        assert heap.taken - heap.given == calls * returned  # Python frees these when it has them
