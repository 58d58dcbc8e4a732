"""Rows that are sorted in memory: what a kernel calls where it loads a row, sorts and stores it.

A radix sort of 64-bit integers. Only bits that differ somewhere in the row are looked at. Where the
low bits are the positions of the elements, as in keys with an index, these are in order already.
The rest are cut into digits of equal width. A round is stable, and linear in the row:

    counts[d + 1] = how many elements have the digit d  ->  counts[d] = where those begin
    there[counts[digit of v]++] = v    for each v of `here`, in order

Rounds go from the row to the result or the spare row and on between these two, so that the last one
ends in the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

from xdsl.ir import Operation, SSAValue

from dialects.block import LoadOp, MapOp, ScanOp, StoreOp
from dialects.block.programs import tile_type
from dialects.strata.types import i64
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from targets.cpu.llvm.layout import U64, Array
from targets.cpu.llvm.modules import definitions
from targets.cpu.llvm.native import Native

LONGEST_ROW = 1 << 30
"""The longest row that is sorted. What it takes beside the row is as long as the row."""
LEAST = 16
"""Shorter rows are sorted in registers."""
_SIGN = -(1 << 63)
_NARROW, _WIDE, _MANY = 8, 11, 4096
"""The bits of a digit, and from how many elements on the wide ones, which need fewer rounds."""


def sort_row(
    row: Array[U64], result: Array[U64], spare: Array[U64], count: U64, low: U64, digit: U64,
) -> None:
    """Sort `count` signed integers. `low`: the bits of a position in the row; `digit`: the most
    bits of a digit. Behind a row, `spare` has counts, one more than a digit has values."""
    one: U64 = 1
    first = row[0]
    at: U64 = 0
    differ: U64 = 0
    moved: U64 = 0
    while at < count:
        differ = differ | (row[at] ^ first)
        moved = moved | (row[at] ^ at)
        at += 1
    in_order = (moved & ((one << low) - 1)) == 0
    begin = low if in_order else 0
    top: U64 = 64
    while top > begin and (differ >> (top - 1)) == 0:
        top = top - 1
    rounds = (top - begin + digit - 1) // digit
    if rounds == 0:
        at = 0
        while at < count:
            result[at] = row[at]
            at += 1
        return
    width = (top - begin + rounds - 1) // rounds
    here = row
    there = result if (rounds & 1) == 1 else spare
    other = spare if (rounds & 1) == 1 else result
    while rounds > 0:
        mask = (one << width) - 1
        at = 0
        while at <= mask + 1:
            spare[count + at] = 0
            at += 1
        at = 0
        while at < count:
            more = count + 1 + (((here[at] ^ _SIGN) >> begin) & mask)
            spare[more] = spare[more] + 1
            at += 1
        at = 1
        while at <= mask:
            spare[count + at] = spare[count + at] + spare[count + at - 1]
            at += 1
        at = 0
        while at < count:
            value = here[at]
            own = count + (((value ^ _SIGN) >> begin) & mask)
            place = spare[own]
            there[place] = value
            spare[own] = place + 1
            at += 1
        here = there
        there = other
        other = here
        begin = begin + width
        rounds = rounds - 1


class SortedRow(NamedTuple):
    """A row that one program loads, sorts and stores whole."""

    load: LoadOp
    copy: MapOp
    store: StoreOp
    length: int

    @property
    def ends(self) -> tuple[LoadOp, StoreOp]:
        """Where the row is read, and where it goes."""
        return self.load, self.store

    @property
    def digit(self) -> int:
        return _WIDE if self.length >= _MANY else _NARROW

    @property
    def words(self) -> int:
        """The 64-bit words of memory that it takes: a spare row, and counts."""
        return self.length + (1 << self.digit) + 1

    def call(self, name: str, row: str, result: str, spare: str) -> str:
        """The text of a call of the function of a kernel, given addresses."""
        low = (self.length - 1).bit_length()
        return _function(name).call(
            row, result, spare, str(self.length), str(low), str(self.digit))


def sorted_row(op: Operation) -> SortedRow | None:
    """The row that an operation sorts, if nothing else looks at the row or at the sorted one.

        %x = block.load ...; %y = block.map (%x) {yield}; %z = block.scan sort %y; block.store %z
    """
    if type(op) is not ScanOp or not op.sorts:
        return None
    copy, store = op.value.owner, _only_use(op.result)
    if not isinstance(store, StoreOp) or not isinstance(copy, MapOp) or not _is_copy(copy):
        return None
    load, type_ = copy.inputs[0].owner, tile_type(op.result)
    count = type_.shape[op.axis]
    plain = type_.element == i64 and type_.lanes is None and count >= LEAST and all(
        size == 1 for d, size in enumerate(type_.shape) if d != op.axis)
    if not plain or not isinstance(load, LoadOp) or load.checked_dims or store.checked_dims or (
            _only_use(load.result) is not copy or _only_use(op.value) is not op) or not (
            _lies_along_memory(load, op.axis) and _lies_along_memory(store, op.axis)):
        return None
    return SortedRow(load, copy, store, count)


def without_rows(
    ops: Iterable[Operation], rows: Mapping[Operation, SortedRow]
) -> list[Operation]:
    """Operations without those that are a part of a row's call."""
    parts = {op for row in rows.values() for op in (*row.ends, row.copy)}
    return [op for op in ops if op not in parts]


def _lies_along_memory(op: LoadOp | StoreOp, dim: int) -> bool:
    """Whether neighbours along a dim of the tile are neighbours in the buffer."""
    place = Symbol.place(dim)
    split = op.exprs[-1].linear([place])
    return split is not None and split[0].get(place, Expr.of(0)).constant == 1 and not any(
        place in e.symbols for e in op.exprs[:-1])


def _is_copy(op: MapOp) -> bool:
    body = op.body.block
    last = body.last_op
    return len(op.inputs) == 1 and last is not None and [*last.operands] == [*body.args]


def _only_use(value: SSAValue) -> Operation | None:
    return next(iter(value.uses)).operation if value.has_one_use() else None


def sort_definition(name: str) -> str:
    """The function of a kernel that sorts rows."""
    [text] = definitions([_function(name)], {}).functions
    return text


@cache
def _function(name: str) -> Native[..., None]:
    return Native(sort_row, f"{name}_sort", "internal ")
