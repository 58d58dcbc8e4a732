"""The loop order of a contraction's tiles, which decides what operand stays in the L2 cache.

If programs use one panel after another, each panel is read from memory once, and the rows once per
panel. If they use one part of the rows after another, the rows are read once, and the panels once
per part. An operand that stays in the cache in between is read from memory only once either way.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.ir import SSAValue

from dialects.loop import NestOp, extents_of
from dialects.strata.schedule import Level
from dialects.strata.types import TensorType, byte_width
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.runs import running_axis
from targets.cpu.machine import Machine

SHARE = 2
"""An operand counts as cached if it takes at most one part in `SHARE` of the cache; other data
needs the rest."""
OPEN_SIZE = 1 << 10
"""The assumed value of a size known only at run time."""


def walks_rows_first(
    nest: NestOp, panel: Level, batch: Collection[Symbol], parts: Expr, machine: Machine
) -> bool:
    """Whether to use all panels on one of the `parts` of the rows before the next part.

    `panel`: the level of the lanes; `batch`: the axes of outer loops.
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
    if by_part == by_panel:  # where lanes are stored across memory, a panel's rows fill its lines
        return result > cache and panel.axis in running_axis(nest.output_maps[0], nest.axes)
    return by_part < by_panel


def _names(map_: Sequence[Expr], axis: Symbol) -> bool:
    return any(axis in e.symbols for e in map_)


def _bytes(value: SSAValue, batch: Sequence[Expr]) -> int:
    """Bytes of a tensor in one step of the batch."""
    assert isinstance(value.type, TensorType)
    elements = _known(product(value.type.shape)) // max(1, _known(product(batch)))
    return elements * byte_width(value.type.element)


def _known(size: Expr) -> int:
    return size.substitute(dict.fromkeys(size.symbols, OPEN_SIZE)).constant or 0
