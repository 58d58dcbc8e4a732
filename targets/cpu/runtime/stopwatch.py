"""Times kernels with the cache contents they would see inside a model, and no Python around them.

Between two uses of a kernel's weights, a large model reads all its other weights, so that they come
from beyond a core's own caches, while the kernel's inputs have just been written. In a small model
everything stays in the caches.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from targets.cpu.runtime.executable import CpuExecutable

if TYPE_CHECKING:
    from dialects.strata.types import Array


class CacheTimer:
    """The average CPU seconds of a native call."""

    def __init__(self, executable: CpuExecutable, inputs: Sequence[Array], spoiled: int):
        """`spoiled`: bytes of other memory that are read and written before each call; 0: none."""
        self.call, self.inputs = executable.native_call(inputs), inputs
        self.other = np.zeros(spoiled, np.uint8)

    def __call__(self, calls: int) -> float:
        if self.other.size:
            return sum(self._after_others() for _ in range(calls)) / calls
        call, started = self.call, time.process_time()
        for _ in range(calls):
            call()
        return (time.process_time() - started) / calls

    def _after_others(self) -> float:
        np.add(self.other, 1, out=self.other)
        for array in self.inputs:
            array.reshape(-1).view(np.uint8).max(initial=0)
        started = time.process_time()
        self.call()
        return time.process_time() - started
