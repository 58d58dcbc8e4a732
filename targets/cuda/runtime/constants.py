"""Where constants lie: equal bytes are stored once, and the caller's device copies are reused.

A constant that was packed for kernels may be byte for byte one of the model's weights in another
shape. Examples are a matrix that is multiplied transposed, and an embedding that also computes the
scores of a language model's tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from dialects.host import ConstantOp
from dialects.strata.types import Array, BufferType
from dialects.strata.weights import WeightStore

ALIGNMENT = 256
"""Bytes to which buffers are aligned; compiled kernels rely on it."""
HEAD = 1 << 12
"""Bytes at the start that serve as the key when equal contents are looked up."""


def whole(size: Any) -> Any:
    """A size in bytes, or an expression of one, rounded up to the alignment."""
    return (size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT


@dataclass(frozen=True)
class Resident:
    """A weight that the caller has on the device and does not change.

    `read`: reads the given number of bytes from its start.
    """

    address: int
    size: int
    read: Callable[[int], Array]


@dataclass
class ConstantPlan:
    """Constants in one block of memory of `size` bytes, and those found in `residents`.

    Without `weights` contents are not compared: only equal handles share a place.
    """

    weights: WeightStore | None = None
    residents: Iterable[Resident] = ()
    operations: list[tuple[ConstantOp, int]] = field(
        default_factory=list[tuple[ConstantOp, int]])
    """The constants to fill in, with their offsets."""
    size: int = 0
    _places: dict[tuple[Attribute, BufferType], tuple[bool, int]] = field(
        default_factory=dict[tuple[Attribute, BufferType], tuple[bool, int]])
    _like: defaultdict[tuple[int, bytes], list[_Placed]] = field(
        default_factory=lambda: defaultdict[tuple[int, bytes], "list[_Placed]"](list))
    """The contents that have a place, by their size and first bytes."""

    def __post_init__(self) -> None:
        for resident in self.residents:
            placed = _Placed((True, resident.address), resident.read)
            self._alike(resident.size, resident.read).append(placed)

    def _alike(self, size: int, read: Callable[[int], Array]) -> list[_Placed]:
        """The placed contents of this size that start with the same bytes."""
        return self._like[size, read(min(HEAD, size)).tobytes()]

    def place(self, op: ConstantOp) -> tuple[bool, int]:
        """Whether a constant is resident; and its address if so, else its offset in the block."""
        key = op.value, op.type
        if key not in self._places:
            self._places[key] = self._found(op)
        return self._places[key]

    def _found(self, op: ConstantOp) -> tuple[bool, int]:
        size = op.type.byte_size.constant
        if size is None:
            raise ValueError(f"host.constant of symbolic size {op.type.short}")
        if self.weights is not None and size:
            content = _bytes_of(op.array(self.weights))
            alike = self._alike(size, lambda n: content[:n])
            for other in alike:
                if np.array_equal(other.read(size), content):
                    return other.place
            alike.append(_Placed((False, self.size), lambda n: content[:n]))
        place = False, self.size
        self.operations.append((op, self.size))
        self.size += whole(size)
        return place

    def forget(self) -> None:
        """Drop the contents, which are not needed once they have been uploaded."""
        self.weights, self.residents = None, ()
        self.operations.clear()
        self._like.clear()


@dataclass(frozen=True)
class _Placed:
    place: tuple[bool, int]
    read: Callable[[int], Array]


def _bytes_of(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
