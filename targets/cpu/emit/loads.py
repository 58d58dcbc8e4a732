"""Loads: one instruction per register where memory allows it.

    lanes next to each other     a vector load; masked where lanes may be outside
    the same address for all     a scalar load, broadcast
    every 2nd to 4th element     vector loads over the span, then shuffles; masked loads where
                                 lanes may be outside, at run time
    another tile dim is next     vectors along that dim, transposed in registers
    a group's positions apart    vectors along the lanes, then interleaved in registers
    other constant distances     vector loads over the span of a chunk, then a shuffle, if the
                                 span is at most twice as long: `i floordiv 2`, say
    any other distance, gathers  llvm.masked.gather

Nothing outside a buffer is ever read. If all lanes share a condition, it selects between the
address and that of a constant full of the pad value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dialects.strata import types as t
from dialects.strata.types import TileType
from dialects.symbolic.expr import Expr
from targets.cpu.emit.access import Access, Mask, Point
from targets.cpu.emit.grouping import convert
from targets.cpu.emit.index import splat
from targets.cpu.emit.transpose import transpose
from targets.cpu.emit.values import (
    SCALAR,
    Chunk,
    Reg,
    Tile,
    chunks,
    lane_literal,
    literal,
    llvm_type,
    mask_literal,
    memory_suffix,
    memory_type,
    positions,
    tile_chunks,
)
from targets.cpu.llvm.writer import Writer

_LEVEL = "2"
"""The cache level to prefetch into: L2, since the next program needs the data."""
_NEAR = (-1, 0, 1, 2, 3, 4)
"""Constant distances of lanes that need no gather."""


class Loads:
    """Emits the loads and prefetches of a function."""

    def __init__(self, writer: Writer, lanes: int, line_bytes: int):
        self.writer = writer
        self.lanes = lanes
        self.streamed: set[str] = set()
        """Buffers, by their pointers, that are written with non-temporal stores."""
        self.line_bytes = line_bytes
        self._asked: dict[tuple[str, Expr], int] = {}
        """For each place that varies in a loop, the last prefetched distance from it."""

    def prefetch(self, access: Access) -> None:
        """Prefetch the cache line of an element; within a loop's bodies only once per line."""
        distance = access.flat.offset
        place = access.buffer.pointer, access.flat - distance
        last = self._asked.get(place)
        past = None if last is None else (distance - last) * align_of(access)
        if past is not None and 0 <= past < self.line_bytes:
            return
        self._asked[place] = distance
        self.writer.emit(self.writer.call("llvm.prefetch.p0", "void", [
            ("ptr", access.pointer(access.flat)), ("i32", "0"), ("i32", _LEVEL), ("i32", "1")]))

    # ------------------------------------------------------------------ loads
    def load(self, access: Access, type_: TileType, pad: Any) -> Tile:
        """The tile at an access; positions outside the checked dims are `pad`."""
        if _is_alternating(access):
            separate = t.tile(type_.element, type_.shape, type_.lanes)
            tile = self.load(replace(access, type=separate), separate, pad)
            return convert(self.writer, tile, type_.lanes, type_.group, self.lanes)
        along = contiguous_dim(access, self.lanes)
        access = access.merged()
        if along is not None:
            turned = t.tile(type_.element, type_.shape, along)
            tile = self.load(replace(access, type=turned), turned, pad)
            return transpose(self.writer, tile, type_.lanes, self.lanes)
        regs: list[str] = []
        parts = tile_chunks(type_, self.lanes)
        is_group = type_.group is not None and type_.lanes is None
        for position in positions(type_):
            point = access.at(position)
            for number, chunk in enumerate(parts):
                regs.append(self._load_chunk(access, point, number, chunk, pad, is_group))
        return Tile(type_, tuple(regs), parts)

    def load_one(self, access: Access, position: Sequence[int], pad: Any) -> str:
        """The element at one position of a tile that has no dim in lanes."""
        return self._load_chunk(access, access.at(tuple(position)), 0, SCALAR, pad)

    def _load_chunk(
        self, access: Access, point: Point, number: int, chunk: Chunk, pad: Any,
        is_group: bool = False,
    ) -> str:
        """`is_group`: whether the elements are a group that no lane has for itself."""
        element = access.buffer.element
        condition = access.scalar_condition(point)
        mask = access.lane_mask(point, number, chunk) if chunk.width else None
        if condition is False or mask is False:
            return literal(pad, t.signless(element), chunk.width)
        step = access.lane_step(point) if chunk.width else 0
        if chunk.width == 1 and not point.is_gathered:
            step = 1
        if step is None or step not in _NEAR or (
                step not in (0, 1) and (mask or not chunk.is_full)):
            return self._load_apart(access, point, number, chunk, pad, step, condition, mask)
        base = self._origin(access, point, chunk, step)
        address = self._guarded(access, base, chunk, condition, pad)
        if is_group and step == 1 and not mask and chunk.is_full:
            return self._from_memory(access, self._word(access, address, chunk.width), chunk.width)
        return self._load_step(access, address, chunk, step, mask, pad)

    def _load_step(
        self, access: Access, address: str, chunk: Chunk, step: int, mask: Mask, pad: Any
    ) -> str:
        """Load lanes at a constant distance, given their lowest address."""
        if step == 0:
            scalar = self._from_memory(access, self._plain(access, address, 0), 0)
            reg = Reg.of(scalar, t.signless(access.buffer.element))
            return splat(self.writer, reg, chunk.width).name if chunk.width else scalar
        if step == 1 and (mask or not chunk.is_full):
            text = self._masked(access, address, chunk, mask, pad)
        elif step == 1:
            text = self._plain(access, address, chunk.width)
        else:
            text = self._shuffled(access, address, chunk.width, step)
        return self._from_memory(access, text, chunk.width)

    def _word(self, access: Access, address: str, width: int) -> str:
        """A group, loaded as a word where it is one. Processors load a word into all lanes; LLVM
        would widen the elements of a vector that is shorter than a register first."""
        bits = width * t.bit_width(access.buffer.element)
        if bits not in (32, 64):
            return self._plain(access, address, width)
        word = self.writer.assign(f"load i{bits}, ptr {address}, align {align_of(access)}")
        return f"bitcast i{bits} {word} to {memory_type(access.buffer.element, width)}"

    def _load_apart(
        self, access: Access, point: Point, number: int, chunk: Chunk, pad: Any, step: int | None,
        condition: Mask, mask: Mask,
    ) -> str:
        """Load lanes that are not next to each other, some of which may be outside."""
        if step is None and not mask and (near := access.lane_distances(point, chunk)):
            address = access.lane_pointer(point, chunk.offset)
            return self._from_memory(access, self._patterned(
                access, self._guarded(access, address, chunk, condition, pad), near), chunk.width)
        parts = None if step is None else self._span_parts(access, point, number, chunk, step)
        if step is not None and parts is not None:
            base = self._origin(access, point, chunk, step)
            address = self._guarded(access, base, chunk, condition, pad)
            some = partial(self._span, access, address, parts, step, pad)
        else:
            some = partial(self._gather, access, point, number, chunk, pad, condition, mask)
            some = partial(str, some())  # its addresses are computed in front of any branch
        if mask and step in _NEAR and chunk.is_full and not condition:
            return self._if_all_inside(access, point, chunk, step, mask, some)
        return self._from_memory(access, some(), chunk.width)

    def _span_parts(
        self, access: Access, point: Point, number: int, chunk: Chunk, step: int
    ) -> list[tuple[Chunk, Mask]] | None:
        """The vectors of the span of the lanes, and which of their elements are inside.

        None if that does not follow from the conditions of the lanes.
        """
        lane = access.lane_symbol
        varied = {d: w.linear([lane]) for d, w in point.where.items() if lane in w.symbols}
        if step not in _NEAR or step < 2 or point.vectors or any(
                split is None or split[0][lane].constant != step for split in varied.values()):
            return None
        between = Expr.symbol(lane) * (step - 1)
        dense = point._replace(where={d: w - between if d in varied else w
                                      for d, w in point.where.items()})
        parts: list[tuple[Chunk, Mask]] = []
        for start in _starts(chunk.width, step):
            valid = min(step * (chunk.valid - 1) + 1 - start, chunk.width)
            part = Chunk(step * chunk.offset + start, chunk.width, max(valid, 0))
            parts.append((part, access.lane_mask(dense, number, part) if valid > 0 else False))
        return parts

    def _if_all_inside(
        self, access: Access, point: Point, chunk: Chunk, step: int, mask: str,
        otherwise: Callable[[], str],
    ) -> str:
        """If all lanes are inside, load them without a mask; else as the text says.

        They all are, except at the ends of a dim.
        """
        w, kind = self.writer, f"v{chunk.width}i1"
        near, other, join = (w.fresh(name) for name in ("inside", "across", "loaded"))
        inside = w.local(w.call(f"llvm.vector.reduce.and.{kind}", "i1",
                                [(f"<{chunk.width} x i1>", mask)]))
        w.emit(f"br i1 {inside}, label %{near}, label %{other}")
        with w.block(near):
            base = self._origin(access, point, chunk, step)
            at_once = self._load_step(access, base, chunk, step, None, None)
            w.emit(f"br label %{join}")
        with w.block(other):
            some = self._from_memory(access, otherwise(), chunk.width)
            w.emit(f"br label %{join}")
        w.start_block(join)
        type_ = llvm_type(access.buffer.element, chunk.width)
        return w.assign(f"phi {type_} [{at_once}, %{near}], [{some}, %{other}]")

    def _origin(self, access: Access, point: Point, chunk: Chunk, step: int) -> str:
        """The lowest address among the chunk's lanes."""
        first = chunk.offset if step >= 0 else chunk.offset + chunk.width - 1
        return access.lane_pointer(point, first)

    def _guarded(
        self, access: Access, address: str, chunk: Chunk, condition: Mask, pad: Any
    ) -> str:
        """The address, or that of a constant full of `pad` if the condition is false."""
        if not condition:
            return address
        type_ = memory_type(access.buffer.element)
        count = max(4 * self.lanes, chunk.width)
        element = access.buffer.element
        value = int(bool(pad)) if element == t.i1 else literal(pad, element)
        values = ", ".join([f"{type_} {value}"] * count)
        constant = self.writer.constant(f"[{count} x {type_}]", f"[{values}]")
        return self.writer.local(f"select i1 {condition}, ptr {address}, ptr {constant}")

    def _plain(self, access: Access, address: str, width: int) -> str:
        type_ = memory_type(access.buffer.element, width)
        return f"load {type_}, ptr {address}, align {align_of(access)}"

    def _masked(self, access: Access, address: str, chunk: Chunk, mask: Mask, pad: Any) -> str:
        element, width = access.buffer.element, chunk.width
        type_, suffix = memory_type(element, width), memory_suffix(element, width)
        return self.writer.call(f"llvm.masked.load.{suffix}.p0", type_, [
            ("ptr", address), ("i32", str(align_of(access))),
            (f"<{width} x i1>", self._chunk_mask(access, chunk, mask)),
            (type_, _pad_literal(access, width, pad))])

    def _chunk_mask(self, access: Access, chunk: Chunk, mask: Mask) -> str:
        valid = None if chunk.is_full else mask_literal(chunk)
        lanes = access.both(valid, mask, chunk.width)
        return lanes or "splat (i1 true)"

    def _shuffled(self, access: Access, address: str, width: int, step: int) -> str:
        """Every `step`-th element, from loads that cover exactly the span of the lanes."""
        element = memory_type(access.buffer.element)
        parts = [self.writer.assign(self._plain(access, self._further(element, address, s), width))
                 for s in _starts(width, abs(step))]
        return self._picked(access, parts, width, step)

    def _patterned(self, access: Access, address: str, distances: Sequence[int]) -> str:
        """Lanes at such distances from an address, the first of which is its own: from one vector,
        or from two that overlap. None of them has an element beyond the last lane's."""
        element, width, span = memory_type(access.buffer.element), len(distances), (
            max(distances) + 1)
        part = min(span, width)
        parts = [self.writer.assign(self._plain(access, self._further(element, address, s), part))
                 for s in sorted({0, span - part})]
        owners = [int(d >= part) for d in distances]
        places = [d - (span - part) * o for d, o in zip(distances, owners, strict=True)]
        picked = [p + part * o for p, o in zip(places, owners, strict=True)]
        type_ = memory_type(access.buffer.element, part)
        return (f"shufflevector {type_} {parts[0]}, {type_} {parts[-1]}, "
                f"<{width} x i32> {lane_literal(picked, 'i32')}")

    def _span(
        self, access: Access, address: str, parts: Sequence[tuple[Chunk, Mask]], step: int,
        pad: Any,
    ) -> str:
        """The same from masked loads; elements outside, and those of no lane, are `pad`."""
        element, width, loaded = memory_type(access.buffer.element), parts[0][0].width, list[str]()
        for start, (part, mask) in zip(_starts(width, step), parts, strict=True):
            at = self._further(element, address, start)
            loaded.append(_pad_literal(access, width, pad) if mask is False else
                          self.writer.assign(self._masked(access, at, part, mask, pad)))
        return self._picked(access, loaded, width, step)

    def _picked(self, access: Access, parts: list[str], width: int, step: int) -> str:
        """Every `step`-th element of the parts of a span."""
        distance, starts = abs(step), _starts(width, abs(step))
        wanted = [distance * k for k in range(width)]
        if step < 0:
            wanted.reverse()
        owners = [min(w // width, distance - 1) for w in wanted]
        places = [w - starts[o] for w, o in zip(wanted, owners, strict=True)]
        return self._merge(memory_type(access.buffer.element, width), parts, owners, places)

    def _further(self, element: str, address: str, distance: int) -> str:
        if not distance:
            return address
        return self.writer.local(f"getelementptr {element}, ptr {address}, i64 {distance}")

    def _merge(self, type_: str, parts: list[str], owners: list[int], places: list[int]) -> str:
        """The text of the vector whose lane k is lane places[k] of parts[owners[k]]."""
        width = len(owners)
        if len(parts) == 1:
            picked = lane_literal(places, "i32")
            return f"shufflevector {type_} {parts[0]}, {type_} poison, <{width} x i32> {picked}"
        total, text = parts[0], ""
        for k in range(1, len(parts)):
            lanes = [width + p if o == k else (lane if k > 1 else p)
                     for lane, (o, p) in enumerate(zip(owners, places, strict=True))]
            lanes = [lane if o <= k else 0 for lane, o in zip(lanes, owners, strict=True)]
            text = (f"shufflevector {type_} {total}, {type_} {parts[k]}, "
                    f"<{width} x i32> {lane_literal(lanes, 'i32')}")
            total = self.writer.assign(text) if k < len(parts) - 1 else total
        return text

    def _gather(
        self, access: Access, point: Point, number: int, chunk: Chunk, pad: Any,
        condition: Mask, mask: Mask,
    ) -> str:
        if condition:
            shared = splat(self.writer, Reg.of(condition, t.i1), chunk.width).name
            mask = access.both(mask, shared, chunk.width)
        element, width = access.buffer.element, chunk.width
        type_, suffix = memory_type(element, width), memory_suffix(element, width)
        pointers = access.lane_pointers(point, number, chunk)
        lanes = self._chunk_mask(access, chunk, mask)
        return self.writer.call(f"llvm.masked.gather.{suffix}.v{width}p0", type_, [
            (f"<{chunk.width} x ptr>", pointers), ("i32", str(align_of(access))),
            (f"<{chunk.width} x i1>", lanes), (type_, _pad_literal(access, chunk.width, pad))])

    def _from_memory(self, access: Access, text: str, width: int) -> str:
        """Name the instruction's result, and reduce a byte to its significant bits."""
        name, element = self.writer.assign(text), access.buffer.element
        if t.bit_width(element) >= 8:
            return name
        if element != t.i1:
            return self.writer.assign(
                f"trunc {memory_type(element, width)} {name} to {llvm_type(element, width)}")
        return self.writer.assign(f"icmp ne {memory_type(t.i1, width)} {name}, zeroinitializer"
                                  if width else f"icmp ne i8 {name}, 0")


def contiguous_dim(access: Access, lanes: int) -> int | None:
    """A tile dim that is contiguous in memory, if neighbouring lanes are far apart.

    Its chunks must match those of the lanes, so that squares can be transposed; a single element
    that is left is moved by itself.
    """
    type_ = access.type
    if type_.lanes is None or type_.group is not None or access.tiles:
        return None
    if access.step_along(type_.lanes) in _NEAR:
        return None
    widths = {c.width for c in tile_chunks(type_, lanes)}
    for d, extent in enumerate(type_.shape):
        matches = {c.width for c in chunks(extent, lanes)} - {1} == widths
        if d != type_.lanes and extent > 1 and matches and access.step_along(d) == 1:
            return d
    return None


def _is_alternating(access: Access) -> bool:
    """Whether a group's positions are apart in memory, and lanes next to each other."""
    lanes, group = access.type.lanes, access.type.group
    return (group is not None and lanes is not None and not access.tiles
            and access.step_along(lanes) == 1 and access.step_along(group) not in (0, 1))


def _starts(width: int, step: int) -> list[int]:
    """Where vectors begin that cover exactly the span of lanes that are `step` elements apart."""
    return [k * width for k in range(step - 1)] + [(step - 1) * (width - 1)]


def align_of(access: Access) -> int:
    """The alignment of an element in bytes."""
    return t.byte_width(access.buffer.element)


def _pad_literal(access: Access, width: int, pad: Any) -> str:
    element = access.buffer.element
    if element == t.i1:
        return f"splat (i8 {int(bool(pad))})"
    number = literal(pad, t.signless(element))
    return f"splat ({memory_type(element)} {number})" if width else number
