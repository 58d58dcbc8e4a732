"""Strided views of arrays that show the same memory at many places.

The windows of a convolution are such a view of its data: each number stands at as many places as
windows hold it. What is computed from one number is computed once for the memory behind the view,
and seen through the same strides.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.lib.stride_tricks import as_strided

from dialects.strata.types import Array


def strided(array: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """A view from the first element of `array` on; `strides` in bytes."""
    plain = array.view(f"V{array.itemsize}")  # NumPy knows no f8E5M2 here
    return as_strided(plain, shape, strides).view(array.dtype)


def stretch(view: Array) -> Array | None:
    """The memory from the first to the last element of a view, as one dim.

    None unless it has fewer elements than the view, by half at least.
    """
    if not view.size or any(s < 0 or s % view.itemsize for s in view.strides):
        return None
    low, high = byte_bounds(view)
    count = (high - low) // view.itemsize
    return strided(view, (count,), (view.itemsize,)) if 2 * count <= view.size else None


def each(function: Callable[[Array], Array], array: Array) -> Array:
    """`function(array)`, for a function of single numbers, computed once for each in memory."""
    memory = stretch(array)
    if memory is None:
        return function(array)
    found = np.ascontiguousarray(function(memory))
    steps = [step // array.itemsize * found.itemsize for step in array.strides]
    return strided(found, array.shape, tuple(steps))


def distinct(array: Array) -> Array:
    """An array of all numbers of a view, and perhaps of others around them in memory."""
    memory = stretch(array)
    return array if memory is None else memory
