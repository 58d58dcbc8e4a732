"""Operations on tiles in registers: full, reduce, dot, index, valid and convert."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dialects.strata import types as t
from dialects.strata.types import TileType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from targets.cpu.emit.access import Access, lanes_below
from targets.cpu.emit.build import Builder
from targets.cpu.emit.grouping import convert
from targets.cpu.emit.halves import narrow, widen
from targets.cpu.emit.index import Indices, iota
from targets.cpu.emit.products import Products
from targets.cpu.emit.scalar import extremum
from targets.cpu.emit.values import (
    Chunk,
    Reg,
    Tile,
    lane_literal,
    literal,
    positions,
    tile_chunks,
    unrolled_dims,
)
from targets.cpu.llvm.writer import Writer
from targets.cpu.machine import Machine

_INTEGER_COMBINERS = {"add": "add", "mul": "mul", "and": "and", "or": "or"}
_FLOAT_COMBINERS = {"add": "fadd", "mul": "fmul"}


class Compute:
    """Emits computations on tiles into a writer."""

    def __init__(self, writer: Writer, indices: Indices, builder: Builder, machine: Machine):
        self.writer = writer
        self.indices = indices
        self.builder = builder
        self.lanes = machine.lanes
        self.products = Products(builder)

    def full(self, value: Any, type_: TileType) -> Tile:
        parts = tile_chunks(type_, self.lanes)
        number = self.builder.number(value, type_.element)
        row = [literal(number, type_.element, chunk.width) for chunk in parts]
        return Tile(type_, tuple(row * len(list(positions(type_)))), parts)

    # ------------------------------------------------------------------ reduce
    def reduce(self, combiner: str, tile: Tile, axis: int, result: TileType) -> Tile:
        """Combine along one dim: pairwise between registers, then pairwise inside a vector."""
        tile = self.convert(tile, tile.type.lanes)
        if axis == tile.type.lanes:
            regs = [self._reduce_lanes(combiner, [tile.reg(p, c) for c in range(len(tile.chunks))],
                                       tile.chunks).name for p in positions(tile.type)]
            return self._laid_out(Tile(_without_lanes(result), tuple(regs),
                                       tile_chunks(_without_lanes(result), self.lanes)), result)
        place = unrolled_dims(tile.type).index(axis)
        regs: list[str] = []
        kept = t.tile(result.element, result.shape, _lanes_after(tile.type, axis))
        for position in positions(kept):
            for number in range(len(tile.chunks)):
                column = [tile.reg((*position[:place], k, *position[place:]), number)
                          for k in range(tile.type.shape[axis])]
                regs.append(self._tree(combiner, column).name)
        return self._laid_out(Tile(kept, tuple(regs), tile.chunks), result)

    def scan(self, combiner: str, tile: Tile, axis: int) -> Tile:
        """Combine each value with all earlier ones along a dim that is not in lanes."""
        tile = self.convert(tile, tile.type.lanes)
        place = unrolled_dims(tile.type).index(axis)
        if combiner == "sort":
            return self._sorted(tile, place)
        found: dict[tuple[tuple[int, ...], int], Reg] = {}
        for position in positions(tile.type):
            before = (*position[:place], position[place] - 1, *position[place + 1:])
            for number in range(len(tile.chunks)):
                reg = tile.reg(position, number)
                known = found.get((before, number))
                found[position, number] = reg if known is None else self.combine(
                    combiner, known, reg)
        return Tile(tile.type, tuple(reg.name for reg in found.values()), tile.chunks)

    def _sorted(self, tile: Tile, place: int) -> Tile:
        """Compare neighbours along an unrolled dim, and exchange them, in as many rounds as it has
        elements."""
        regs = {(position, number): tile.reg(position, number)
                for position in positions(tile.type) for number in range(len(tile.chunks))}
        size = 1 + max(position[place] for position, _ in regs)
        for turn in range(size):
            for (position, number), reg in list(regs.items()):
                if position[place] % 2 == turn % 2 and position[place] + 1 < size:
                    after = (*position[:place], position[place] + 1, *position[place + 1:]), number
                    other = regs[after]
                    regs[position, number] = self.combine("min", reg, other)
                    regs[after] = self.combine("max", reg, other)
        return Tile(tile.type, tuple(reg.name for reg in regs.values()), tile.chunks)

    def _laid_out(self, tile: Tile, type_: TileType) -> Tile:
        return tile if tile.type.lanes == type_.lanes else self.convert(tile, type_.lanes)

    def _tree(self, combiner: str, regs: Sequence[Reg]) -> Reg:
        level = list(regs)
        while len(level) > 1:
            pairs = [self.combine(combiner, level[k], level[k + 1])
                     for k in range(0, len(level) - 1, 2)]
            level = pairs + level[len(level) - len(level) % 2:]
        return level[0]

    def _reduce_lanes(
        self, combiner: str, regs: Sequence[Reg], parts: Sequence[Chunk]
    ) -> Reg:
        """One scalar from all lanes of a row of chunks."""
        equal = [c.width == parts[0].width and c.is_full for c in parts]  # all but the last
        full = [reg for reg, is_equal in zip(regs, equal, strict=True) if is_equal]
        scalars = [self._halve(combiner, self._tree(combiner, full))] if full else []
        for reg, chunk in list(zip(regs, parts, strict=True))[len(full):]:
            scalars.append(self._valid_lanes(combiner, reg, chunk))
        return self._tree(combiner, scalars)

    def _valid_lanes(self, combiner: str, reg: Reg, chunk: Chunk) -> Reg:
        """Combine the used lanes; unused ones are set to the neutral value or repeat a used
        lane."""
        if chunk.is_full:
            return self._halve(combiner, reg)
        if combiner in ("add", "mul"):
            neutral = self.builder.constant(0 if combiner == "add" else 1, reg)
            lanes = lane_literal([k if k < chunk.valid else chunk.width
                                  for k in range(chunk.width)], "i32")
        else:
            neutral = reg
            lanes = lane_literal([k if k < chunk.valid else 0 for k in range(chunk.width)], "i32")
        name = self.writer.local(f"shufflevector {reg.typed}, {neutral.typed}, "
                                 f"<{chunk.width} x i32> {lanes}")
        return self._halve(combiner, reg.named(name))

    def _halve(self, combiner: str, reg: Reg) -> Reg:
        """Combine the halves of a vector until one lane is left."""
        if not t.is_float(reg.element):
            return self._whole(combiner, reg)
        while reg.width > 1:
            half = reg.width // 2
            low, high = (self._slice(reg, k, half) for k in (0, half))
            reg = self.combine(combiner, low, high)
        name = self.writer.local(f"extractelement {reg.typed}, i64 0")
        return Reg.of(name, reg.element)

    def _whole(self, combiner: str, reg: Reg) -> Reg:
        """All lanes of integers combined by one intrinsic.

        Combining halves would be miscompiled after a product or difference of bytes. LLVM's x86
        backend then uses a single instruction (`vpdpbusd`, `psadbw`), and failed to add up its
        partial sums.
        """
        operation = f"s{combiner}" if combiner in ("max", "min") else _INTEGER_COMBINERS[combiner]
        scalar = Reg.of("", reg.element)
        return scalar.named(self.writer.local(self.writer.call(
            f"llvm.vector.reduce.{operation}.v{reg.width}{scalar.type}", scalar.type,
            [(reg.type, reg.name)])))

    def _slice(self, reg: Reg, start: int, width: int) -> Reg:
        lanes = iota(width, start, 1, "i32")
        return Reg.of(self.writer.local(
            f"shufflevector {reg.typed}, {reg.type} poison, <{width} x i32> {lanes}"),
            reg.element, width)

    def combine(self, combiner: str, a: Reg, b: Reg) -> Reg:
        """Two values combined; max and min propagate NaN, and integers are signed."""
        if combiner in ("max", "min"):
            if t.is_float(a.element):
                greatest = combiner == "max"
                return self._in_f32(lambda x, y: extremum(self.builder, greatest, x, y), a, b)
            return self.builder.intrinsic(f"s{combiner}", a, b)
        if t.is_float(a.element):
            operation = _FLOAT_COMBINERS[combiner]
            return self._in_f32(lambda x, y: self.builder.contracted(operation, x, y), a, b)
        return self.builder.binary(_INTEGER_COMBINERS[combiner], a, b)

    def _in_f32(self, operation: Callable[[Reg, Reg], Reg], a: Reg, b: Reg) -> Reg:
        """Combine 16-bit floats in f32, and narrow the result again."""
        result = operation(widen(self.builder, a), widen(self.builder, b))
        return result if result.element == a.element else narrow(self.builder, result, a.element)

    # ------------------------------------------------------------------ dot
    def dot(self, a: Tile, b: Tile, c: Tile, unsigned: Sequence[bool]) -> Tile:
        """c + a @ b as chains of multiply-adds; of whole groups, if the operands are grouped."""
        sums = c.blocks or c.type
        columns = sums.rank - 1
        if a.type.group is not None and sums.lanes == columns:
            return self._dot_of_groups(a, self.convert(b, 1, 0), c, unsigned)
        a = self.convert(a, c.type.lanes if c.type.lanes != columns else None)
        b = self.convert(b, 1 if c.type.lanes == columns else None)
        regs: list[str] = []
        for position in positions(c.type):
            place = dict(zip(unrolled_dims(c.type), position, strict=True))
            row = [p for d, p in place.items() if d != columns]
            column = [p for d, p in place.items() if d == columns]
            for number in range(len(c.chunks)):
                total = c.reg(position, number)
                for k in range(b.type.shape[0]):
                    left = a.reg((*row, k), 0 if a.type.lanes is None else number)
                    right = b.reg((k, *column), 0 if b.type.lanes is None else number)
                    total = self.products.add_product(left, right, total, unsigned)
                regs.append(total.name)
        return Tile(c.type, tuple(regs), c.chunks)

    def _dot_of_groups(self, a: Tile, b: Tile, c: Tile, unsigned: Sequence[bool]) -> Tile:
        a = self.convert(a, None, a.type.rank - 1)
        if self.products.has_blocks(a.type, c.blocks or c.type):
            found = self.products.add_blocks(a, b, self.products.in_blocks(c), unsigned)
            return found if c.blocks is not None else self.products.in_rows(found)
        regs = [self.products.multiply_add(
                    a.reg(position), b.reg((), number), c.reg(position, number), unsigned).name
                for position in positions(c.type) for number in range(len(c.chunks))]
        return Tile(c.type, tuple(regs), c.chunks)

    # ------------------------------------------------------------------ index tiles
    def index(self, access: Access) -> Tile:
        """The flat offset of an access at every position, as i64."""
        parts = tile_chunks(access.type, self.lanes)
        regs: list[str] = []
        for position in positions(access.type):
            point = access.at(position)
            for number, chunk in enumerate(parts):
                if not chunk.width:
                    regs.append(self.indices.scalar(point.flat))
                    continue
                vectors = access.lane_vectors(point, number, chunk)
                regs.append(self.indices.vector(point.flat, vectors, chunk.width))
        return Tile(access.type, tuple(regs), parts)

    def valid(self, expr: Expr, bound: Expr, type_: TileType) -> Tile:
        """expr < bound at every position."""
        if type_.group is not None:
            whole = t.tile(type_.element, type_.shape, type_.lanes)
            return self.convert(self.valid(expr, bound, whole), type_.lanes, type_.group)
        parts = tile_chunks(type_, self.lanes)
        regs: list[str] = []
        for position in positions(type_):
            fixed = {Symbol.place(d): Expr.of(p)
                     for d, p in zip(unrolled_dims(type_), position, strict=True)}
            room = (bound - expr).substitute(fixed)
            regs += [self._is_positive(room, type_, chunk) for chunk in parts]
        return Tile(type_, tuple(regs), parts)

    def _is_positive(self, room: Expr, type_: TileType, chunk: Chunk) -> str:
        """room > 0, per lane."""
        if not chunk.width or type_.lanes is None:
            return self.indices.binary("icmp sgt", self.indices.scalar(room), "0")
        symbol = Symbol.place(type_.lanes)
        split = room.linear([symbol])
        step = None if split is None else split[0].get(symbol, Expr.of(0)).constant
        if split is None or step is None:
            vectors = {symbol: Reg.of(iota(chunk.width, chunk.offset), t.index, chunk.width)}
            lanes = self.indices.vector(room, vectors, chunk.width)
            return self.writer.hoist(f"icmp sgt <{chunk.width} x i64> {lanes}, zeroinitializer",
                                     lanes)
        below = lanes_below(self.writer, self.indices, split[1], -step, chunk)
        if below is None or below is False:
            return literal(below is None, t.i1, chunk.width)
        return below

    # ------------------------------------------------------------------ layout
    def convert(self, tile: Tile, lanes: int | None, group: int | None = None) -> Tile:
        """The same values with another dim in lanes (or none), and another one grouped."""
        return convert(self.writer, tile, lanes, group, self.lanes)


def _without_lanes(type_: TileType) -> TileType:
    return t.tile(type_.element, type_.shape)


def _lanes_after(type_: TileType, axis: int) -> int | None:
    """The position of the dim in lanes after `axis`, another dim, is removed."""
    return None if type_.lanes is None else type_.lanes - (type_.lanes > axis)

