"""Where constants lie: equal bytes are stored once, and the caller's device copies are reused.

A constant that was packed for kernels may be byte for byte one of the model's weights in another
shape. Examples are a matrix that is multiplied transposed, and an embedding that also computes the
scores of a language model's tokens. Nothing here imports xDSL.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dialects.strata.array_type import ArrayType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dialects.strata.types import Array
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


@dataclass(frozen=True)
class PlannedConstant:
    """A constant of a program: the weight of a key, or the values of a literal."""

    type: ArrayType
    key: str = ""
    values: tuple[float | bool, ...] = ()

    @property
    def bytes(self) -> int:
        """Its size. Raises ValueError for one of symbolic size."""
        count = self.type.count.constant
        if count is None:
            raise ValueError(f"a constant of symbolic size {self.type.short}")
        return count * self.type.dtype.itemsize

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple([int(size.evaluate({})) for size in self.type.shape])

    def array(self, weights: WeightStore) -> Array:
        """Its elements. Raises KeyError if the store lacks the weight."""
        if self.key:
            return weights.arrays[self.key]
        return np.array(self.values, self.type.dtype).reshape(self.shape)

    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them."""
        return [self.type.facts(), self.key, self.values]

    @staticmethod
    def read(facts: Sequence[Any]) -> PlannedConstant:
        """The inverse of `facts`."""
        type_, key, values = facts
        return PlannedConstant(ArrayType.read(type_), str(key), tuple(values))


@dataclass
class ConstantLayout:
    """Places of constants in one block of memory of `size` bytes, or in the caller's memory.

    `readable`: key -> address, of parameters that kernels can read where the caller has them.
    `residents`: weights of the caller that constants are compared with.
    """

    weights: WeightStore
    residents: Iterable[Resident] = ()
    readable: Mapping[str, int] = field(default_factory=dict[str, int])
    filled: list[tuple[PlannedConstant, int]] = field(
        default_factory=list[tuple[PlannedConstant, int]])
    """The constants to fill in, with their offsets in the block."""
    size: int = 0
    _places: dict[PlannedConstant, tuple[bool, int]] = field(
        default_factory=dict[PlannedConstant, "tuple[bool, int]"])
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

    def place(self, constant: PlannedConstant) -> tuple[bool, int]:
        """Whether a constant is resident; and its address if so, else its offset in the block."""
        if constant not in self._places:
            self._places[constant] = self._found(constant)
        return self._places[constant]

    def _found(self, constant: PlannedConstant) -> tuple[bool, int]:
        size = constant.bytes
        if constant.key in self.readable:
            return True, self.readable[constant.key]
        if size and constant.key not in self.weights.tensors:
            content = _bytes_of(constant.array(self.weights))
            alike = self._alike(size, lambda n: content[:n])
            for other in alike:
                if np.array_equal(other.read(size), content):
                    return other.place
            alike.append(_Placed((False, self.size), lambda n: content[:n]))
        place = False, self.size
        self.filled.append((constant, self.size))
        self.size += whole(size)
        return place


@dataclass(frozen=True)
class _Placed:
    place: tuple[bool, int]
    read: Callable[[int], Array]


def _bytes_of(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
