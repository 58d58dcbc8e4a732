"""Stores: one instruction per register where memory allows it, else `llvm.masked.scatter`.

A tile is stored in the forms in which it is loaded (see `loads.py`). A kernel that streams its
results uses non-temporal stores if an address is certainly a multiple of the register's size; large
buffers are aligned to cache lines.

Nothing outside a buffer is ever written. If all lanes share a condition, it selects between the
address and that of memory that is never read.
"""

from __future__ import annotations

from dataclasses import replace

from dialects.strata import types as t
from dialects.symbolic.expr import Expr
from targets.cpu.emit.access import Access, Mask, Point
from targets.cpu.emit.index import splat
from targets.cpu.emit.loads import Loads, align_of, contiguous_dim
from targets.cpu.emit.transpose import transpose
from targets.cpu.emit.values import (
    Chunk,
    Reg,
    Tile,
    memory_type,
    positions,
)

_LEVEL = "2"
"""The cache level to prefetch into: L2, since the next program needs the data."""
_NEAR = (-1, 0, 1, 2, 3, 4)
"""Constant distances of lanes that need no gather."""


class Memory(Loads):
    """Emits the loads and stores of a function."""

    def store(self, access: Access, tile: Tile) -> None:
        """Write a tile; positions outside the checked dims are skipped."""
        along = contiguous_dim(access, self.lanes)
        access = access.merged()
        if along is not None:
            turned = transpose(self.writer, tile, along, self.lanes)
            self.store(replace(access, type=turned.type), turned)
            return
        for position in positions(tile.type):
            point = access.at(position)
            for number, chunk in enumerate(tile.chunks):
                self._store_chunk(access, point, number, chunk, tile.reg(position, number))

    def _store_chunk(
        self, access: Access, point: Point, number: int, chunk: Chunk, value: Reg
    ) -> None:
        condition = access.scalar_condition(point)
        mask = access.lane_mask(point, number, chunk) if chunk.width else None
        if condition is False or mask is False:
            return
        stored = self._to_memory(access, value)
        step = access.lane_step(point) if chunk.width > 1 or point.is_gathered else 1
        if step != 1:
            self._scatter(access, point, number, chunk, stored, condition, mask)
            return
        address = self._origin(access, point, chunk, 1)
        if condition:
            address = self.writer.local(
                f"select i1 {condition}, ptr {address}, ptr {self._unread()}")
        if mask or (chunk.width and not chunk.is_full):
            self._masked_store(access, address, chunk, mask, stored)
        elif self._streams(access, point, chunk):
            bytes_ = chunk.width * align_of(access)
            self.writer.emit(f"store {stored.typed}, ptr {address}, align {bytes_}, "
                             f"!nontemporal {self.writer.metadata('i32 1')}")
        else:
            self.writer.emit(f"store {stored.typed}, ptr {address}, align {align_of(access)}")

    def _streams(self, access: Access, point: Point, chunk: Chunk) -> bool:
        """Whether a whole register is stored to an aligned address of a streamed buffer."""
        if access.buffer.pointer not in self.streamed or chunk.width < self.lanes:
            return False
        first = point.flat.substitute({access.lane_symbol: Expr.of(chunk.offset)})
        return access.indices.multiple(first) % chunk.width == 0

    def _to_memory(self, access: Access, value: Reg) -> Reg:
        """The value in its memory type."""
        if t.bit_width(access.buffer.element) >= 8:
            return value
        type_ = memory_type(t.i8, value.width)
        return Reg.of(self.writer.local(f"zext {value.typed} to {type_}"), t.i8, value.width)

    def _unread(self) -> str:
        """Stack memory that receives stores which must go nowhere else."""
        return self.writer.hoist(f"alloca [{8 * self.lanes} x i8], align 64")

    def _masked_store(
        self, access: Access, address: str, chunk: Chunk, mask: Mask, stored: Reg
    ) -> None:
        lanes = self._chunk_mask(access, chunk, mask)
        self.writer.emit(self.writer.call(f"llvm.masked.store.{stored.suffix}.p0", "void", [
            (stored.type, stored.name), ("ptr", address),
            ("i32", str(align_of(access))), (f"<{chunk.width} x i1>", lanes)]))

    def _scatter(
        self, access: Access, point: Point, number: int, chunk: Chunk, stored: Reg,
        condition: Mask, mask: Mask,
    ) -> None:
        if condition:
            shared = splat(self.writer, Reg.of(condition, t.i1), chunk.width).name
            mask = access.both(mask, shared, chunk.width)
        pointers = access.lane_pointers(point, number, chunk)
        name = f"llvm.masked.scatter.{stored.suffix}.v{chunk.width}p0"
        self.writer.emit(self.writer.call(name, "void", [
            (stored.type, stored.name), (f"<{chunk.width} x ptr>", pointers),
            ("i32", str(align_of(access))),
            (f"<{chunk.width} x i1>", self._chunk_mask(access, chunk, mask))]))
