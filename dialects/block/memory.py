"""Reads and writes of buffers at the index values of many programs at a time.

If all indices are linear and in bounds, an access is a strided view of the buffer. Otherwise the
position of every element is computed; out of bounds in a checked dim, a load reads the pad and a
store writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dialects.block.indices import Box, Index, Linear
from dialects.semantics.carriers import as_in
from dialects.strata.types import Array


class Access(NamedTuple):
    """The place of a read or write: one index per dim of `memory`, over the axes of `box`.

    `memory` is C-contiguous. `checked` are the dims whose indices may be out of bounds. `active`
    is a mask of the active programs over the leading axes; None means all. `what` names the access
    in errors.
    """

    memory: Array
    where: Sequence[Index]
    box: Box
    checked: Sequence[int]
    active: Array | None
    what: str

    def read(self, pad: Array, *, copy: bool) -> Array:
        """The elements, with one dim per axis, of size 1 where they do not vary.

        Without `copy` the result may be a view of the memory. `pad`: 0-d, of the memory's dtype.
        Raises IndexError if an unchecked index is out of bounds.
        """
        if (view := self._view()) is not None:
            return view.copy() if copy else view
        positions, inside = self._positions()
        if not self.memory.size:
            return np.broadcast_to(pad, positions.shape)
        found = self.memory.reshape(-1).take(positions)
        return found if inside is None else np.where(inside, found, pad)

    def write(self, value: Array) -> None:
        """Store `value`, which broadcasts over the axes. Raises IndexError like `read`."""
        view = self._view() if self.active is None else None
        if view is not None and all(
            n <= m for n, m in zip(value.shape, view.shape, strict=True)
        ):
            view[...] = value
            return
        positions, values = self._placed(value)
        self.memory.reshape(-1)[positions] = values

    def add(self, value: Array) -> None:
        """Add `value` to the elements, one after another. Raises IndexError like `read`."""
        positions, values = self._placed(value)
        np.add.at(self.memory.reshape(-1), positions, values)

    def _placed(self, value: Array) -> tuple[Array, Array]:
        """The positions in memory that are written, and the values that go there."""
        positions, inside = self._positions()
        arrays = (positions, value) if inside is None else (positions, value, inside)
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
        positions, value = np.broadcast_to(positions, shape), np.broadcast_to(value, shape)
        if inside is None:
            return positions, value
        inside = np.broadcast_to(inside, shape)
        return positions[inside], value[inside]

    def _view(self) -> Array | None:
        """The elements as a strided view; None if an index is not linear or out of bounds."""
        rank = len(self.box.extents)
        offset, strides = 0, [0] * rank
        for index, size, step in zip(
            self.where, self.memory.shape, self.memory.strides, strict=True
        ):
            if not isinstance(index, Linear):
                return None
            low, high = self.box.bounds(index)
            if low < 0 or high >= size:
                return None
            offset += index.base * step
            for axis, stride in enumerate(index.strides):
                strides[axis] += stride * step
        shape = tuple(
            n if s else 1 for n, s in zip(self.box.extents, strides, strict=True))
        raw = self.memory.reshape(-1).view(np.uint8)
        found = np.ndarray(shape, self.memory.dtype, raw, offset, strides)
        return as_in(found, self.memory)

    def _positions(self) -> tuple[Array, Array | None]:
        """The flat positions, clipped to the memory, and the mask of valid ones (None: all)."""
        rank = len(self.box.extents)
        positions = np.zeros((1,) * rank, np.int64)
        live = self.active
        if live is not None:
            live = live.reshape(live.shape + (1,) * (rank - live.ndim))
        unchecked: list[tuple[int, Array]] = []
        for dim, size in enumerate(self.memory.shape):
            numbers = self.box.array(self.where[dim])
            inside = (numbers >= 0) & (numbers < size)
            if not inside.all():
                numbers = numbers.clip(0, max(size - 1, 0))
                if dim in self.checked:
                    live = inside if live is None else live & inside
                else:
                    unchecked.append((dim, inside))
            positions = positions * size + numbers
        for dim, inside in unchecked:
            if not (inside.all() if live is None else (inside | ~live).all()):
                raise IndexError(
                    f"{self.what} leaves dim {dim} of shape {self.memory.shape}: check the dim "
                    "or mend its index")
        return positions, live
