"""Estimates for devices without fitted numbers, derived from their data sheets.

They are good enough to rank schedules, not to predict times. Where a data sheet says nothing, the
value is neutral (such as a share of 1), or one of the cycle counts below.
"""

from __future__ import annotations

from functools import cache
from typing import Protocol

from targets.cuda.facts.fitted import (
    EarlyLaunches,
    Fitted,
    GuessedCycles,
    LinkTimes,
    PartTimes,
    ProductTimes,
    RowTiles,
)

FAR, BARRIER = 800, 32
"""Latency of device memory and cost of a barrier, in cycles. Both are assumptions, not measured on
any device."""
CHANNELS = 16
"""The multiprocessors that a large all-reduce occupies: an assumption, too."""
BANKS = 128
"""Bytes per cycle from a multiprocessor's shared memory: 32 banks of 4 bytes (CUDA C++ Programming
Guide, "Shared Memory"; CDNA 3 ISA, "Local Data Share")."""
WORD = 16
"""The widest load of a thread in bytes (both vendors)."""
FLOAT = 4
"""Bytes of an f32, the unit of most numbers below."""
WARP = 32
"""Threads of a warp. The rules count in warps of this size on every device."""
FRAGMENT_ROWS = 16
"""Rows of a matrix instruction of one warp (PTX ISA, "mma"; CDNA 3 ISA, "MFMA 16x16")."""


class Sheet(Protocol):
    """What a data sheet states, in the units of `Machine`'s fields. It must be hashable."""

    @property
    def multiprocessors(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def registers(self) -> int: ...
    @property
    def tensor_rate(self) -> float: ...
    @property
    def bandwidth(self) -> float: ...
    @property
    def cache_rate(self) -> float: ...
    @property
    def shared(self) -> int: ...
    @property
    def clock(self) -> float: ...
    @property
    def lanes(self) -> int: ...
    @property
    def column_threads(self) -> int: ...


@cache
def from_data_sheet(sheet: Sheet) -> Fitted:
    early = EarlyLaunches(held=FLOAT * _held(sheet), trips=4)
    return Fitted("", _products(sheet), None, _parts(sheet), _rows(sheet), _guess(sheet), early,
                  _link(sheet), graph_lanes=2, joined_channels=FRAGMENT_ROWS, strip_programs=1,
                  read_once=1)


def _latency(sheet: Sheet) -> float:
    return FAR / (sheet.clock * 1e9)


def _tensor_cycle(sheet: Sheet) -> float:
    """Multiply-adds of 16-bit floats per cycle on the tensor cores of one multiprocessor."""
    return sheet.tensor_rate * 1e12 / (2 * sheet.multiprocessors * sheet.clock * 1e9)


def _guess(sheet: Sheet) -> GuessedCycles:
    return GuessedCycles(
        narrow_rate=_tensor_cycle(sheet), wide_rate=sheet.lanes, ungrouped=1,
        near_bytes=sheet.cache_rate / sheet.clock, latency=FAR, step=BARRIER, start=2 * FAR)


def _products(sheet: Sheet) -> ProductTimes:
    """Assumes that the rates of the data sheet are reached."""
    # With rate*width/BANKS columns, reading the other factor takes as long as multiplying. The
    # width of 16-bit floats is 2 bytes.
    # A warp of 8x4 threads with n sums each reads (8 + 4) * sqrt(n) floats for 32 * n products.
    read = (8 + 4) / WARP * sheet.lanes * FLOAT / BANKS
    stored = sheet.cache_rate * 1e9
    return ProductTimes(
        efficiency=1, fma_efficiency=1, half_columns=2 * _tensor_cycle(sheet) / BANKS,
        group_rows=FRAGMENT_ROWS, group_warps=1, short_rows=0, fma_loads=read,
        latency=_latency(sheet), step=BARRIER / (sheet.clock * 1e9), start=2 * _latency(sheet),
        filled=1, stored=stored, stored_among_others=stored, memory=1, beside_memory=0.5, hiding=2,
        waiting=2, registers=2 * _held(sheet), spilled=_latency(sheet),
        column_threads=sheet.column_threads, alike=0.1,
        skewed=(1, 1, 1))


def _parts(sheet: Sheet) -> PartTimes:
    """The combining kernel costs two round trips to memory.

    The estimate is unchecked, so a split must promise a large gain before it adds a kernel.
    """
    adding = 2 * _latency(sheet)
    # A warp has one load per lane in flight.
    alone = WARP * WORD / _latency(sheet) / 1e9
    return PartTimes(gain=0.5, adding=adding, adding_online=adding, programs=4, sharing=4,
                     alike=1.25, alone=alone)


def _link(sheet: Sheet) -> LinkTimes:
    """Data sheets of devices do not say how they are connected. A bus moves a small part of what
    memory does, and a message takes some round trips to memory."""
    return LinkTimes(wait=BARRIER * _latency(sheet), bandwidth=sheet.bandwidth * 1e9 / WARP,
                     message=2 * _latency(sheet), occupied=CHANNELS)


def _held(sheet: Sheet) -> int:
    """Registers per thread at full occupancy, rounded down to a power of 2."""
    return 1 << (sheet.registers // sheet.threads).bit_length() - 1


def _rows(sheet: Sheet) -> RowTiles:
    """A program has four warps with two words per thread, or rows that fill a quarter of the
    registers."""
    held, word = _held(sheet), WORD // FLOAT
    whole = sheet.registers // 4
    small = 4 * WARP * 2 * word
    return RowTiles(
        elements=small, least_elements=small // 4, side=2 * BANKS, longest_whole=whole, held=held,
        least_held=word,
        alone=held * WARP, read_words=2, shared=(sheet.shared, sheet.shared),
        held_sharing=held, sharing_warps=4, step=whole, step_apart=whole // word, step_once=small,
        step_open=whole // 2, step_warps=32, step_apart_warps=8, other_step_warps=8,
        step_online=whole // 2, online_warps=16, step_scan=2 * small, scan_warps=4,
        short=whole // 2, height=16, open_height=4, beside=2 * WARP, across=FRAGMENT_ROWS,
        across_warps=4, programs=max(1, sheet.threads // (8 * WARP)))
