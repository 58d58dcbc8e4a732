"""Tiles with and without a grouped dim: `tile<4x[16]xi8>`, four registers, as `tile<{4}x[16]xi8>`.

Grouping interleaves the lanes of the four registers in one register of four times the width.
"""

from __future__ import annotations

from dialects.strata import types as t
from targets.cpu.emit.transpose import transpose
from targets.cpu.emit.values import (
    Reg,
    Tile,
    lane_literal,
    positions,
    tile_chunks,
    unrolled_dims,
)
from targets.cpu.llvm.writer import Writer


def convert(
    writer: Writer, tile: Tile, lanes: int | None, group: int | None, width: int
) -> Tile:
    """The same values with other dims in lanes and grouped, on a machine of `width` lanes."""
    if tile.type.lanes == lanes and tile.type.group == group:
        return tile
    ungrouped = tile if tile.type.group is None else _ungrouped(writer, tile, width)
    turned = transpose(writer, ungrouped, lanes, width)
    return turned if group is None else _grouped(writer, turned, group, width)


def _ungrouped(writer: Writer, tile: Tile, width: int) -> Tile:
    """Remove the grouping: each position of the grouped dim gets every n-th lane."""
    group = tile.type.group
    assert group is not None
    type_ = t.tile(tile.type.element, tile.type.shape, tile.type.lanes)
    each, parts = type_.shape[group], tile_chunks(type_, width)
    regs: list[str] = []
    for position in positions(type_):
        place = dict(zip(unrolled_dims(type_), position, strict=True))
        first = place.pop(group)
        for number, chunk in enumerate(parts):
            reg = tile.reg(tuple(place.values()), number)
            if not chunk.width:
                regs.append(writer.local(f"extractelement {reg.typed}, i64 {first}"))
                continue
            lanes = [first + each * k for k in range(chunk.width)]
            regs.append(writer.local(
                f"shufflevector {reg.typed}, {reg.type} poison, <{chunk.width} x i32> "
                f"{lane_literal(lanes, 'i32')}"))
    return Tile(type_, tuple(regs), parts)


def _grouped(writer: Writer, tile: Tile, group: int, width: int) -> Tile:
    """Group a dim whose positions are in separate registers."""
    type_ = t.tile(tile.type.element, tile.type.shape, tile.type.lanes, group)
    parts, order = tile_chunks(type_, width), unrolled_dims(tile.type)
    regs: list[str] = []
    for position in positions(type_):
        place = dict(zip(unrolled_dims(type_), position, strict=True))
        for number in range(len(parts)):
            column = [tile.reg(tuple({**place, group: k}[d] for d in order), number)
                      for k in range(type_.shape[group])]
            regs.append(_alternating(writer, column))
    return Tile(type_, tuple(regs), parts)


def _alternating(writer: Writer, column: list[Reg]) -> str:
    """One register with lane 0 of all registers, then lane 1 of all, and so on."""
    each = len(column)
    if not column[0].width:
        total = column[0].resized("poison", each)
        for k, reg in enumerate(column):
            total = total.named(writer.local(
                f"insertelement {total.typed}, {reg.typed}, i64 {k}"))
        return total.name
    width = column[0].width
    while len(column) > 1:
        column = [_joined(writer, a, b) for a, b in zip(column[::2], column[1::2], strict=True)]
    lanes = [k * width + lane for lane in range(width) for k in range(each)]
    [reg] = column
    return writer.local(f"shufflevector {reg.typed}, {reg.type} poison, <{reg.width} x i32> "
                        f"{lane_literal(lanes, 'i32')}")


def _joined(writer: Writer, a: Reg, b: Reg) -> Reg:
    """Two registers of equal width, concatenated."""
    lanes = lane_literal(list(range(2 * a.width)), "i32")
    name = writer.local(f"shufflevector {a.typed}, {b.typed}, <{2 * a.width} x i32> {lanes}")
    return a.resized(name, 2 * a.width)
