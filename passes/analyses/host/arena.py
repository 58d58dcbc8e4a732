"""Plan offsets for blocks of memory with known lifetimes and plain or symbolic sizes.

Blocks whose sizes are multiples of one symbolic size (all blocks of a model with an unknown batch
size) are planned as exactly as plain ones, in units of that size. Blocks of unrelated symbolic
sizes either get a region per unit, or go into slots that one block after another uses, whichever is
smaller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from functools import reduce

from dialects.records import dataclass
from dialects.symbolic.expr import Expr, maximum
from dialects.symbolic.ranges import is_at_most

ALIGNMENT = 256
"""Offsets are multiples of this, which covers the cache lines of CPUs and transactions of GPUs."""

SYMBOL_HINT = 64
"""The value assumed for all size symbols when sizes are compared that no proof orders."""


@dataclass(eq=False)
class Block:
    """`size` bytes that are live from step `first` to step `last`; `offset` is set by `plan`."""

    size: Expr
    first: int
    last: int
    is_used: bool = False
    offset: Expr = field(default_factory=lambda: Expr.of(0))

    def use(self, step: int) -> None:
        """Record a use at a step that is later than any before."""
        self.first = self.first if self.is_used else step
        self.last, self.is_used = step, True

    def overlaps(self, other: Block) -> bool:
        """Whether both are live at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass
class _Timetable:
    """Blocks by lifetime, so that those that are live at a given time are found quickly.

    A block is stored under the smallest aligned span of 2**k steps that contains its lifetime. All
    blocks of one span are live at its middle, so there are at most as many as live blocks.
    """

    spans: dict[tuple[int, int], list[Block]] = field(
        default_factory=dict[tuple[int, int], "list[Block]"])
    height: int = 0

    def add(self, block: Block) -> None:
        k = (block.first ^ block.last).bit_length()
        self.spans.setdefault((k, block.first >> k), []).append(block)
        self.height = max(self.height, k)

    def overlapping(self, block: Block) -> list[Block]:
        """The blocks that live at the same time; takes time in this lifetime, not their number."""
        return [other for k in range(self.height + 1)
                for at in range(block.first >> k, (block.last >> k) + 1)
                for other in self.spans.get((k, at), ()) if other.overlaps(block)]


def plan(blocks: Sequence[Block]) -> Expr:
    """Set the offsets of all blocks; returns the size of the whole arena in bytes.

    The order of the blocks decides between equal choices, so the result is deterministic.
    """
    families: dict[Expr, list[Block]] = {}
    for block in blocks:
        families.setdefault(split(block.size)[1], []).append(block)
    plain = families.pop(Expr.of(1), [])
    start = _place_family(plain, Expr.of(0))
    symbolic = [b for family in families.values() for b in family]
    in_slots = _place_in_slots(symbolic, start)
    slot_offsets = [b.offset for b in symbolic]
    end = start
    for family in families.values():
        end = _place_family(family, end)
    if hint(end) <= hint(in_slots):
        return end
    for block, offset in zip(symbolic, slot_offsets, strict=True):
        block.offset = offset
    return in_slots


def hint(size: Expr) -> int:
    """The size with every symbol replaced by `SYMBOL_HINT`."""
    return int(size.evaluate(dict.fromkeys(size.symbols, SYMBOL_HINT)))


def split(size: Expr) -> tuple[int, Expr]:
    """A number and a unit whose product is the size: 8*b + 4*b*h -> 4, 2*b + b*h."""
    if size.constant is not None:
        return size.constant, Expr.of(1)
    factor = math.gcd(*(f for _, f in size.terms))
    return factor, Expr(tuple((m, f // factor) for m, f in size.terms))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


# ---------------------------------------------------------------------- sizes of one unit
def _place_family(blocks: Sequence[Block], start: Expr) -> Expr:
    """Place blocks of one unit from `start` on, in whole units; returns where they end.

    Largest first, each in the smallest gap that holds it between blocks with overlapping lifetimes.
    """
    if not blocks:
        return start
    unit = split(blocks[0].size)[1]
    sizes = {b: _aligned(split(b.size)[0]) for b in blocks}
    offsets: dict[Block, int] = {}
    placed = _Timetable()
    for block in sorted(blocks, key=lambda b: (-sizes[b], b.first)):
        taken = sorted((offsets[b], sizes[b]) for b in placed.overlapping(block))
        offsets[block] = _best_gap(taken, sizes[block])
        block.offset = start + unit * offsets[block]
        placed.add(block)
    return start + unit * max(offsets[b] + sizes[b] for b in blocks)


def _best_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The offset of the smallest gap that holds `size`; after everything if there is none."""
    end, gaps = 0, list[tuple[int, int]]()
    for offset, length in taken:
        if offset - end >= size:
            gaps.append((offset - end, end))
        end = max(end, offset + length)
    return min(gaps)[1] if gaps else end


# ---------------------------------------------------------------------- sizes without an order
@dataclass(eq=False)
class _Slot:
    """Memory for one block at a time. `sizes`: the sizes to hold; none is surely the largest."""

    blocks: list[Block]
    sizes: list[Expr]

    def holds(self, size: Expr) -> bool:
        """Whether the slot is certainly large enough."""
        return any(_is_held(size, s) for s in self.sizes)

    def add(self, block: Block) -> None:
        self.blocks.append(block)
        if not self.holds(block.size):
            smaller = [s for s in self.sizes if _is_held(s, block.size)]
            self.sizes = [s for s in self.sizes if s not in smaller] + [block.size]

    @property
    def size(self) -> Expr:
        """The smallest aligned size that holds all of `sizes`."""
        largest = reduce(maximum, self.sizes)
        return (largest + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT


def _is_held(size: Expr, room: Expr) -> bool:
    """Whether `room` certainly suffices, even where sizes are 0: 4*n bytes need not fit 4*n*m."""
    return is_at_most(size, room, positive=frozenset())


def _place_in_slots(blocks: Sequence[Block], start: Expr) -> Expr:
    """Place blocks of any sizes from `start` on; returns where they end.

    Largest first by the hint, each in a slot that is free for its whole lifetime. A slot that
    certainly holds the block is preferred; otherwise the nearest in size is used and may grow.
    """
    slot_of: dict[Block, _Slot] = {}
    slots: list[_Slot] = []
    placed = _Timetable()
    for block in sorted(blocks, key=lambda b: (-hint(b.size), b.first)):
        busy = {slot_of[b] for b in placed.overlapping(block)}
        free = [s for s in slots if s not in busy]
        certain = [s for s in free if s.holds(block.size)]
        if free:
            slot = min(certain or free, key=lambda s: hint(s.size))
        else:
            slots.append(slot := _Slot([], []))
        slot.add(block)
        slot_of[block] = slot
        placed.add(block)
    for slot in slots:
        for block in slot.blocks:
            block.offset = start
        start = start + slot.size
    return start
