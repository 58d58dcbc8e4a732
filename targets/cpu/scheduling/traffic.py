"""In which order a contraction walks its tiles: which operand stays in the cache of level 2.

Programs of one panel after another read that panel from memory once, and the rows once per panel;
programs of one part of the rows after another read the rows once, and the panels once per part.
What stays in the cache between two such walks is read from memory once either way.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.ir import SSAValue

from dialects.loop import NestOp, extents_of
from dialects.strata.schedule import Level
from dialects.strata.types import TensorType, byte_width
from dialects.symbolic.expr import Expr, product
from dialects.symbolic.symbol import Symbol
from targets.cpu.machine import Machine

SHARE = 2
"""What is to stay in a cache takes this part of it: the rest passes through."""
OPEN_SIZE = 1 << 10
"""What a size counts that only a run knows."""


def walks_rows_first(
    nest: NestOp, panel: Level, batch: Collection[Symbol], parts: Expr, machine: Machine
) -> bool:
    """Whether all panels are used on a part of the rows before the next of `parts`.

    `panel`: the level of the lanes; `batch`: axes that are walked outside.
    """
    if parts.constant == 1:
        return False
    extents = extents_of(nest.axes)
    count = _known(extents[panel.axis].ceildiv(panel.tile))
    rows = panels = 0
    for value, map_ in zip(nest.inputs, nest.input_maps, strict=True):
        size = _bytes(value, [extents[b] for b in batch if _names(map_, b)])
        if _names(map_, panel.axis):
            panels += size
        else:
            rows += size
    cache = machine.caches[1] // SHARE
    by_panel = panels + rows * (1 if rows <= cache else count)
    by_part = rows + panels * (1 if panels <= cache else _known(parts))
    result = _bytes(nest.results[0], [extents[b] for b in batch])
    return by_part < by_panel or (by_part == by_panel and result > cache)


def _names(map_: Sequence[Expr], axis: Symbol) -> bool:
    return any(axis in e.symbols for e in map_)


def _bytes(value: SSAValue, batch: Sequence[Expr]) -> int:
    """Bytes of a tensor, in one step of the batch."""
    assert isinstance(value.type, TensorType)
    elements = _known(product(value.type.shape)) // max(1, _known(product(batch)))
    return elements * byte_width(value.type.element)


def _known(size: Expr) -> int:
    return size.substitute(dict.fromkeys(size.symbols, OPEN_SIZE)).constant or 0
