"""Memory of this process that begins on a cache line's boundary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dialects.strata.types import Array

ALIGNMENT = 64
"""Bytes of a cache line, on whose boundary constants and results begin."""


def aligned_bytes(count: int) -> Array:
    """Uninitialized memory on a cache line's boundary, never empty."""
    raw = np.empty(max(count, 1) + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start: start + max(count, 1)]
