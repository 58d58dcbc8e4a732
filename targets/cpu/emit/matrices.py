"""Tiles in matrix registers (AMX): products of small matrices, one instruction each.

A register has a few rows of bytes (`MatrixUnit`). A tile is divided into parts of that size, with
its rows split evenly:

    sums     tile<(32x32)xf32>     2 x 2 parts of 16 x 16
    a        tile<(32x32)xbf16>    2 parts of 16 rows; a row has 32 positions of the summed axis
    b        tile<(32x32)xbf16>    2 parts of 16 columns; a row has a pair of these, per column

The registers have fixed roles: first the sums, then a, then b. They are no LLVM values, so a kernel
accumulates one tile at a time. A configuration sets the rows and bytes of each register. It is
loaded at the start of a function, or before each tile of sums if the tiles differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from xdsl.ir import SSAValue

from dialects import block as bl
from dialects.block.programs import tile_type
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.strata.types import TileType
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import simplify
from dialects.symbolic.symbol import Symbol
from targets.cpu.emit.access import Access, Buffer
from targets.cpu.emit.index import Indices
from targets.cpu.emit.memory import Memory
from targets.cpu.emit.values import Tile
from targets.cpu.llvm.writer import Writer
from targets.cpu.machine import MatrixUnit

_INTEGER_DOTS = {(False, False): "tdpbssd", (False, True): "tdpbsud",
                 (True, False): "tdpbusd", (True, True): "tdpbuud"}
_PALETTE_BYTES = 64
"""Bytes of a configuration: the palette, then bytes per row and rows of each register."""


@dataclass(frozen=True)
class Part:
    """Rows or columns of a tile in one register: `count` from `start`, at one place of other dims.
    """

    place: tuple[int, ...]
    start: int
    count: int


class Shapes(NamedTuple):
    """How the tiles of a product are divided into registers."""

    rows: tuple[Part, ...]
    columns: tuple[Part, ...]
    depth: int
    """Positions of the summed axis."""
    group: int
    """How many positions share 32 bits."""

    @staticmethod
    def of(op: bl.DotOp, unit: MatrixUnit) -> Shapes:
        a, c = tile_type(op.a), tile_type(op.result)
        group = 4 // t.byte_width(a.element)
        return Shapes(row_parts(c, unit), column_parts(c, unit), a.shape[-1], group)

    def sum_register(self, row: int, column: int) -> int:
        return row * len(self.columns) + column

    def factor_register(self, operand: int, part: int) -> int:
        """The register of a part of factor a (0) or b (1)."""
        return len(self.rows) * (len(self.columns) + operand) + part

    def configuration(self, unit: MatrixUnit) -> list[int]:
        """The bytes of the configuration. Raises ValueError if it needs too many registers."""
        shapes = [(r.count, 4 * c.count) for r in self.rows for c in self.columns]
        shapes += [(r.count, 4 * self.depth // self.group) for r in self.rows]
        shapes += [(self.depth // self.group, 4 * c.count) for c in self.columns]
        fits = all(rows <= unit.rows and width <= unit.row_bytes for rows, width in shapes)
        if not fits or len(shapes) > unit.registers or self.depth % self.group:
            raise ValueError(f"products of {self.depth} positions in {len(self.rows)} x "
                             f"{len(self.columns)} parts do not fit the matrix registers")
        found = [0] * _PALETTE_BYTES
        found[0] = 1
        for k, (rows, width) in enumerate(shapes):
            found[16 + 2 * k], found[48 + k] = width, rows
        return found


def row_parts(type_: TileType, unit: MatrixUnit) -> tuple[Part, ...]:
    """The parts of the rows of a or of the sums, as even as possible."""
    *outer, inner = type_.shape[:-1] or (1,)
    count = -(-inner // -(-inner // unit.rows))
    return tuple(Part(place, start, min(count, inner - start))
                 for place in product(*map(range, outer)) for start in range(0, inner, count))


def column_parts(type_: TileType, unit: MatrixUnit) -> tuple[Part, ...]:
    """The parts of the columns of b or of the sums."""
    size, most = type_.shape[-1], unit.row_bytes // 4
    return tuple(Part((), start, min(most, size - start)) for start in range(0, size, most))


class Matrices:
    """Emits a kernel's operations on tiles in matrix registers."""

    def __init__(
        self, writer: Writer, indices: Indices, memory: Memory, unit: MatrixUnit,
        dots: Sequence[bl.DotOp],
    ):
        self.writer, self.indices, self.memory, self.unit = writer, indices, memory, unit
        self.shapes: Mapping[TileType, Shapes] = {
            tile_type(op.c): Shapes.of(op, unit) for op in dots}
        self._factors: dict[SSAValue, list[tuple[str, str]]] = {}
        """For each part of a factor, its address and the stride of its rows in bytes."""

    # ------------------------------------------------------------------ configurations
    def start(self) -> None:
        """At the start of a function: load the configuration, if there is only one."""
        if len(self._configurations) == 1:
            self._configure(*self._configurations)

    def release(self) -> None:
        """At the end of a function: release the registers."""
        self._call("tilerelease")

    @property
    def _configurations(self) -> set[tuple[int, ...]]:
        return {tuple(s.configuration(self.unit)) for s in self.shapes.values()}

    def _configure(self, values: Sequence[int]) -> None:
        constant = self.writer.constant(
            f"[{len(values)} x i8]", f"[{', '.join(f'i8 {v}' for v in values)}]")
        self._call("ldtilecfg", ("ptr", constant))

    def _call(self, name: str, *arguments: tuple[str, str]) -> None:
        full = f"{self.unit.instructions}.{name}"
        self.writer.emit(self.writer.call(full, "void", list(arguments)))

    # ------------------------------------------------------------------ operations
    def full(self, op: bl.FullOp, type_: TileType) -> Tile:
        """Zero the sums. Raises ValueError for any other number."""
        shapes = self.shapes.get(type_)
        if shapes is None or op.number != 0:
            raise ValueError("sums in matrix registers start at 0")
        if len(self._configurations) > 1:
            self._configure(shapes.configuration(self.unit))
        for register in range(len(shapes.rows) * len(shapes.columns)):
            self._call("tilezero", ("i8", str(register)))
        return in_registers(type_)

    def load(self, op: bl.LoadOp, access: Access) -> Tile:
        """A factor, which is loaded into registers just before it is multiplied."""
        users = {(use.operation, use.index) for use in op.result.uses}
        roles = {k if isinstance(user, bl.DotOp) else 2 for user, k in users}
        if len(roles) != 1 or 2 in roles:
            raise ValueError("a load into matrix registers must feed one factor of products")
        dots = [user for user, _ in users if isinstance(user, bl.DotOp)]
        shapes = Shapes.of(dots[0], self.unit)
        parts = ([_row_part(access, p) for p in shapes.rows] if roles == {0} else
                 [_column_part(access, p, shapes) for p in shapes.columns])
        self._factors[op.result] = [self._address(p, op.pad_value) for p in parts]
        return in_registers(access.type)

    def dot(self, op: bl.DotOp) -> Tile:
        """Sums + a @ b, one part after another."""
        type_ = tile_type(op.c)
        shapes, a, b = self.shapes[type_], self._factors[op.a], self._factors[op.b]
        name = _INTEGER_DOTS[op.is_unsigned(0), op.is_unsigned(1)]
        if t.is_float(type_.element):
            name = "tdpbf16ps"
        for k, right in enumerate(b):
            self._load(shapes.factor_register(1, k), right)
            for r, left in enumerate(a):
                if k == 0:
                    self._load(shapes.factor_register(0, r), left)
                registers = (shapes.sum_register(r, k), shapes.factor_register(0, r),
                             shapes.factor_register(1, k))
                self._call(name, *(("i8", str(n)) for n in registers))
        return in_registers(type_)

    def store(self, access: Access, type_: TileType) -> None:
        """Write all sums to memory."""
        shapes = self.shapes[type_]
        for r, row in enumerate(shapes.rows):
            for k, column in enumerate(shapes.columns):
                part = _row_part(access, row, column)
                found = self._place(part)
                if found is None:
                    raise ValueError("sums in matrix registers are stored row by row")
                self._call("tilestored64", ("i8", str(shapes.sum_register(r, k))),
                           ("ptr", found[0]), ("i64", found[1]))

    def _load(self, register: int, source: tuple[str, str]) -> None:
        self._call("tileloadd64", ("i8", str(register)), ("ptr", source[0]), ("i64", source[1]))

    # ------------------------------------------------------------------ addresses
    def _address(self, part: Access, pad: float | bool) -> tuple[str, str]:
        """The address of a part, or of a padded copy."""
        return self._place(part) or self._copied(part, pad)

    def _place(self, part: Access) -> tuple[str, str] | None:
        """The address and the stride of rows in bytes; None if rows are not contiguous."""
        row, column = Symbol.place(0), Symbol.place(1)
        split = None if part.checks or part.tiles else part.flat.linear(
            [row, column])
        if split is None or split[0].get(column, Expr.of(0)) != Expr.of(1):
            return None
        distance = split[0].get(row, Expr.of(0)) * t.byte_width(part.buffer.element)
        return part.pointer(split[1]), self.indices.scalar(distance)

    def _copied(self, part: Access, pad: float | bool) -> tuple[str, str]:
        """A copy made with vectors, which can skip what is outside."""
        element, rows = part.buffer.element, part.type.shape[0]
        sizes = tuple(map(Expr.of, (rows, self.unit.row_bytes // t.byte_width(element))))
        memory = self.writer.at_entry(
            f"alloca [{rows * self.unit.row_bytes} x i8], align {self.unit.row_bytes}")
        copy = Buffer(memory, element, sizes, (sizes[1], Expr.of(1)))
        tile = self.memory.load(part, part.type, pad)
        where = (Expr.place(0), Expr.place(1))
        self.memory.store(replace(part, buffer=copy, where=where, checks=(), tiles={}), tile)
        return memory, str(self.unit.row_bytes)


def in_registers(type_: TileType) -> Tile:
    """A tile that LLVM does not see, because it is in matrix registers."""
    return Tile(type_, (), ())


def _row_part(access: Access, rows: Part, columns: Part | None = None) -> Access:
    """Some rows of a or of the sums, as a tile of two dims."""
    last = access.type.rank - 1
    count = access.type.shape[last] if columns is None else columns.count
    values = {Symbol.place(d): Expr.of(k) for d, k in enumerate(rows.place)}
    if last > 0:
        values[Symbol.place(last - 1)] = Expr.place(0) + rows.start
    values[Symbol.place(last)] = Expr.place(1) + (columns.start if columns is not None else 0)
    return _part(access, values, (rows.count, count))


def _column_part(access: Access, columns: Part, shapes: Shapes) -> Access:
    """Some columns of b, as rows that hold the groups of all these columns next to each other."""
    row, at, group = Expr.place(0), Expr.place(1), shapes.group
    values = {Symbol.place(0): row * group + at % group,
              Symbol.place(1): at // group + columns.start}
    return _part(access, values, (shapes.depth // group, columns.count * group))


def _part(access: Access, values: Mapping[Symbol, Expr], shape: tuple[int, int]) -> Access:
    sizes = {Symbol.place(d): Expr.of(n) for d, n in enumerate(shape)}
    where = tuple(simplify(w.substitute(values), sizes) for w in access.where)
    return replace(access, where=where, type=t.tile(access.type.element, shape, 1))
