"""Strided views of arrays in which the same memory occurs many times.

The windows of a convolution are such a view of its input: each element occurs once in every window
that contains it. An elementwise function is computed once on the underlying memory, and its result
is viewed with the same strides.

Nothing here imports xDSL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from numpy.lib.stride_tricks import as_strided

from dialects.semantics.carriers import Carrier, as_array

if TYPE_CHECKING:
    from dialects.strata.types import Array


def strided(array: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """A view from the first element of `array` on; `strides` in bytes."""
    plain = array.view(f"V{array.itemsize}")  # as_strided does not support f8E5M2
    kept = isinstance(array, Carrier)
    return as_strided(plain, shape, strides, subok=kept).view(array.dtype)


def stretch(view: Array) -> Array | None:
    """The memory from the first to the last element of a view, as a one-dimensional array.

    None unless it has at most half as many elements as the view.
    """
    if not view.size or any(s < 0 or s % view.itemsize for s in view.strides):
        return None
    last = sum(step * (n - 1) for step, n in zip(view.strides, view.shape, strict=True))
    count = last // view.itemsize + 1
    return strided(view, (count,), (view.itemsize,)) if 2 * count <= view.size else None


def each(function: Callable[[Array], Array], array: Array) -> Array:
    """`function(array)` for an elementwise function, computed once per element in memory."""
    memory = stretch(array)
    if memory is None:
        return function(array)
    found = as_array(function(memory), order="C")
    steps = [step // array.itemsize * found.itemsize for step in array.strides]
    return strided(found, array.shape, tuple(steps))


def distinct(array: Array) -> Array:
    """An array with all elements of a view, and possibly others between them in memory."""
    memory = stretch(array)
    return array if memory is None else memory
