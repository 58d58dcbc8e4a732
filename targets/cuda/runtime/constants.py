"""Where constants lie: equal bytes are stored once, and the caller's device copies are reused.

A constant that was packed for kernels may be byte for byte one of the model's weights in another
shape. Examples are a matrix that is multiplied transposed, and an embedding that also computes the
scores of a language model's tokens. Nothing here imports xDSL when a plan is read from a file.
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


@dataclass(frozen=True)
class PlannedConstant:
    """A constant to fill in at an offset: the weight of a key, or the values of a literal."""

    type: ArrayType
    offset: int
    key: str = ""
    values: tuple[float | bool, ...] = ()

    @staticmethod
    def of(op: ConstantOp, offset: int) -> PlannedConstant:
        from dialects.strata.types import LiteralAttr

        type_, value = ArrayType.of(op.type), op.value
        if isinstance(value, LiteralAttr):
            return PlannedConstant(type_, offset, values=tuple(value.data))
        key: Any = getattr(value, "key", None)
        return PlannedConstant(type_, offset, key.data)

    def array(self, weights: WeightStore) -> Array:
        """Its elements. Raises KeyError if the store lacks the weight."""
        if self.key:
            return weights.arrays[self.key]
        shape = [int(size.evaluate({})) for size in self.type.shape]
        return np.array(self.values, self.type.dtype).reshape(shape)

    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them."""
        return [self.type.facts(), self.offset, self.key, self.values]

    @staticmethod
    def read(facts: Sequence[Any]) -> PlannedConstant:
        """The inverse of `facts`."""
        type_, offset, key, values = facts
        return PlannedConstant(ArrayType.read(type_), int(offset), str(key), tuple(values))


@dataclass
class ConstantPlan:
    """Constants in one block of memory of `size` bytes, and those found in `residents`.

    Without `weights` contents are not compared: only equal handles share a place.
    """

    weights: WeightStore | None = None
    residents: Iterable[Resident] = ()
    constants: list[PlannedConstant] = field(default_factory=list[PlannedConstant])
    """The constants to fill in."""
    size: int = 0
    _places: dict[tuple[Attribute, BufferType], tuple[bool, int]] = field(
        default_factory=dict["tuple[Attribute, BufferType]", "tuple[bool, int]"])
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
        self.constants.append(PlannedConstant.of(op, self.size))
        self.size += whole(size)
        return place

    def forget(self) -> None:
        """Drop the contents, which are not needed once they have been uploaded."""
        self.weights, self.residents = None, ()
        self.constants.clear()
        self._like.clear()


    # ------------------------------------------------------------------ files
    def facts(self) -> dict[str, Any]:
        """The constants to fill in, as JSON can represent them."""
        return {"size": self.size, "constants": [c.facts() for c in self.constants]}

    @staticmethod
    def read(facts: Mapping[str, Any]) -> ConstantPlan:
        """The plan that `facts` describes."""
        return ConstantPlan(size=int(facts["size"]),
                            constants=list(map(PlannedConstant.read, facts["constants"])))


@dataclass(frozen=True)
class _Placed:
    place: tuple[bool, int]
    read: Callable[[int], Array]


def _bytes_of(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
