"""Tiles in registers: how a tile's positions become LLVM values.

The lanes dim is divided into chunks of the machine's vector width. The remainder is one narrower
vector, of the next power of two, whose last lanes may be unused. Every other position of the tile
has a register (or row of chunks) of its own. All element types are chunked alike. The positions of
a grouped dim are the innermost elements of one register, so that a lane has several.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from itertools import product
from math import prod
from operator import mul
from typing import Any, NamedTuple

import numpy as np
from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    ReducedPrecisionFloatType,
)
from xdsl.ir import Attribute

from dialects.records import dataclass
from dialects.strata import types as t
from dialects.strata.types import TileType
from dialects.symbolic.remembered import computed_once
from targets.cpu.llvm.operands import Literal, Number, number_of, suffix, vector


class Chunk(NamedTuple):
    """`width` lanes from `offset` on, the first `valid` of which are part of the tile."""

    offset: int
    width: int
    valid: int

    @property
    def is_full(self) -> bool:
        return self.width == self.valid


SCALAR = Chunk(0, 0, 1)
"""The chunk of a position that is not in lanes; width 0 means a scalar."""


@cache
def chunks(extent: int, lanes: int) -> tuple[Chunk, ...]:
    """The chunks of a lanes dim on a machine with `lanes` lanes."""
    whole = [Chunk(k, lanes, lanes) for k in range(0, extent - lanes + 1, lanes)]
    rest = extent % lanes
    if rest:
        whole.append(Chunk(extent - rest, 1 << (rest - 1).bit_length(), rest))
    return tuple(whole)


class Reg(NamedTuple):
    """An LLVM value: name or literal, element type, number of lanes (0: a scalar), LLVM type."""

    name: str
    element: Attribute
    width: int
    type: str

    @staticmethod
    def of(name: str, element: Attribute, width: int = 0) -> Reg:
        return Reg(name, element, width, llvm_type(element, width))

    @property
    def suffix(self) -> str:
        """The type as spelled in an intrinsic's name."""
        return type_suffix(self.element, self.width)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.name}"

    def named(self, name: str) -> Reg:
        """Another value of the same type."""
        return Reg(name, self.element, self.width, self.type)

    def resized(self, name: str, width: int) -> Reg:
        """Another value of the same element type."""
        return Reg.of(name, self.element, width)

    def cast(self, element: Attribute) -> Reg:
        """The same bits as another element type with the same register type."""
        return Reg(self.name, element, self.width, llvm_type(element, self.width))


@dataclass(frozen=True)
class Tile:
    """The registers of a tile: positions row-major over unrolled dims, chunks innermost.

    `blocks`: the tile of sums that these registers hold as blocks of two rows and two columns
    (`products.py`); None where they hold what `type` says.
    """

    type: TileType
    regs: Sequence[str]
    chunks: tuple[Chunk, ...]
    blocks: TileType | None = None

    @computed_once
    def kinds(self) -> tuple[Reg, ...]:
        """For each chunk, a nameless register of its type."""
        return _kinds(self.type.element, self.chunks)

    @computed_once
    def strides(self) -> tuple[int, ...]:
        """For each unrolled dim, the distance of neighbours in `regs`."""
        return _strides(unrolled_shape(self.type), len(self.chunks))

    def reg(self, position: Sequence[int], chunk: int = 0) -> Reg:
        """The register at a position (over the unrolled dims) and chunk number."""
        return self.reg_after(sum(map(mul, self.strides, position)), chunk)

    def reg_after(self, first: int, chunk: int) -> Reg:
        """The register of a chunk at the position whose first register has a number."""
        return self.kinds[chunk].named(self.regs[first + chunk])


@cache
def _kinds(element: Attribute, parts: tuple[Chunk, ...]) -> tuple[Reg, ...]:
    return tuple(Reg.of("", element, chunk.width) for chunk in parts)


@cache
def first_registers(
    strides: tuple[int, ...], dims: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[int, ...]:
    """For each position of `shape`, row-major, the number of a tile's first register there.

    `dims`: the dims of `shape` along which the tile's registers have `strides`.
    """
    return tuple(sum(map(mul, strides, [p[d] for d in dims])) for p in _positions(shape))


@cache
def _strides(shape: tuple[int, ...], parts: int) -> tuple[int, ...]:
    return tuple(prod(shape[k + 1:]) * parts for k in range(len(shape)))


def tile_chunks(type_: TileType, lanes: int) -> tuple[Chunk, ...]:
    whole = (SCALAR,) if type_.lanes is None else chunks(type_.shape[type_.lanes], lanes)
    if type_.group is None:
        return whole
    each = type_.shape[type_.group]
    return tuple(Chunk(each * c.offset, each * max(c.width, 1), each * c.valid) for c in whole)


def unrolled_dims(type_: TileType) -> tuple[int, ...]:
    """The dims whose positions have registers of their own."""
    return _unrolled(type_.shape_attr.data)[0]


def unrolled_shape(type_: TileType) -> tuple[int, ...]:
    return _unrolled(type_.shape_attr.data)[1]


@cache
def _unrolled(
    data: tuple[tuple[int, ...], int, int, bool]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The unrolled dims and their sizes, from the data of a `ShapeAttr`."""
    shape, lanes, group, _ = data
    dims = tuple(d for d in range(len(shape)) if d not in (lanes, group))
    return dims, tuple(shape[d] for d in dims)


def positions(type_: TileType) -> Sequence[tuple[int, ...]]:
    """All positions over the unrolled dims, row-major."""
    return _positions(unrolled_shape(type_))


@cache
def _positions(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(product(*map(range, shape)))


# ---------------------------------------------------------------------- LLVM types and literals
@cache
def llvm_type(element: Attribute, width: int = 0) -> str:
    """The register type of an element; f16, bf16 and narrower floats are held as their bits."""
    return vector(_scalar_type(element), width)


@cache
def memory_type(element: Attribute, width: int = 0) -> str:
    """The type in memory, where elements of less than 8 bits take one byte."""
    return llvm_type(_in_memory(element), width)


@cache
def type_suffix(element: Attribute, width: int = 0) -> str:
    """The register type as spelled in an intrinsic's name: `v16f32`."""
    return suffix(_scalar_type(element), width)


@cache
def memory_suffix(element: Attribute, width: int = 0) -> str:
    """The type in memory as spelled in an intrinsic's name."""
    return type_suffix(_in_memory(element), width)


def _in_memory(element: Attribute) -> Attribute:
    return t.i8 if t.bit_width(element) < 8 else element


def _scalar_type(element: Attribute) -> str:
    match element:
        case Float32Type():
            return "float"
        case Float64Type():
            return "double"
        case Float16Type() | BFloat16Type():
            return "i16"
        case IndexType():
            return "i64"
        case IntegerType() | ReducedPrecisionFloatType():
            return f"i{t.bit_width(element)}"
        case _:
            raise ValueError(f"the CPU target has no registers for {element}")


def literal(value: Any, element: Attribute, width: int = 0) -> Literal:
    """A constant of an element type, in all lanes."""
    scalar = _scalar_literal(value, element)
    return splat_literal(llvm_type(element), scalar) if width else scalar


def splat_literal(type_: str, scalar: str) -> Literal:
    """A constant in all lanes."""
    return Literal.spelled(f"splat ({type_} {scalar})", number_of(scalar))


def _scalar_literal(value: Any, element: Attribute) -> Literal:
    if element == t.i1:
        return Literal.spelled("true" if value else "false", bool(value))
    if not t.is_float(element):
        return Number.of(int(value))
    if type(value) is float:
        return _float_literal(struct.pack("<d", value), element)
    return _rounded_literal(value, element)


@cache
def _float_literal(bits: bytes, element: Attribute) -> Literal:
    """The literal of a float, whose bits tell -0.0 from 0.0 and one NaN from another."""
    return _rounded_literal(struct.unpack("<d", bits)[0], element)


def _rounded_literal(value: Any, element: Attribute) -> Literal:
    number = np.array(value, t.dtype_of(element))
    if not isinstance(element, Float32Type | Float64Type):
        return Literal.spelled(str(int(number.view(f"i{number.itemsize}"))), float(number))
    bits = struct.unpack("<Q", struct.pack("<d", float(number)))[0]
    return Literal.spelled(f"0x{bits:016X}", float(number))


def lane_literal(values: Sequence[int | str], type_: str) -> Literal:
    """A constant vector, lane by lane: `<i32 0, i32 1>`."""
    return Literal.spelled("<" + ", ".join(f"{type_} {v}" for v in values) + ">")


def mask_literal(chunk: Chunk) -> Literal:
    """Which lanes of a chunk are part of the tile."""
    return lane_literal([int(k < chunk.valid) for k in range(chunk.width)], "i1")
