"""The sliding windows of convolutions and pools over the spatial dims of `[n, c, spatial...]`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dialects.expr import Expr, minimum
from dialects.graph.base import Attributes, ShapeError, ints_of
from dialects.graph.inference import certain_sign
from dialects.types import Array
from dialects.views import strided


@dataclass(frozen=True)
class Window:
    """Kernel sizes, strides, dilations and padding, one entry per spatial dim."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]

    @staticmethod
    def of(kernel: Sequence[int], attributes: Attributes, constraint: str) -> Window:
        """From the attributes strides, dilations and pads; ShapeError if one does not fit."""
        rank = len(kernel)
        strides = ints_of(attributes, "strides", [1] * rank)
        dilations = ints_of(attributes, "dilations", [1] * rank)
        pads = ints_of(attributes, "pads", [0] * (2 * rank))
        for name, values, count, least in (("kernel", kernel, rank, 1),
                                           ("strides", strides, rank, 1),
                                           ("dilations", dilations, rank, 1),
                                           ("pads", pads, 2 * rank, 0)):
            if len(values) != count or min(values, default=least) < least:
                raise ShapeError(
                    f"{constraint}: {name} {list(values)} must be {count} numbers from {least} up"
                )
        return Window(tuple(kernel), strides, dilations, pads[:rank], pads[rank:])

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def extent(self, dim: int) -> int:
        """How many elements one window spans."""
        return self.dilations[dim] * (self.kernel[dim] - 1) + 1

    def counts(self, sizes: Sequence[Expr], constraint: str, ceil: bool = False) -> list[Expr]:
        """The number of windows per dim. ShapeError when a window is larger than the padded dim."""
        return [self._count(size, dim, constraint, ceil) for dim, size in enumerate(sizes)]

    def _count(self, size: Expr, dim: int, constraint: str, ceil: bool) -> Expr:
        stride = self.strides[dim]
        room = size + (self.low[dim] + self.high[dim] - self.extent(dim))
        if certain_sign(room) == -1:
            raise ShapeError(
                f"{constraint}: a window of {self.extent(dim)} is larger than spatial dim {dim}, "
                f"{size} with its pads"
            )
        if not ceil:
            return room // stride + 1
        # A window must start inside the dim or its low pad: there are ceil((low + size) / stride).
        starts = (size + (self.low[dim] + stride - 1)) // stride
        return minimum((room + (stride - 1)) // stride + 1, starts)

    def padded(self, x: Array, counts: Sequence[int], value: float) -> Array:
        """x (spatial dims last) with its pads, and as many more as the last windows reach over."""
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
        """The view of the elements that lie at one kernel position of every window."""
        index: list[slice] = []
        for dim, count in enumerate(counts):
            start, stride = offset[dim] * self.dilations[dim], self.strides[dim]
            index.append(slice(start, start + (count - 1) * stride + 1 if count else start, stride))
        return padded[(..., *index)]

    def windows(self, padded: Array, counts: Sequence[int]) -> Array:
        """The view [..., kernel positions..., windows...] of all windows' elements."""
        spatial = padded.strides[-self.rank:]
        inside = [step * n for step, n in zip(self.dilations, spatial, strict=True)]
        between = [step * n for step, n in zip(self.strides, spatial, strict=True)]
        shape = (*padded.shape[:-self.rank], *self.kernel, *counts)
        return strided(padded, shape, (*padded.strides[:-self.rank], *inside, *between))
