"""Sums of a few products per lane: the form of `block.dot` with grouped operands.

    c[lane] + sum over k of a[k] * b[lane, k]         a: one group, the same for all lanes

Processors have instructions for bytes, 16-bit integers and bf16 (`targets/cpu/instructions`).
Without one, each position of the group is widened and multiplied. All integer forms are exact
modulo 2^32.

Some multiply two rows by two columns of eight bytes each. Sums then are blocks, also from one step
of a loop to the next: a register of a pair of rows has, for each two columns,

    c[0, 0], c[0, 1], c[1, 0], c[1, 1]

The last of an odd number of rows forms a pair with itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, OpResult, SSAValue

from dialects.block import DotOp, ForOp
from dialects.block.programs import tile_type
from dialects.strata import types as t
from dialects.strata.types import TileType
from targets.cpu.emit.build import Builder
from targets.cpu.emit.halves import widen
from targets.cpu.emit.index import splat
from targets.cpu.emit.values import Chunk, Reg, Tile, lane_literal, positions, tile_chunks

_BLOCK_ROW = 8
"""Bytes of a row of a block."""
_BLOCK_SUMS = 4
"""Sums of a block."""


def _pairs(rows: Sequence[tuple[int, ...]]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return list(zip(rows[::2], [*rows[1::2], *rows[-1:]], strict=False))


class Products:
    """Emits grouped multiply-adds with the machine's best instruction."""

    def __init__(self, builder: Builder):
        self.builder, self.writer = builder, builder.writer

    def multiply_add(self, a: Reg, b: Reg, c: Reg, unsigned: Sequence[bool]) -> Reg:
        """c + the products of group `a` with the groups in b's lanes, in c's element type.

        `unsigned`: whether the integers of a and of b are unsigned.
        """
        if self.builder.machine.widens_groups(b.element, a.element):
            b = self._widened_in(b, a.element, unsigned[1])
            unsigned = (unsigned[0], False)
        word = a.width * t.bit_width(a.element) == 32 and a.element == b.element
        width = max(c.width, 4)
        if not word or not self.builder.has_products(a.element, c.element, width, unsigned):
            return self._one_by_one(a, b, c, unsigned)
        words, lanes = self._all_lanes(a, width), self._bits(self._padded(b, width * a.width))
        total = self._padded(c, width)
        found = self.builder.add_products(a.element, words, lanes, total, unsigned)
        return self._first(found, c.width)

    # ------------------------------------------------------------------ blocks
    def has_blocks(self, a: TileType, c: TileType) -> bool:
        """Whether the machine multiplies such factors, and adds to such sums, as blocks."""
        whole = a.group is not None and a.shape[a.group] == _BLOCK_ROW and c.lanes == c.rank - 1
        return whole and c.element == t.i32 and self.builder.has_blocks(a.element)

    def only_adds_blocks(self, loop: ForOp, number: int) -> bool:
        """Whether all that a loop does with a carried value is to add products of blocks to it."""
        value: SSAValue = loop.body.block.args[1 + number]
        while True:
            uses = [*value.uses]
            user = uses[0].operation if len(uses) == 1 else None
            if type(user) is DotOp and value is user.c and self.has_blocks(
                    tile_type(user.a), tile_type(value)):
                value = user.result
            elif type(user) is ForOp and value in user.carried and self.only_adds_blocks(
                    user, place := [*user.carried].index(value)):
                value = user.results[place]
            else:
                return isinstance(value, OpResult) and user is loop.body.block.last_op

    def in_blocks(self, tile: Tile) -> Tile:
        """Sums as blocks."""
        if tile.blocks is not None:
            return tile
        regs: list[str] = []
        for first, second in _pairs(positions(tile.type)):
            for number, chunk in enumerate(tile.chunks):
                width = max(chunk.width, 2)
                a, b = (self._padded(tile.reg(p, number), width) for p in (first, second))
                lanes = [k + r * width + c for k in range(0, width, 2) for r in (0, 1)
                         for c in (0, 1)]
                regs.append(self._merged(a, b, lanes).name)
        parts = tuple(Chunk(2 * c.offset, 2 * max(c.width, 2), 2 * max(c.width, 2))
                      for c in tile.chunks)
        type_ = t.tile(t.i32, (len(regs) // len(parts), sum(c.width for c in parts)), 1)
        return Tile(type_, tuple(regs), parts, tile.type)

    def in_rows(self, tile: Tile) -> Tile:
        """Sums that were blocks, row by row."""
        type_ = tile.blocks
        if type_ is None:
            return tile
        parts = tile_chunks(type_, self.builder.machine.lanes)
        regs: list[str] = []
        for k, _ in enumerate(positions(type_)):
            for number, chunk in enumerate(parts):
                reg = tile.reg((k // 2,), number)
                lanes = [4 * (c // 2) + 2 * (k % 2) + c % 2 for c in range(reg.width // 2)]
                regs.append(self._first(self._picked(reg, lanes), chunk.width).name)
        return Tile(type_, tuple(regs), parts)

    def add_blocks(self, a: Tile, b: Tile, c: Tile, unsigned: Sequence[bool]) -> Tile:
        """Sums as blocks, and the products of all rows of `a` with the columns in b's lanes."""
        regs: list[str] = []
        for k, (first, second) in enumerate(_pairs(positions(t.tile(a.type.element, a.type.shape[
                :-1])))):
            rows = self._merged(a.reg(first), a.reg(second), range(2 * _BLOCK_ROW))
            for number in range(len(c.chunks)):
                sums = c.reg((k,), number)
                columns = self._padded(b.reg((), number), _BLOCK_ROW * sums.width // 2)
                regs.append(self._add_block(rows, columns, sums, unsigned).name)
        return Tile(c.type, tuple(regs), c.chunks, c.blocks)

    def _add_block(self, a: Reg, b: Reg, c: Reg, unsigned: Sequence[bool]) -> Reg:
        """Of two rows and as many columns as the sums have; two at a time."""
        if c.width == _BLOCK_SUMS:
            return self.builder.add_blocks(a, b, c, unsigned)
        low, high = (self._add_block(
            a, self.builder.half(b, k), self.builder.half(c, k), unsigned) for k in (0, 1))
        return self._merged(low, high, range(c.width))

    def _merged(self, a: Reg, b: Reg, lanes: Sequence[int]) -> Reg:
        """Lanes of two registers of equal widths, one after the other."""
        return a.resized(self.writer.local(
            f"shufflevector {a.typed}, {b.typed}, <{len(lanes)} x i32> "
            f"{lane_literal(list(lanes), 'i32')}"), len(lanes))

    # ------------------------------------------------------------------ operands
    def _bits(self, reg: Reg) -> Reg:
        """A register as lanes of 32 bits."""
        bits = reg.width * t.bit_width(reg.element)
        return self.builder.reinterpret(reg, t.i32, bits // 32)

    def _all_lanes(self, group: Reg, width: int) -> Reg:
        """The 32 bits of one group, in all lanes."""
        return splat(self.writer, self.builder.reinterpret(group, t.i32, 0), width)

    def _padded(self, reg: Reg, width: int) -> Reg:
        """A register of at least this width; the values of added lanes do not matter."""
        if reg.width == width:
            return reg
        if not reg.width:
            vector = Reg.of("", reg.element, width)
            return vector.named(self.writer.local(
                f"insertelement {vector.type} poison, {reg.typed}, i64 0"))
        return self._picked(reg, [min(k, reg.width) for k in range(width)])

    def _first(self, reg: Reg, width: int) -> Reg:
        """The first lanes; as a scalar if `width` is 0."""
        if reg.width == width:
            return reg
        if not width:
            return Reg.of(self.writer.local(f"extractelement {reg.typed}, i64 0"), reg.element)
        return self._picked(reg, list(range(width)))

    def _picked(self, reg: Reg, lanes: list[int]) -> Reg:
        return reg.resized(self.writer.local(
            f"shufflevector {reg.typed}, {reg.type} poison, <{len(lanes)} x i32> "
            f"{lane_literal(lanes, 'i32')}"), len(lanes))

    # ------------------------------------------------------------------ without such instructions
    def _one_by_one(self, a: Reg, b: Reg, c: Reg, unsigned: Sequence[bool]) -> Reg:
        each = a.width
        for k in range(each):
            left = Reg.of(self.writer.local(f"extractelement {a.typed}, i64 {k}"), a.element)
            right = self._picked(b, [k + each * lane for lane in range(b.width // each)])
            c = self.add_product(left, right, c, unsigned)
        return c

    def add_product(self, a: Reg, b: Reg, c: Reg, unsigned: Sequence[bool]) -> Reg:
        """a*b + c in the element type of c."""
        left, right = (self._widened(x, c.element, u)
                       for x, u in zip((a, b), unsigned, strict=True))
        if t.is_float(c.element):
            return self.builder.fma(left, right, c)
        return self.builder.binary("add", self.builder.binary("mul", left, right), c)

    def _widened_in(self, value: Reg, element: Attribute, unsigned: bool) -> Reg:
        """Integers as integers of a wider type."""
        return self.builder.convert("zext" if unsigned else "sext", value, element)

    def _widened(self, value: Reg, element: Attribute, unsigned: bool) -> Reg:
        value = widen(self.builder, value)
        if value.element == element:
            return value
        cast = "fpext" if t.is_float(element) else "zext" if unsigned else "sext"
        return self.builder.convert(cast, value, element)
