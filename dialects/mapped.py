"""Arrays of mapped files. Nothing here imports xDSL."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, cast

import numpy as np

if TYPE_CHECKING:
    from dialects.types import Array


def mapping_of(array: Array) -> mmap.mmap | None:
    """The mapped file whose bytes an array is a view of, if it is."""
    base: object = array
    while isinstance(base, (np.ndarray, memoryview)):
        base = cast(object, base.base if isinstance(base, np.ndarray) else base.obj)
    return base if isinstance(base, mmap.mmap) else None
