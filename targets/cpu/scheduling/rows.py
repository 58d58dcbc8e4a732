"""The rows of a contraction's register tile: even parts, which share as many loads as possible.

Rows are the unrolled parallel axes besides the one in lanes. Usually they share the operand in
lanes and fill the registers. The rules here are for cases where that would be slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import takewhile

from xdsl.ir import SSAValue

from dialects.loop import KernelOp, NestOp, extents_of
from dialects.strata.types import TensorType, byte_width
from dialects.symbolic.expr import Call, Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.runs import result_order, running_axis
from passes.rewrites.loop.nests import gathered_inputs
from targets.cpu.machine import Machine

WAY_BYTES = 4096
"""Bytes of a way of the L1 cache: addresses this far apart compete for the same cache lines."""
CACHE_WAYS = 8
"""The ways of that cache. A tile with this many rows is large enough, and no slower."""
USES = 32
"""The fewest uses of every element for which a copy of an operand in one call pays."""
SHARE = 2
"""The copy also needs the tile's rows to fill at least one in this many cache sets they can use."""
CHANNELS = 16
"""The number of channels that fills a vector."""
STORED_SUM = 64
"""The longest sum for which the way that results are stored matters."""
SHORT_SUM = 50
"""The longest sum that is fully unrolled."""
WINDOW_ROWS, WINDOW_VECTORS = (2, 4), 2
"""Vectors of a window's tile along the two innermost axes, a block whose windows overlap; and the
most of these vectors that lie along the lanes."""

Rows = tuple[tuple[Symbol, int], ...]
"""Axes with their tiles, outermost first."""


def even(size: int, most: int) -> int:
    """The tile of at most `most` that divides `size` into the fewest, most even parts."""
    parts = -(-max(size, 1) // most)
    return -(-max(size, 1) // parts)


# ---------------------------------------------------------------------- windows
def is_short(nest: NestOp) -> bool:
    """Whether each result is a sum of few products."""
    count = product(a.extent for a in nest.reduce_axes).constant
    return count is not None and count <= SHORT_SUM


def is_window(nest: NestOp, lanes: Symbol) -> bool:
    """Whether each result is a short sum whose inputs are not reused along the lanes.

    An example is a depthwise convolution, whose neighbours share most inputs in both directions.
    """
    return is_short(nest) and all(
        any(lanes in e.symbols for e in m) for m in nest.input_maps)


def window_width(extent: Expr, machine: Machine) -> int:
    """The lanes of a window's tile: a vector, or two if they are a cache line at most. Two share
    each address, whose test of the image's border takes as long as a load."""
    line = machine.line_bytes // (machine.vector_bytes // machine.lanes)
    most = min(WINDOW_VECTORS * machine.lanes, max(line, machine.lanes))
    return machine.lanes if extent.constant is None else min(extent.constant, most)


def window_rows(
    names: Sequence[Symbol], extents: Mapping[Symbol, Expr], vectors: int
) -> Rows:
    """A small block of results along the innermost axes, of so many vectors each."""
    first, last = WINDOW_ROWS
    most = (first, last // vectors) if len(names) > 1 else (first * last // vectors,)
    return tuple((name, tile if (size := extents[name].constant) is None else even(size, tile))
                 for name, tile in zip(names[-2:], most, strict=True))


def stored_along(
    nest: NestOp, lanes: Symbol, names: Sequence[Symbol], width: int
) -> Symbol | None:
    """The row axis that is contiguous in the kernel's final result, if sums are so short that
    stores matter. Tiles are then squares, which are transposed in registers."""
    kernel, extents = nest.parent_op(), extents_of(nest.axes)
    count = product(a.extent for a in nest.reduce_axes).constant
    if not isinstance(kernel, KernelOp) or count is None or count > STORED_SUM:
        return None
    if (extents[lanes].constant or 0) < width:
        return None
    for value in kernel.yielded:
        owner = value.owner
        if isinstance(owner, NestOp) and owner is not nest:
            along = running_axis(owner.output_maps[owner.results.index(value)], owner.axes)
            return next((a for a in along if a in names
                         and (extents[a].constant or 0) >= width), None)
    return None


def summed_lanes(nest: NestOp) -> Symbol | None:
    """The summed axis to put in lanes, if lanes along the result would gather their inputs.

    An example is a convolution with channels last and few result channels. Its results run along
    the windows, so neighbours read distant elements, but the terms of one sum are contiguous.
    """
    order, names = result_order(nest), {a.name for a in nest.reduce_axes}
    if not order or is_short(nest) or _made_channels(nest, order):
        return None
    return _summed_along(nest, order, names)


def vector_lanes(nest: NestOp) -> Symbol | None:
    """The summed axis to put in lanes if a matrix, whose rows are contiguous, is multiplied by a
    vector, or matrices each by its own: every element is used once, so that a packed copy would
    cost more than the product."""
    parallel = {a.name for a in nest.parallel_axes}
    matrix = [m for m in nest.input_maps if parallel <= {s for e in m for s in e.symbols}]
    if not parallel or len(matrix) != 1 or is_short(nest) or any(
            map(gathered_inputs, nest.input_maps)):
        return None
    summed = [a.name for a in nest.reduce_axes if matrix[0][-1].as_symbol == a.name]
    return summed[0] if summed else None


def tile_order(nest: NestOp) -> list[Symbol]:
    """The parallel axes, with the lanes' axis last: usually in the order of the result's memory.

    If neighbours there would read distant elements, the lanes are the result's channels instead,
    provided that these fill a vector. Tiles are then transposed when they are stored.
    """
    order = result_order(nest)
    made = _made_channels(nest, order)
    if made is not None:
        return [*(a for a in order if a != made), made]
    return _beside_taps(nest, order) or order


def _made_channels(nest: NestOp, order: Sequence[Symbol]) -> Symbol | None:
    """The innermost long axis that indexes only one factor, if the axis that is contiguous in the
    result would gather the other factor."""
    names = {a.name for a in nest.reduce_axes}
    if not order or is_short(nest) or _summed_along(nest, order, names) is None:
        return None
    extents, data = extents_of(nest.axes), {
        s for m in nest.input_maps for e in m if any(order[-1] in x.symbols for x in m)
        for s in e.symbols}
    return next((a for a in reversed(order[:-1]) if a not in data
                 and (extents[a].constant or 0) >= CHANNELS), None)


def window_taps(nest: NestOp) -> Set[Symbol]:
    """The last axes of a filter's gradient, the taps of a window, or those of a small image; empty
    for another nest."""
    order, summed = result_order(nest), {a.name for a in nest.reduce_axes}
    if not order or _beside_taps(nest, order) is None:
        return set()
    moving = {s for m in nest.input_maps for e in m if e.symbols & summed for s in e.symbols}
    return set(takewhile(moving.__contains__, reversed(order)))


def _beside_taps(nest: NestOp, order: Sequence[Symbol]) -> list[Symbol] | None:
    """The axes of a filter's gradient, with a factor's channels in lanes; None for another nest.

    The result's last axis is a tap of a window, of which there are fewer than of the positions that
    are summed: no vector. The rows before the lanes end with those along which the other factor,
    which has the taps, is contiguous.
    """
    extents, summed = extents_of(nest.axes), {a.name for a in nest.reduce_axes}
    taps = [m for m in nest.input_maps if any(
        order[-1:] and order[-1] in e.symbols and e.symbols & summed for e in m)]
    if len(nest.input_maps) != 2 or len(taps) != 1 or (
            extents[order[-1]].constant or CHANNELS) >= CHANNELS:
        return None
    other = next(m for m in nest.input_maps if m is not taps[0])
    data = {s for e in taps[0] for s in e.symbols}
    lanes = next((a for a in reversed(order) if a not in data and (
        extents[a].constant or 0) >= CHANNELS and any(a in e.symbols for e in other)), None)
    if lanes is None:
        return None
    along = running_axis(taps[0], nest.axes)
    rows = sorted((a for a in order if a != lanes), key=lambda a: a in along)
    return [*rows, lanes]


def _summed_along(
    nest: NestOp, order: Sequence[Symbol], names: Set[Symbol]
) -> Symbol | None:
    """The contiguous summed axis of a factor that the result's last axis indexes with a stride."""
    found: list[Symbol] = []
    for map_ in nest.input_maps:
        summed = [a for a in running_axis(map_, nest.axes) if a in names]
        if any(order[-1] in e.symbols for e in map_):
            crossed = any(order[-1] in e.symbols and e.symbols & names for e in map_[:-1])
            if not crossed or len(summed) != 1 or order[-1] in map_[-1].symbols:
                return None
            found += summed
    return found[0] if len(found) == 1 else None


# ---------------------------------------------------------------------- tiled reads
def tiled_rows(nest: NestOp, names: Sequence[Symbol], budget: int) -> Rows:
    """Rows of an axis that is read in tiles, `axis floordiv 4`: those that share what is read."""
    extents, found = extents_of(nest.axes), list[tuple[Symbol, int]]()
    for name in names:
        tile = max((_divisor(e, name) for m in nest.input_maps for e in m), default=1)
        size = extents[name].constant
        if 1 < tile <= budget:
            found.append((name, tile if size is None else min(
                size, tile * even(-(-size // tile), budget // tile))))
    return tuple(found)


def _divisor(expr: Expr, axis: Symbol) -> int:
    """The largest constant by which an axis is divided in an expression; 1 if it is not."""
    calls = [a for m, _ in expr.terms for a in m if isinstance(a, Call) and axis in a.symbols]
    return max((a.args[1].constant or 1 for a in calls), default=1)


# ---------------------------------------------------------------------- caches
def competes(nest: NestOp, lanes: Symbol, rows: Sequence[Symbol]) -> bool:
    """Whether more rows than the cache has ways would compete for the same cache lines."""
    extents = extents_of(nest.axes)
    return any(_stride(v, m, row) % WAY_BYTES == 0 and (extents[row].constant or 0) > CACHE_WAYS
               for row in rows
               for v, m in zip(nest.inputs, nest.input_maps, strict=True)
               if not any(lanes in e.symbols for e in m))


def evicts(nest: NestOp, position: int, lanes: Symbol, cache: int) -> bool:
    """Whether the part of an operand that a tile reads evicts itself from a cache of `cache` bytes.

    A cache keeps few of the rows that lie a power of two apart. A copy then pays, if it is used
    often enough.
    """
    extents, map_ = extents_of(nest.axes), nest.input_maps[position]
    used = {s for e in map_ for s in e.symbols}
    uses = product(a.extent for a in nest.parallel_axes if a.name not in used).constant
    if uses is not None and uses < USES:
        return False
    return any(
        a.name in used and (extents[a.name].constant or 0) * SHARE * _apart(nest, position, a.name)
        > cache for a in nest.reduce_axes)


def _apart(nest: NestOp, position: int, axis: Symbol) -> int:
    """The largest power of two that divides the bytes between neighbours along an axis."""
    stride = abs(_stride(nest.inputs[position], nest.input_maps[position], axis))
    return stride & -stride


def _stride(value: SSAValue, map_: Sequence[Expr], axis: Symbol) -> int:
    """Bytes between neighbours along an axis; 1 if that is unknown, or if there are none."""
    assert isinstance(value.type, TensorType)
    total = Expr.of(0)
    for d, expr in enumerate(map_):
        split = expr.linear([axis])
        if split is None:
            return 1
        total = total + split[0].get(axis, Expr.of(0)) * product(value.type.shape[d + 1:])
    return (total.constant or 0) * byte_width(value.type.element) or 1
