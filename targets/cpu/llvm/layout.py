"""The types of native functions (`native.py`): how Python's annotations lie in memory.

    U64, I64, U32, I32, U8       integers; comparisons, divisions and shifts follow the sign
    bool                         i1; never in memory
    a subclass of `Struct`       a pointer to its fields
    `S | None`                   the same, which may be null
    Array[T]                     a pointer to elements of one type
    Atomic32, Atomic64           a pointer to an integer that threads share
    Callable[[...], T]           a pointer to a function

A field lies after the one before it, or where `place` says. Fields that are `Inside` the structure,
arrays of a fixed `Count` and atomic integers lie in the structure itself, so reading such a field
gives its address.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from functools import cache
from typing import (
    Annotated,
    Any,
    Generic,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from dialects.records import dataclass

T = TypeVar("T")


# ---------------------------------------------------------------------- kinds of values
class Integer(NamedTuple):
    """A number of `bits` bits."""

    bits: int
    signed: bool = False

    @property
    def llvm(self) -> str:
        return f"i{self.bits}"

    @property
    def size(self) -> int:
        return self.bits // 8


@dataclass(frozen=True)
class Pointer:
    """The address of a structure."""

    to: type[Struct]
    llvm = "ptr"
    size = 8


@dataclass(frozen=True)
class Elements:
    """The address of elements of one kind."""

    of: Kind
    llvm = "ptr"
    size = 8


@dataclass(frozen=True)
class Shared:
    """The address of an integer that several threads read and write."""

    of: Integer
    llvm = "ptr"

    @property
    def size(self) -> int:
        return self.of.size


@dataclass(frozen=True)
class Function:
    """The address of a function."""

    parameters: tuple[Kind, ...]
    result: Kind | None
    llvm = "ptr"
    size = 8


@dataclass(frozen=True)
class Pair:
    """Two results."""

    parts: tuple[Kind, ...]
    size = 16

    @property
    def llvm(self) -> str:
        return f"{{{', '.join(part.llvm for part in self.parts)}}}"


Kind = Integer | Pointer | Elements | Shared | Function | Pair
BOOL = Integer(1)

# ---------------------------------------------------------------------- what annotations are
U8 = Annotated[int, Integer(8)]
U32 = Annotated[int, Integer(32)]
U64 = Annotated[int, Integer(64)]
I32 = Annotated[int, Integer(32, signed=True)]
I64 = Annotated[int, Integer(64, signed=True)]


class Struct:
    """A structure in memory, whose fields are the class's annotations."""

    BYTES: int | None = None
    """Its size, if it is more than its fields need."""


class Array(Struct, Generic[T]):
    """Elements one after another. Those that are structures are read as their addresses."""

    def __getitem__(self, number: int) -> T:
        raise TypeError("only native functions read memory")

    def __setitem__(self, number: int, value: T) -> None:
        raise TypeError("only native functions write memory")


class Atomic32(Struct):
    """A 32-bit number that is read and written at once, in no order with other memory."""

    def load(self) -> U32:
        raise TypeError("only native functions read memory")

    def store(self, value: U32) -> None:
        raise TypeError("only native functions write memory")


class Atomic64(Struct):
    """A 64-bit number that is read and written at once, in no order with other memory."""

    def store(self, value: U64) -> None:
        raise TypeError("only native functions write memory")

    def add(self, value: U64) -> U64:
        """Add to the number; returns what it was before."""
        raise TypeError("only native functions write memory")


class Inside(NamedTuple):
    """Marks a field that is a structure, not a pointer to one."""


class Count(NamedTuple):
    """Marks a field that is an array of `number` elements."""

    number: int


class _Place(NamedTuple):
    byte: int


def place(byte: int) -> Any:
    """The default of a field that lies at a byte of its structure."""
    return _Place(byte)


@cache
def kind_of(annotation: Any) -> Kind | None:
    """The kind of values with an annotation; None for no value. Raises TypeError for others."""
    if annotation is None or annotation is type(None):
        return None
    if annotation is bool:
        return BOOL
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        numbers = [m for m in arguments[1:] if isinstance(m, Integer)]
        return numbers[0] if numbers else kind_of(arguments[0])
    if origin in (Union, types.UnionType):
        [found] = {kind_of(a) for a in arguments if a is not type(None)}
        return found
    if origin is Callable:
        return Function(tuple(map(known_kind, arguments[0])), kind_of(arguments[1]))
    if origin is tuple:
        return Pair(tuple(map(known_kind, arguments)))
    if origin is Array:
        return Elements(known_kind(arguments[0]))
    if annotation in (Atomic32, Atomic64):
        return Shared(Integer(32 if annotation is Atomic32 else 64))
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return Pointer(annotation)
    raise TypeError(f"no native value is a {annotation}")


def known_kind(annotation: Any) -> Kind:
    """The kind of a value that there must be. Raises TypeError if there is none."""
    kind = kind_of(annotation)
    if kind is None:
        raise TypeError("a native value cannot be None")
    return kind


# ---------------------------------------------------------------------- structures
class Field(NamedTuple):
    """A field of a structure: where it lies, and whether it is read as its own address."""

    kind: Kind
    byte: int
    is_inside: bool
    size: int


@cache
def fields(struct: type[Struct]) -> dict[str, Field]:
    """The fields of a structure, first those of the structure that it extends."""
    found: dict[str, Field] = {}
    end = 0
    for name, annotation in _hints(struct).items():
        default: object = getattr(struct, name, None)
        field = _field(annotation, default.byte if isinstance(default, _Place) else end)
        found[name], end = field, field.byte + field.size
    return found


def _hints(struct: type[Struct]) -> dict[str, Any]:
    hints = get_type_hints(struct, include_extras=True)
    return {name: hints[name] for base in reversed(struct.__mro__) if base is not Struct
            for name in inspect.get_annotations(base) if name in hints}


def _field(annotation: Any, byte: int) -> Field:
    kind = known_kind(annotation)
    marks = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    for mark in marks:
        if isinstance(mark, Count) and isinstance(kind, Elements):
            return Field(kind, byte, True, mark.number * stride(kind))
        if isinstance(mark, Inside) and isinstance(kind, Pointer):
            return Field(kind, byte, True, size_of(kind.to))
    return Field(kind, byte, isinstance(kind, Shared), kind.size)


def size_of(struct: type[Struct]) -> int:
    """The bytes of a structure."""
    return struct.BYTES or max((f.byte + f.size for f in fields(struct).values()), default=0)


def stride(kind: Elements) -> int:
    """The bytes from one element to the next."""
    return size_of(kind.of.to) if isinstance(kind.of, Pointer) else kind.of.size


def parameters(function: Callable[..., Any]) -> tuple[dict[str, Kind], Kind | None]:
    """The kinds of a function's parameters and of its result."""
    hints = get_type_hints(function, include_extras=True)
    result = kind_of(hints.pop("return", None))
    return {name: known_kind(hint) for name, hint in hints.items()}, result
