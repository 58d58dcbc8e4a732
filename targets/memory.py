"""Memory of this process, aligned to cache lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dialects.strata.types import Array

ALIGNMENT = 64
"""Bytes of a cache line. Constants and results are aligned to it."""


def aligned_bytes(count: int) -> Array:
    """Uninitialized memory aligned to a cache line; at least one byte."""
    raw = np.empty(max(count, 1) + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start: start + max(count, 1)]
