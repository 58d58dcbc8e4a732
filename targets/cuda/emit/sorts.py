"""Sorts of tiles by `tl.sort`, in the order that exchanges least between warps.

A stage of the bitonic sort compares elements at a distance of 1, 2, 4 ...; the shortest distances
are the most frequent ones. Triton deals a tile that was loaded element by element to threads in
turn, so that neighbours lie in different threads, and some of them in different warps. A sort may
begin in any order, so the tile is transposed first, which moves nothing:

    threads 0 1 2 3 0 1 2 3   ->   threads 0 0 1 1 2 2 3 3
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from xdsl.ir import SSAValue

from dialects.block import LoadOp, MapOp, ScanOp, StoreOp
from dialects.block.programs import tile_type
from dialects.strata.types import buffer_type, byte_width
from dialects.symbolic.symbol import Symbol
from targets.cuda.emit.context import Context
from targets.cuda.machine import WARP
from targets.cuda.scheduling.options import WARPS

WORD = 16
"""The bytes of a thread's widest load."""


def sorted_text(op: ScanOp, context: Context) -> str:
    """The sorted tile. Triton sorts along the last dim only."""
    tile, text = tile_type(op.value), context.values[op.value].text
    last = tile.rank - 1
    if op.axis != last:
        order = ", ".join(str({op.axis: last, last: op.axis}.get(k, k)) for k in range(last + 1))
        return f"tl.permute(tl.sort(tl.permute({text}, ({order}))), ({order}))"
    schedule = context.kernel.schedule
    warps = WARPS.default if schedule is None else schedule.data.option(WARPS)
    [*_, size] = tile.shape
    wide = max(side_by_side(op.value), *map(_stored, _stores(op.result)), 1)
    rows = size // (WARP * warps) // wide
    if rows > 1 and tile.rank == 1:
        text = f"tl.trans(tl.reshape({text}, ({rows}, {size // rows})))"
        text = f"tl.reshape({text}, ({size},))"
    return f"tl.sort({text})"


def side_by_side(value: SSAValue) -> int:
    """How many neighbouring elements of a tile a thread has, by the loads that it is made of."""
    return max((_width(load, tile_type(load.result).rank) for load in _loads(value)), default=1)


def _loads(value: SSAValue) -> Iterator[LoadOp]:
    if isinstance(value.owner, LoadOp):
        yield value.owner
    elif isinstance(value.owner, MapOp):
        for inner in value.owner.inputs:
            yield from _loads(inner)


def _stores(value: SSAValue) -> Iterator[StoreOp]:
    """The stores of a tile and of what is computed of it element by element."""
    for use in value.uses:
        if isinstance(use.operation, StoreOp):
            yield use.operation
        elif isinstance(use.operation, MapOp):
            for result in use.operation.results:
                yield from _stores(result)


def _stored(store: StoreOp) -> int:
    """How many elements a thread stores at once; Triton loads at least as many for it."""
    return _width(store, tile_type(store.value).rank)


def _width(load: LoadOp | StoreOp, rank: int) -> int:
    """How many elements a thread accesses at once: those of a word to which rows are aligned."""
    type_ = buffer_type(load.buffer)
    place = Symbol.place(rank - 1)
    parts = load.where.data[-1].linear([place]) if type_.shape else None
    step = parts[0].get(place) if parts is not None else None
    pitch = 0 if type_.rank == 1 else type_.shape[-1].constant
    if step is None or step.constant != 1 or pitch is None:
        return 1
    width = byte_width(type_.element)
    return gcd(WORD, pitch * width) // width or 1
