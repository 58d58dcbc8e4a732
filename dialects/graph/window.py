"""The sliding windows of convolutions and pools over the spatial dims of `[n, c, spatial...]`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dialects.graph.base import Attributes, ShapeError, ints_of
from dialects.graph.inference import certain_sign
from dialects.semantics.views import strided
from dialects.strata.types import Array
from dialects.symbolic.expr import Expr, maximum, minimum
from dialects.symbolic.ranges import least


class Window(NamedTuple):
    """Kernel sizes, strides, dilations and padding, one entry per spatial dim."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]

    @staticmethod
    def of(kernel: Sequence[int], attributes: Attributes, constraint: str) -> Window:
        """The window of the attributes strides, dilations and pads. Raises ShapeError if one does
        not fit.
        """
        rank = len(kernel)
        strides = ints_of(attributes, "strides", [1] * rank)
        dilations = ints_of(attributes, "dilations", [1] * rank)
        pads = ints_of(attributes, "pads", [0] * (2 * rank))
        for name, values, count, low in (("kernel", kernel, rank, 1),
                                           ("strides", strides, rank, 1),
                                           ("dilations", dilations, rank, 1),
                                           ("pads", pads, 2 * rank, 0)):
            if len(values) != count or min(values, default=low) < low:
                raise ShapeError(
                    f"{constraint}: {name} {list(values)} must be {count} numbers from {low} up"
                )
        return Window(tuple(kernel), strides, dilations, pads[:rank], pads[rank:])

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def extent(self, dim: int) -> int:
        """The number of elements that one window spans."""
        return self.dilations[dim] * (self.kernel[dim] - 1) + 1

    def room(self, size: Expr, dim: int) -> Expr:
        """The difference between the padded dim and the extent of one window."""
        return size + (self.low[dim] + self.high[dim] - self.extent(dim))

    def fits(self, sizes: Sequence[Expr]) -> bool:
        """Whether a whole window certainly fits into every padded dim that is not empty."""
        return all(least(self.room(size, dim)) >= 0 for dim, size in enumerate(sizes))

    def counts(
        self, sizes: Sequence[Expr], constraint: str, ceil: bool = False, toward_zero: bool = False
    ) -> list[Expr]:
        """The number of windows per dim: room / stride + 1, the quotient rounded down.

        With `ceil` it is rounded up, as long as windows start inside the dim or its low pad. With
        `toward_zero` it is rounded toward zero, so that a single window may extend past the end.
        Raises ShapeError if the number is certainly negative, or if a whole window must fit and
        certainly does not.
        """
        counts: list[Expr] = []
        for dim, size in enumerate(sizes):
            counts.append(self._count(size, dim, ceil, toward_zero))
            whole = counts[-1] if ceil or toward_zero else self.room(size, dim)
            if certain_sign(whole) == -1:
                raise ShapeError(f"{constraint}: a window of {self.extent(dim)} is larger than "
                                 f"spatial dim {dim}, {size} with its pads")
        return counts

    def _count(self, size: Expr, dim: int, ceil: bool, toward_zero: bool) -> Expr:
        stride, room = self.strides[dim], self.room(size, dim)
        down, up = room // stride + 1, (room + (stride - 1)) // stride + 1
        if ceil:  # windows must start inside: at most ceil((low + size) / stride) of them
            return minimum(up, (size + (self.low[dim] + stride - 1)) // stride)
        return maximum(down, minimum(up, 1)) if toward_zero and least(room) < 0 else down

    def padded(self, x: Array, counts: Sequence[int], value: float) -> Array:
        """x (spatial dims last) with its pads, extended to the end of the last windows."""
        pairs = [(0, 0)] * (x.ndim - self.rank)
        for dim, (size, count) in enumerate(zip(x.shape[-self.rank:], counts, strict=True)):
            reach = (count - 1) * self.strides[dim] + self.extent(dim)
            missing = max(reach - size - self.low[dim], self.high[dim], 0)
            pairs.append((self.low[dim], missing))
        if all(pair == (0, 0) for pair in pairs):
            return x
        return np.pad(x, pairs, constant_values=value)

    def offsets(self) -> Iterator[tuple[int, ...]]:
        """The positions inside a kernel, row-major."""
        return itertools.product(*map(range, self.kernel))

    def at(self, padded: Array, offset: Sequence[int], counts: Sequence[int]) -> Array:
        """The view of the elements at one kernel position of every window."""
        index: list[slice] = []
        for dim, count in enumerate(counts):
            start, stride = offset[dim] * self.dilations[dim], self.strides[dim]
            index.append(slice(start, start + (count - 1) * stride + 1 if count else start, stride))
        return padded[(..., *index)]

    def windows(self, padded: Array, counts: Sequence[int]) -> Array:
        """The view [..., kernel positions..., windows...] of the elements of all windows."""
        spatial = padded.strides[-self.rank:]
        inside = [step * n for step, n in zip(self.dilations, spatial, strict=True)]
        between = [step * n for step, n in zip(self.strides, spatial, strict=True)]
        shape = (*padded.shape[:-self.rank], *self.kernel, *counts)
        return strided(padded, shape, (*padded.strides[:-self.rank], *inside, *between))
