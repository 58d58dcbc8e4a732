"""Reductions as exact as their type: sums of f32 are computed in f64 and rounded once.

NumPy adds the rows of a matrix one after another, so that a sum of 20,000 f32 is wrong by about 70
units in the last place. A reference for all other implementations must be more exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dialects.semantics.carriers import as_array
from dialects.strata.types import Array

F32 = np.dtype(np.float32)


def reduced(
    merge: np.ufunc, x: Array, axes: int | Sequence[int], dtype: np.dtype[Any], *,
    keepdims: bool = False,
) -> Array:
    """`merge` over all elements along some axes, in `dtype`."""
    inside = np.dtype(np.float64) if merge is np.add and dtype == F32 else dtype
    along = axes if isinstance(axes, int) else tuple(axes)
    found = merge.reduce(x, axis=along, dtype=inside, keepdims=keepdims)
    return as_array(found).astype(dtype, copy=False)


def total(
    x: Array, axes: int | Sequence[int], dtype: np.dtype[Any], *, keepdims: bool = False
) -> Array:
    """The sum of all elements along some axes, in `dtype`."""
    return reduced(np.add, x, axes, dtype, keepdims=keepdims)
