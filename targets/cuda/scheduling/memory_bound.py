"""Schedule rules of the CUDA target for memory-bound kernels: reductions and elementwise ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from xdsl.ir import SSAValue

from dialects.loop import KernelOp
from dialects.strata.schedule import Level, Schedule
from dialects.strata.types import TensorType, byte_width
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.runs import common_rows, contiguous_axes, memory_order, running_axis
from targets.cuda.facts.fitted import RowTiles
from targets.cuda.machine import WARP, machine_of
from targets.cuda.scheduling.memory.walks import (
    DEEPER,
    FEW,
    WORD,
    in_words,
    is_unaligned,
    step_along,
    types_of,
    walking_warps,
    walks,
    with_online,
)
from targets.cuda.scheduling.roles import symbols_of
from targets.cuda.scheduling.tiles import ceil_power, even_power, finish, floor_power, power
from targets.options import TargetOptions

SECTOR = 16
"""The fewest columns of a program that sums across memory: halves that memory moves at a time."""

FULL = 4
"""How many programs that sum across memory a multiprocessor has at least, if columns suffice."""


def _facts(options: TargetOptions) -> RowTiles:
    return machine_of(options.features).fitted.rows


def walked_alike(kernel: KernelOp) -> list[list[Symbol]]:
    """Groups of axes, other than rows, that every nest uses alike: all summed, parallel, or absent.

    The axes of a group are in memory order of a reduction's input.
    """
    rows = set(common_rows(kernel))
    alike: dict[tuple[bool | None, ...], list[Symbol]] = {}
    for name in kernel.axes:
        kinds = tuple(next((a.reduce for a in n.axes if a.name == name), None)
                      for n in kernel.nests)
        if name not in rows:
            alike.setdefault(kinds, []).append(name)
    return [memory_order(next(n for n, kind in zip(kernel.nests, kinds, strict=True) if kind),
                         names)
            for kinds, names in alike.items() if len(names) > 1 and True in kinds]


def reduction(kernel: KernelOp, options: TargetOptions) -> Schedule:
    """Rows in parallel. A contiguous axis is held whole, or processed in long steps."""
    extents, facts = kernel.axes, _facts(options)
    rows = common_rows(kernel)
    inner = [a for a in extents if a not in rows]
    along = contiguous_axes(kernel)
    if rows and not _sums_along_memory(kernel, inner) and (not along or along[0] in rows):
        return _strided_reduction(kernel, rows, inner, along, options)
    unaligned = is_unaligned(kernel)
    placed = _inner_levels(kernel, inner, options)
    tiles = [x for x in placed if x.tile > 1]
    width = max((x.tile for x in tiles), default=1)
    if not all(x.kind == "whole" for x in tiles):
        walked = _masked(kernel, [*(Level("grid", a) for a in rows), *placed], options,
                         walking_warps(kernel, width, options))
        walked = with_online(kernel, walked, options)
        return in_words(kernel, walked) if unaligned else walked
    least = 1 if unaligned else 4  # a warp that has a whole row waits for no other
    sharing = not unaligned and facts.shared[0] <= _shared_bytes(kernel) <= facts.shared[1]
    most = facts.held_sharing * facts.sharing_warps if sharing else facts.held * least
    height = height_of(kernel, rows, width, (most * WARP, facts.least_held * least * WARP), options)
    levels = [Level("grid", a) for a in rows[:-1]]
    levels += [Level("grid", a, power(extents[a], height)) for a in rows[-1:]]
    held = facts.held_sharing if sharing else facts.held if unaligned else _held(kernel, options)
    fewest = 1 if height == 1 and width <= facts.alone else least
    warps = max(fewest, min(16, width * height // (held * WARP)))
    return _masked(kernel, [*levels, *placed], options, warps)


def _masked(
    kernel: KernelOp, levels: Sequence[Level], options: TargetOptions, warps: int
) -> Schedule:
    more = {"stream": 1} if _streams(kernel, options) else {}
    return finish(kernel, levels, tails="mask", warps=warps, **more)


def _streams(kernel: KernelOp, options: TargetOptions) -> bool:
    """Whether caches may drop data after its last read (see `emit/specialized/streaming.py`).

    That pays if the kernel moves more data than the L2 cache holds, and writes little. The cache
    then keeps data that is still to be written back. Chosen on an H200 with a cache full of other
    kernels' results. Bypassing only the multiprocessors' own caches gains nothing.
    """
    read, written = (sum(map(_bytes, values)) for values in (
        kernel.body.block.args, kernel.yielded))
    return read + written > machine_of(options.features).cache and read >= 2 * written


def _bytes(value: SSAValue) -> int:
    """The bytes of a tensor of static size; else 0."""
    assert isinstance(value.type, TensorType)
    return (product(value.type.shape).constant or 0) * byte_width(value.type.element)


def _shared_bytes(kernel: KernelOp) -> int:
    """The bytes of inputs that are the same for all rows."""
    rows, arguments = set(common_rows(kernel)), set(kernel.body.block.args)
    shared = {v for n in kernel.nests for v, m in zip(n.inputs, n.input_maps, strict=True)
              if v in arguments and rows.isdisjoint(symbols_of(m))}
    return sum(map(_bytes, shared))


def _held(kernel: KernelOp, options: TargetOptions) -> int:
    """Elements of a row in each thread; few if the kernel only sums rows."""
    facts, summing = _facts(options), [n for n in kernel.nests if n.is_reduction]
    if len(summing) > 1 or not _streams(kernel, options):
        return facts.held
    return facts.read_words * WORD // max(byte_width(type_.element) for type_ in types_of(kernel))


def height_of(
    kernel: KernelOp, rows: Sequence[Symbol], width: int, bounds: Sequence[int],
    options: TargetOptions,
) -> int:
    """How many short rows a program computes: the most that leave enough programs for every
    multiprocessor. `bounds`: the most and the fewest elements of a program."""
    facts, count = _facts(options), product(kernel.axes[a] for a in rows).constant
    most, least = (elements // width for elements in bounds)
    if count is None:
        return floor_power(min(facts.open_height, most))
    wanted = count // (facts.programs * machine_of(options.features).multiprocessors)
    return floor_power(min(max(min(wanted, facts.height), least), most))


def _sums_along_memory(kernel: KernelOp, inner: Sequence[Symbol]) -> bool:
    """Whether a reduction sums along memory.

    Either only summed axes (fused, with division) index the last dim of an input. Or a summed axis
    is contiguous in the input that most axes index.
    """
    reductions = [n for n in kernel.nests if n.is_reduction]
    ends = [m[-1].symbols for n in reductions for m in n.input_maps if m]
    main = [running_axis(max(n.input_maps, key=lambda m: len(symbols_of(m)), default=()), n.axes)
            for n in reductions]
    return any(symbols and symbols <= {*inner} for symbols in ends) or not {*inner}.isdisjoint(
        name for names in main for name in names)


def _inner_levels(
    kernel: KernelOp, inner: Sequence[Symbol], options: TargetOptions
) -> list[Level]:
    """Levels of a nest's axes other than rows; the last one has a tile: whole, or a long step."""
    levels: dict[Symbol, Level] = {}
    longest = _facts(options).longest_whole
    for name in reversed(inner):
        others = {a.name for n in kernel.nests for a in n.axes if walks(n, name)}
        size = kernel.axes[name].constant
        if any(x.axis in others and x.tile > 1 for x in levels.values()):
            levels[name] = Level("loop", name)
        elif size is not None and size <= longest:
            levels[name] = Level("whole", name, power(kernel.axes[name], longest))
        else:
            levels[name] = Level("loop", name, step_along(kernel, name, options))
    return [levels[name] for name in inner]


def _strided_reduction(
    kernel: KernelOp, rows: Sequence[Symbol], inner: Sequence[Symbol], along: Sequence[Symbol],
    options: TargetOptions,
) -> Schedule:
    """Sums across memory: contiguous rows in a tile, and the summed axis in short steps."""
    extents, facts = kernel.axes, _facts(options)
    column = along[0] if along else rows[-1]
    others = [Level("grid", a) for a in rows if a != column]
    beside, machine = power(extents[column], facts.beside), machine_of(options.features)
    wanted, size = FULL * machine.multiprocessors, extents[column].constant or 0
    while beside > SECTOR and (4 * (-size % beside) > size or (_programs(
            kernel, [*others, Level("grid", column, beside)]) or wanted) < wanted):
        beside //= 2
    levels = [*others, Level("grid", column, beside)]
    across = facts.across * _depth(levels, kernel, options)
    across *= max(1, min(facts.beside, power(extents[column], facts.beside)) // beside)
    levels += [Level("loop", a) for a in inner[:-1]]
    levels += [Level("loop", a, power(extents[a], across)) for a in inner[-1:]]
    return _masked(kernel, levels, options, facts.across_warps)


def _depth(levels: Sequence[Level], kernel: KernelOp, options: TargetOptions) -> int:
    """How many times as much a step across memory loads where multiprocessors wait for memory in
    each: until what all programs load at a time covers its latency twice."""
    machine, facts, programs = machine_of(options.features), _facts(options), _programs(
        kernel, levels)
    at_once = machine.threads // (facts.across_warps * WARP)
    if programs is not None:
        at_once = min(at_once, -(-programs // machine.multiprocessors))
    if at_once <= FEW:
        return DEEPER
    width = max(byte_width(v.type.element) for v in kernel.body.block.args
                if isinstance(v.type, TensorType))
    loaded = at_once * levels[-1].tile * facts.across * width
    wanted = 2e9 * machine.bandwidth * machine.fitted.products.latency / machine.multiprocessors
    return min(DEEPER, ceil_power(wanted / loaded))


def _programs(kernel: KernelOp, levels: Sequence[Level]) -> int | None:
    """The programs of a grid; None if it is open."""
    return product(kernel.axes[x.axis].ceildiv(x.tile) for x in levels).constant


def elementwise(kernel: KernelOp, options: TargetOptions) -> Schedule:
    """Tiles along memory; two-dimensional if inputs and results have different contiguous axes.

    The axes along which a scatter writes in order are inner loops. Nests with fewer axes say where
    others read.
    """
    extents = kernel.axes
    rows = common_rows(kernel)
    unordered = any(n.unordered for n in kernel.nests)
    if unordered or not any(n.reduce_axes for n in kernel.nests):
        rows = [a.name for a in max(kernel.nests, key=lambda n: len(n.axes)).axes]
    along = [a for a in contiguous_axes(kernel) if a in rows]
    if unordered:
        stored = {a for n in kernel.nests if n.unordered for a in running_axis(
            n.output_maps[0], n.axes)}
        along.sort(key=lambda a: a not in stored)
    crossing = [a for a in along[1:] if _crosses(kernel, along[0], a)][:1]
    if crossing and not unordered:
        return _two_directions(kernel, rows, [along[0], *crossing], options)
    tiles: dict[Symbol, int] = {}
    elements = _elements(kernel, rows, options)
    order = [*dict.fromkeys([*(along[:1] or rows[-1:]), *reversed(rows)])]
    times = 1 if unordered else _sharing(kernel, order, elements, options)
    for name in order:
        room = elements * (times if tiles else 1) // prod(tiles.values())
        if room > 1:
            tiles[name] = even_power(extents[name], room)
    levels = [Level("grid", a, tiles.get(a, 1)) for a in rows]
    if unordered:
        return finish(kernel, levels, tails="mask", warps=4, atomic=1)
    return _masked(kernel, levels, options, 4)


def _elements(kernel: KernelOp, rows: Sequence[Symbol], options: TargetOptions) -> int:
    """Elements of a program: fewer where multiprocessors would have none."""
    facts, count = _facts(options), product(kernel.axes[a] for a in rows).constant
    elements, programs = facts.elements, machine_of(options.features).multiprocessors
    while count is not None and elements > facts.least_elements and count < elements * programs:
        elements //= 2
    return elements


def _sharing(
    kernel: KernelOp, order: Sequence[Symbol], elements: int, options: TargetOptions
) -> int:
    """How many times as many rows a program computes because it loads operands of all rows: so
    many that these are half of its other bytes, if registers and programs suffice."""
    facts, count = _facts(options), product(kernel.axes[a] for a in order).constant
    if len(order) < 2 or count is None:
        return 1
    [along, across] = order[:2]
    width, times = even_power(kernel.axes[along], elements), 1
    shared, own = _bytes_across(kernel, along, across)
    programs = FULL * machine_of(options.features).multiprocessors
    while (2 * shared > own * max(1, elements * times // width)
           and 2 * elements * times <= facts.held * 4 * WARP
           and 2 * elements * times <= width * (kernel.axes[across].constant or 0)
           and count >= 2 * elements * times * programs):
        times *= 2
    return times


def _bytes_across(kernel: KernelOp, along: Symbol, across: Symbol) -> tuple[int, int]:
    """The bytes for each element of a row: of operands that all rows share, and of others."""
    shared = own = 0
    values = [(v, m) for n in kernel.nests for v, m in zip(n.inputs, n.input_maps, strict=True)
              if v in kernel.body.block.args]
    values += [(v, m) for n in kernel.nests for v, m in zip(n.results, n.output_maps, strict=True)
               if v in kernel.yielded]
    for value, map_ in dict.fromkeys(values):
        used = symbols_of(map_)
        if along in used and isinstance(value.type, TensorType):
            width = byte_width(value.type.element)
            shared, own = (shared, own + width) if across in used else (shared + width, own)
    return shared, own


def _crosses(kernel: KernelOp, along: Symbol, across: Symbol) -> bool:
    """Whether a value that is contiguous along one axis is also indexed by the other one."""
    references = [(m, n.axes) for n in kernel.nests for m in (*n.input_maps, *n.output_maps)]
    return any(across in running_axis(m, axes) and any(along in e.symbols for e in m)
               for m, axes in references)


def _two_directions(
    kernel: KernelOp, rows: Sequence[Symbol], along: Sequence[Symbol], options: TargetOptions
) -> Schedule:
    """Square tiles, the largest that leave two programs for each multiprocessor."""
    extents = kernel.axes
    count = product(extents[a] for a in rows).constant
    programs = 2 * machine_of(options.features).multiprocessors
    width = max(byte_width(type_.element) for type_ in types_of(kernel))
    side = max(32, _facts(options).side // width)
    while side > 32 and count is not None and count < programs * side * side:
        side //= 2
    tiles = {a: _side(extents[a], side) for a in along}
    while prod(tiles.values()) > 2 * side * side:
        longer = max(tiles, key=lambda a: tiles[a])
        tiles[longer] //= 2
    for axis in sorted(along, key=lambda a: tiles[a]):
        room = min(side // tiles[axis], side * side // prod(tiles.values()))
        beyond = _beside(kernel, axis, {*rows} - {*tiles})
        if room > 1 and beyond is not None:  # or each row of the tile would be a few elements
            tiles[beyond] = power(extents[beyond], room)
    longer = max(along, key=lambda a: extents[a].constant or side)
    while 4 * prod(tiles.values()) <= side * side and 2 * tiles[longer] <= (
            extents[longer].constant or 0):
        tiles[longer] *= 2
    levels = [Level("grid", a, tiles.get(a, 1)) for a in rows]
    return finish(kernel, levels, tails="mask", warps=8 if prod(tiles.values()) >= 4096 else 4)


def _side(size: Expr, side: int) -> int:
    """A side of a tile, or the whole axis where two sides cover it and only sides shorter than a
    warp would be even: rows of a tile are contiguous then."""
    tile, value = even_power(size, side), size.constant
    return power(size, 2 * side) if value is not None and tile < WARP < value <= 2 * side else tile


def _beside(kernel: KernelOp, axis: Symbol, among: Collection[Symbol]) -> Symbol | None:
    """The axis that continues a reference where `axis`, its last dim, ends."""
    references = [(m, n.axes) for n in kernel.nests for m in (*n.output_maps, *n.input_maps)]
    return next((a for m, axes in references if axis in running_axis(m, axes)
                 for a in running_axis(m[:-1], axes) if a in among), None)
