"""The rules that a schedule must obey so that its kernel can be lowered.

A user's file or a tuner may contain any schedule. Whatever the lowering cannot do is found here,
and reported in full, before any code is generated. A fault names the level to which it belongs, so
that a message can point at it in the user's file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from itertools import dropwhile

from xdsl.ir import SSAValue

from dialects.loop import Axis, KernelOp, NestOp
from dialects.records import dataclass
from dialects.strata.schedule import Level, Schedule
from dialects.strata.schedule_options import ATOMIC, NEIGHBOURS, ONLINE
from dialects.strata.types import TensorType, format_symbols, is_float
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.online import running_maximum, sources_of, waits_for
from passes.analyses.loop.reuse import kept_values
from passes.loop_to_block.access import leaves
from passes.loop_to_block.compute import is_dot
from passes.loop_to_block.copies import copied_level
from passes.loop_to_block.state import AxisState
from passes.rewrites.kernels.neighbours import grouped_axis
from passes.rewrites.loop.nests import Read, reads_of


@dataclass(frozen=True)
class Fault:
    """Why a schedule does not fit its kernel. `level`: the one at fault, a member of the schedule's
    levels; None if it is none of them. Two faults are equal if their texts are."""

    text: str
    level: Level | None = field(default=None, compare=False)


def faults(kernel: KernelOp, schedule: Schedule) -> list[Fault]:
    """All reasons why a schedule does not fit its kernel; empty if it fits."""
    placed = {x.axis for x in schedule.levels}
    unknown = sorted(placed - kernel.axes.keys())
    missing = sorted(kernel.axes.keys() - placed)
    if unknown or missing:
        return ([Fault(f"it does not place axes {format_symbols(missing)}")] if missing else []) + (
            [Fault(f"it names unknown axes {format_symbols(unknown)}", schedule.level(unknown[0]))]
            if unknown else [])
    small = [x for x in schedule.levels if x.tile < 1 or x.unroll < 1]
    if small:  # the other rules divide by tiles
        return [Fault("tiles and unroll factors must be at least 1", small[0])]
    return [*_order_faults(schedule), *_whole_faults(kernel, schedule),
            *_private_faults(kernel, schedule),
            *_online_faults(kernel, schedule), *_copy_faults(kernel, schedule),
            *_neighbour_faults(kernel, schedule),
            *_group_faults(kernel, schedule),
            *_matrix_faults(kernel, schedule),
            *_reader_faults(kernel, schedule),
            *(fault for nest in kernel.nests for fault in _reduction_faults(nest, schedule))]


def _order_faults(schedule: Schedule) -> Iterator[Fault]:
    inside = dropwhile(lambda x: x.kind == "grid", schedule.levels)
    if late := [x for x in inside if x.kind == "grid"]:
        yield Fault("grid levels must come before all others", late[0])
    grid = [x for x in schedule.levels if x.kind == "grid"]
    for axis in sorted({x.axis for x in grid}):
        if len(same := [x for x in grid if x.axis == axis]) > 1:
            yield Fault(f"axis {axis} has two grid levels", same[1])
    lanes = [x for x in schedule.levels if x.lanes]
    if other := [x for x in lanes if x.axis != lanes[0].axis]:
        yield Fault("only one axis can lie in lanes", other[0])


def _copy_faults(kernel: KernelOp, schedule: Schedule) -> Iterator[Fault]:
    """A tile computed position by position must be whole, and every nest must fill it."""
    level = copied_level(schedule)
    if level is None:
        return
    if level.unroll != level.tile:
        yield Fault(f"axis {level.axis} has a tile of {level.tile}, of which {level.unroll} are "
                    "unrolled; a grid level unrolls its whole tile", level)
    if (kernel.axes[level.axis] % level.tile).terms:
        yield Fault(f"axis {level.axis} is unrolled in the grid, but a tile of {level.tile} does "
                    "not divide it", level)
    if sum(x.axis == level.axis for x in schedule.levels) > 1:
        yield Fault(f"axis {level.axis} is unrolled in the grid, so it cannot have further levels",
                    level)
    if len(kernel.nests) < len(list(kernel.body.block.ops)) - 1 or any(
            n.into or len(n.results) > 1 or level.axis not in {a.name for a in n.parallel_axes}
            for n in kernel.nests):
        yield Fault(f"axis {level.axis} is unrolled in the grid, but not every nest is parallel "
                    "over it and computes one whole result", level)


def _whole_faults(kernel: KernelOp, schedule: Schedule) -> Iterator[Fault]:
    for depth, level in enumerate(schedule.levels):
        if level.kind != "whole":
            continue
        same = [x for x in schedule.levels if x.axis == level.axis]
        outer = [x for x in schedule.levels[:depth] if x.axis == level.axis]
        length = Expr.of(outer[-1].tile) if outer else kernel.axes[level.axis]
        if same[-1] is not level:
            yield Fault(f"axis {level.axis} has further levels inside a `whole` level", level)
        if length.constant is None or length.constant > level.tile:
            yield Fault(f"a tile of {level.tile} does not hold axis {level.axis} of {length}",
                        level)


def _private_faults(kernel: KernelOp, schedule: Schedule) -> Iterator[Fault]:
    """A program's private values must be complete when they are read, and computed by itself."""
    divided = {x.axis: x for x in schedule.levels if x.kind == "grid"}
    for reader in kernel.nests:
        walked = {a.name for a in reader.axes}
        for read in reads_of(reader):
            for axis, at in _elsewhere(read):
                if axis in divided:
                    yield Fault(f"axis {axis} is a grid level, but a value computed along it is "
                                f"read at {at}, which other programs compute", divided[axis])
                elif axis in walked:
                    yield Fault(f"a nest walks axis {axis}, but reads a value that is computed "
                                f"along it at {at}", schedule.level(axis))


def _elsewhere(read: Read) -> Iterator[tuple[Symbol, Expr]]:
    """Reads of another nest's result at another position of an axis, as (axis, the position)."""
    maker = read.value.owner
    if not isinstance(maker, NestOp):
        return
    assert isinstance(read.value.type, TensorType)
    stored = maker.stored_at(read.value)
    for at, place, size in zip(read.map, stored, read.value.type.shape, strict=True):
        if at != place and size.constant != 1 and place.as_symbol is not None:
            yield place.as_symbol, at


def _online_faults(kernel: KernelOp, schedule: Schedule) -> Iterator[Fault]:
    """A sum that is open in one loop over an axis is no longer there in the next loop over it."""
    online = schedule.option(ONLINE)
    kept = set(kept_values(kernel, schedule))
    loops = [x for x in schedule.levels if x.kind == "loop"]
    for axis in dict.fromkeys(x.axis for x in loops):
        for nest in kernel.nests:
            walks = axis in {a.name for a in nest.axes}
            running = running_maximum(nest) if online else None
            if walks and waits_for(nest, [axis], running) and any(
                    _is_sum_along(v, axis) for v in sources_of(nest) - kept) and (
                        nest.is_reduction or nest.results[0] in kernel.yielded):
                yield Fault(
                    f"axis {axis} is a loop, but a nest over it waits for a finished reduction and "
                    "needs sums from inside the loop: hold the axis `whole`, or, if the nest sums "
                    "values from which a maximum is subtracted, add online = 1",
                    next(x for x in loops if x.axis == axis))


def _neighbour_faults(kernel: KernelOp, schedule: Schedule) -> Iterator[Fault]:
    """Groups of neighbours are whole, and everything that walks their axis adds up or is parallel.
    """
    size = schedule.option(NEIGHBOURS)
    if size > 1 and not (schedule.option(ONLINE) and grouped_axis(kernel, schedule, size)):
        yield Fault(f"neighbours = {size} needs online = 1, and a single axis of sums that follow "
                    f"a maximum: a multiple of {size} elements in one loop, of which each step has "
                    "several groups and which nothing scans")


def _is_sum_along(value: SSAValue, axis: Symbol) -> bool:
    """Whether a value is a sum that has a separate value at each position of an axis."""
    return isinstance(value.owner, NestOp) and value.owner.is_reduction and (
        value.owner.is_scan or axis in {a.name for a in value.owner.parallel_axes})


def _group_faults(kernel: KernelOp, schedule: Schedule) -> Iterator[Fault]:
    """A grouped, summed axis must belong to products that an instruction computes lane by lane."""
    grouped = {x.axis: x for x in schedule.levels if x.group}
    if len(grouped) > 1:
        yield Fault("only one axis can be grouped", [*grouped.values()][1])
    for axis, level in sorted(grouped.items()):
        for nest in kernel.nests:
            walks = axis in {a.name for a in nest.axes}
            if walks and nest.reduce_axes and not _multiplies_lanes(nest, axis, schedule):
                yield Fault(f"axis {axis} is grouped, but a nest over it does not sum products "
                            "along it of two inputs, exactly one of which is indexed by the lanes "
                            "axis", level)


def _matrix_faults(kernel: KernelOp, schedule: Schedule) -> Iterator[Fault]:
    """Matrix registers hold tiles of rows and of one summed axis, both with plain reads."""
    for nest in kernel.nests:
        summed = [a for a in nest.reduce_axes if a.name in schedule.matrix]
        if len(summed) > 1:
            yield Fault("only one summed axis can lie in matrix registers",
                        _in_matrix(schedule, summed[1].name))
        for axis in summed:
            level = _in_matrix(schedule, axis.name)
            if not _multiplies_lanes(nest, axis.name, schedule):
                yield Fault(f"axis {axis.name} lies in matrix registers, but a nest over it does "
                            "not sum products along it of two inputs, exactly one of which is "
                            "indexed by the lanes axis", level)
            elif not _ends_in_zeros(nest, axis, level):
                yield Fault(f"axis {axis.name} lies in matrix registers, but the elements read "
                            "beyond its end are not 0", level)


def _in_matrix(schedule: Schedule, axis: Symbol) -> Level:
    return next(x for x in schedule.levels if x.axis == axis and x.matrix)


def _ends_in_zeros(nest: NestOp, axis: Axis, level: Level) -> bool:
    """Whether the factors are 0 beyond the end of an axis; for integers, whether one of them is."""
    if not (axis.extent % level.tile).terms:
        return True
    zero = Expr.of(0)
    states = {a.name: AxisState(zero, a.extent, a.extent) for a in nest.axes}
    states[axis.name] = AxisState(zero, axis.extent, axis.extent, zero, level.tile, True)
    found = [not r.pad and isinstance(r.value.type, TensorType) and leaves(
        r.map, r.value.type.shape, axis.name, states) for r in reads_of(nest)]
    return all(found) if is_float(nest.yielded[0].type) else any(found)


def _multiplies_lanes(nest: NestOp, axis: Symbol, schedule: Schedule) -> bool:
    if axis not in {a.name for a in nest.reduce_axes} or not is_dot(nest):
        return False
    used = [{s for e in m for s in e.symbols} for m in nest.input_maps]
    return all(axis in u for u in used) and sum(schedule.lanes in u for u in used) == 1


def _reduction_faults(nest: NestOp, schedule: Schedule) -> Iterator[Fault]:
    """A reduction's accumulators live around its loops, in tiles of its parallel axes."""
    if nest.is_scatter:
        yield from _scatter_faults(nest, schedule)
        return
    if nest.is_scan:
        yield from _scan_faults(nest, schedule)
    if nest.is_recurrence:
        yield from _recurrence_faults(nest, schedule)
    reduce = {a.name for a in nest.reduce_axes}
    parallel = {a.name for a in nest.parallel_axes}
    started: Level | None = None
    in_matrices = schedule.matrix if reduce & schedule.matrix else frozenset[Symbol]()
    for level in schedule.levels:
        if level.axis in reduce and level.kind == "grid":
            yield Fault(f"axis {level.axis} is summed over, so it cannot be a grid level", level)
        elif level.axis in reduce and level.kind == "loop":
            started = started or level
        elif started is not None and level.axis in parallel - in_matrices:
            yield Fault(f"axis {level.axis} is inside the loop over {started.axis}, which can only "
                        "accumulate one element of it at a time", level)


def _reader_faults(kernel: KernelOp, schedule: Schedule) -> Iterator[Fault]:
    """The tile of a scan exists in the loop over its axis, where its readers' other loops are."""
    for scan in [n for n in kernel.nests if n.is_scan]:
        axis, own = scan.reduce_axes[0].name, {a.name for a in scan.axes}
        readers, read = set[Symbol](), set(scan.results)
        for nest in kernel.nests:
            if not read.isdisjoint(nest.inputs):
                read |= set(nest.results)
                readers |= {a.name for a in nest.axes} - own
        loops = [x for x in schedule.levels if x.kind == "loop"]
        walked = next((k for k, x in enumerate(loops) if x.axis == axis), 0)
        yield from (Fault(f"axis {axis} is scanned inside the loop over {x.axis}, which only nests "
                          "that read the scan walk", x)
                    for x in loops[:walked] if x.axis in readers)


def _scan_faults(nest: NestOp, schedule: Schedule) -> Iterator[Fault]:
    """A scan walks one tile after the other, each within one lane."""
    [axis] = [a.name for a in nest.reduce_axes]
    levels = [x for x in schedule.levels if x.axis == axis]
    if len(levels) > 1:
        yield Fault(f"axis {axis} is scanned, so it cannot have several levels", levels[1])
    if wide := [x for x in levels if x.lanes or x.group or x.matrix]:
        yield Fault(f"axis {axis} is scanned, so it cannot lie in lanes", wide[0])
    [extent] = [a.extent.constant for a in nest.reduce_axes]
    held = len(levels) == 1 and levels[0].kind == "whole" and (extent or 0) <= levels[0].tile
    if nest.combiner_names == ["sort"] and not (held and extent is not None):
        yield Fault(f"axis {axis} is sorted, so it must be `whole` in a single tile",
                    levels[0] if levels else None)


def _recurrence_faults(nest: NestOp, schedule: Schedule) -> Iterator[Fault]:
    """A recurrence walks its axis point by point."""
    [axis] = [a.name for a in nest.reduce_axes]
    yield from (
        Fault(f"axis {axis} is that of a recurrence, so it must be a loop with a tile of 1", x)
        for x in schedule.levels if x.axis == axis and (x.kind != "loop" or x.tile != 1))


def _scatter_faults(nest: NestOp, schedule: Schedule) -> Iterator[Fault]:
    """Points that may write the same element must run one after another, or add indivisibly."""
    if nest.unordered is not None and schedule.option(ATOMIC):
        return
    names = [a.name for a in nest.reduce_axes]
    levels = [x for x in schedule.levels if x.axis in names]
    yield from (
        Fault(f"axis {x.axis} orders what is written, so it must be a loop with a tile of 1", x)
        for x in levels if x.kind != "loop" or x.tile != 1)
    if [x.axis for x in levels] != names:
        yield Fault(f"writes are ordered by the loops {format_symbols(names)}; keep them in this "
                    "order", levels[0])
