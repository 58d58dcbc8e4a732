"""How wide the tiles of columns are that are summed, or scanned, across memory.

A program walks its columns from the first row to the last. In each row it reads a piece as long as
its tile, so a short piece of a long row is a few cache lines on a page of its own. Neighbouring
columns, which other programs walk later, are on the same pages, and are then no longer near:

    grid c tile 32, loop r     r0: c0..c31    r1: c0..c31    ...     a page a step
    grid c tile 104, loop r    r0: c0..c103   r1: c0..c103   ...     memory in order

Sums that no longer fit in registers are in the first cache, which costs less than reading so.
"""

from __future__ import annotations

from collections.abc import Collection

from xdsl.ir import BlockArgument

from dialects.loop import KernelOp
from dialects.strata.types import TensorType, byte_width
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.reuse import body_work
from targets.cpu.machine import Machine
from targets.cpu.scheduling.tilings import lane_tile

PIECE_BYTES = 512
"""The bytes of a row that are read at once where no piece up to twice as long divides the row. Rows
up to twice as long are read whole, and rows up to four times as long that no such piece divides:
every access of a tile that may end beyond the row has a mask."""
BODY = 512
"""The most operations on vectors of a loop's body, beyond tiles of the usual width."""


def column_tile(
    kernel: KernelOp, lanes: Symbol, walked: Collection[Symbol], machine: Machine
) -> int:
    """The columns of a tile: the whole row if it is short, else an even part of it.

    `walked`: the axes that a program walks. The tile is of the usual width where the columns are
    still near when the next program walks its own, and where a body would be long.
    """
    usual, size = lane_tile(kernel.axes[lanes], machine), kernel.axes[lanes].constant
    walking = [n for n in kernel.nests if any(a.name in walked for a in n.axes)]
    width = max((byte_width(v.type.element) for n in walking for v in n.inputs if isinstance(
        v, BlockArgument) and isinstance(v.type, TensorType)), default=1)
    rows = product(kernel.axes[a] for a in walked).constant
    if size is None or (rows is not None and rows * size * width <= machine.caches[0]):
        return usual
    body = BODY // max(1, sum(map(body_work, walking))) * machine.lanes
    most = min(2 * PIECE_BYTES // width, body)
    if size <= most:
        return size
    least = most // 2 // machine.lanes * machine.lanes
    even = (w for w in range(2 * least, least - 1, -machine.lanes) if size % w == 0)
    uneven = size if size <= min(2 * most, body) else least
    return max(usual, next(even, uneven))
