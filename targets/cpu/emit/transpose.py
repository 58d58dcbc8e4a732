"""Moving another dim of a tile into lanes: registers are transposed in squares of w by w lanes.

A square takes log2(w) rounds. Round s exchanges, between registers k and k + s, the lanes whose
number has bit s set. Dims of unequal chunk widths are moved lane by lane.
"""

from __future__ import annotations

from collections.abc import Mapping

from dialects.strata import types as t
from dialects.strata.types import TileType
from targets.cpu.emit.values import (
    Chunk,
    Reg,
    Tile,
    lane_literal,
    llvm_type,
    positions,
    tile_chunks,
    unrolled_dims,
)
from targets.cpu.llvm.writer import Writer

_Place = Mapping[int, int]
"""The index in each tile dim that is not in lanes."""


def transpose(writer: Writer, tile: Tile, lanes: int | None, width: int) -> Tile:
    """The same values with dim `lanes` in vector lanes (None: all scalars)."""
    if tile.type.lanes == lanes:
        return tile
    type_ = t.tile(tile.type.element, tile.type.shape, lanes)
    if lanes is None:
        regs = [_lane(writer, tile, dict(enumerate(p))).name for p in positions(type_)]
        return Tile(type_, tuple(regs), tile_chunks(type_, width))
    return _Transposition(writer, tile, type_, width).result()


def _lane(writer: Writer, tile: Tile, place: _Place) -> Reg:
    """The scalar at a position in all dims."""
    position = tuple(place[d] for d in unrolled_dims(tile.type))
    if tile.type.lanes is None:
        return tile.reg(position)
    wanted = place[tile.type.lanes]
    number = next(k for k, c in enumerate(tile.chunks) if wanted < c.offset + c.valid)
    reg = tile.reg(position, number)
    name = writer.local(
        f"extractelement {reg.typed}, i64 {wanted - tile.chunks[number].offset}")
    return Reg.of(name, reg.element)


class _Transposition:
    """Moves lanes from one dim (or none) to another."""

    def __init__(self, writer: Writer, tile: Tile, type_: TileType, width: int):
        self.writer, self.tile, self.type = writer, tile, type_
        self.chunks = tile_chunks(type_, width)
        self.squares: dict[tuple[tuple[int, ...], int, int], list[str]] = {}

    def result(self) -> Tile:
        regs = [self._register(dict(zip(unrolled_dims(self.type), p, strict=True)), number, c)
                for p in positions(self.type) for number, c in enumerate(self.chunks)]
        return Tile(self.type, tuple(regs), self.chunks)

    def _register(self, place: dict[int, int], number: int, chunk: Chunk) -> str:
        source = self.tile.type.lanes
        if source is not None:
            wanted = place[source]
            column = next(k for k, c in enumerate(self.tile.chunks)
                          if wanted < c.offset + c.valid)
            if self.tile.chunks[column].width == chunk.width > 1:
                rows = self._square(place, column, number, chunk)
                return rows[wanted - self.tile.chunks[column].offset]
        return self._lane_by_lane(place, chunk)

    def _lane_by_lane(self, place: dict[int, int], chunk: Chunk) -> str:
        assert self.type.lanes is not None
        total = "poison"
        vector = llvm_type(self.type.element, chunk.width)
        for lane in range(chunk.valid):
            scalar = _lane(self.writer, self.tile,
                           {**place, self.type.lanes: chunk.offset + lane})
            total = self.writer.local(
                f"insertelement {vector} {total}, {scalar.typed}, i64 {lane}")
        return total

    def _square(
        self, place: dict[int, int], column: int, number: int, chunk: Chunk
    ) -> list[str]:
        """The transposed square of source chunk `column` and result chunk `number`."""
        source, target = self.tile.type.lanes, self.type.lanes
        assert source is not None and target is not None
        rest = tuple(place[d] for d in sorted(place) if d != source)
        key = (rest, column, number)
        if key not in self.squares:
            rows: list[str] = []
            for k in range(chunk.width):
                where = {**place, target: chunk.offset + k}
                position = tuple(where[d] for d in unrolled_dims(self.tile.type))
                rows.append(self.tile.reg(position, column).name
                            if k < chunk.valid else "poison")
            self.squares[key] = self._exchange(rows)
        return self.squares[key]

    def _exchange(self, rows: list[str]) -> list[str]:
        width = len(rows)
        bit = 1
        while bit < width:
            low = [k if not k & bit else width + k - bit for k in range(width)]
            high = [k + bit if not k & bit else width + k for k in range(width)]
            for k in range(width):
                if not k & bit:
                    a, b = rows[k], rows[k + bit]
                    rows[k], rows[k + bit] = self._shuffle(a, b, low), self._shuffle(a, b, high)
            bit *= 2
        return rows

    def _shuffle(self, a: str, b: str, lanes: list[int]) -> str:
        vector = llvm_type(self.type.element, len(lanes))
        return self.writer.local(f"shufflevector {vector} {a}, {vector} {b}, "
                                 f"<{len(lanes)} x i32> {lane_literal(lanes, 'i32')}")
