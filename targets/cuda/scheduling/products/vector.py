"""Schedules of a matrix times a vector, which memory bandwidth bounds: each element is used once.

A program reads a few thousand neighbouring elements of the matrix at a time, in vectors of 16
bytes. If sums run along the matrix's memory, these are long pieces of a few columns. If columns do,
a program has few neighbouring columns, so that there are enough programs, and takes as much of the
sum at once as its lanes can hold. Otherwise the sum is split (`parts.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Level, Schedule
from dialects.symbolic.symbol import Symbol
from passes.rewrites.loop.nests import data_inputs
from targets.cuda.machine import Machine
from targets.cuda.scheduling.roles import Roles, factor_width, memory_axis
from targets.cuda.scheduling.tiles import finish, power, width_of

BYTES = 8192
"""What a program of four warps reads of the matrix at a time: four vectors per lane."""
COLUMNS, ALONE = 64, 32
"""The bytes of neighbouring columns that a program has: what the memory gives at once (two sectors
of a cache line); and, where it has all of the sums, what caches give at least (one)."""
WIDE = 16
"""Warps for sums of several steps, where more loads in flight keep memory busy."""


def vector_products(
    kernel: KernelOp, nest: NestOp, roles: Roles, machine: Machine
) -> Iterator[Schedule]:
    """Schedules of such a kernel, most promising first; none for other kernels."""
    along = matrix_direction(nest, roles)
    if along is None:
        return
    matrix, axis = along
    width = width_of(nest.inputs[matrix])
    elements, held = BYTES // width, 4 * BYTES // ALONE
    whole = width * prod(extent.constant or 0 for extent in kernel.axes.values())
    more = {"stream": 1} if whole > machine.fitted.read_once * machine.cache else {}
    warps, factors, bytes_ = (4, 8, 2), (1, 2, 4), COLUMNS
    if axis not in roles.reduce and not roles.batch:
        in_steps = (kernel.axes[roles.reduce[0]].constant or held + 1) > held
        is_wide = (kernel.axes[axis].constant or 0) * width * 2 >= COLUMNS * machine.multiprocessors
        if in_steps:
            warps, bytes_ = (WIDE, 8, 4), ALONE
        elif is_wide:
            warps, factors = (8, WIDE, 4), (4, 2, 1)
        else:
            warps, factors, bytes_ = (8, WIDE, 4), (2, 1, 4), ALONE
    for count in warps:
        for factor in factors:
            size = elements * count * factor // 4
            yield _schedule(kernel, nest, roles, axis, size, bytes_, warps=count, **more)


def matrix_direction(nest: NestOp, roles: Roles) -> tuple[int, Symbol] | None:
    """Which input is the matrix, and the axis along its memory: the column or the summed axis.

    None unless it multiplies a matrix and a vector in their own layouts. The matrix may be
    gathered from several, such as the matrices of experts, and its elements may be codes, with
    scales by column or by block.
    """
    axes = roles.columns or roles.rows
    if (roles.columns and roles.rows) or len(axes) != 1 or len(roles.reduce) != 1:
        return None
    factors = data_inputs(nest)
    found = [k for k in factors if any(axes[0] in e.symbols for e in nest.input_maps[k])]
    has_vector = len(factors) > len(found)
    if len(found) > 1:  # scales have fewer elements than codes
        both = {axes[0], roles.reduce[0]}
        found = [k for k in found if both <= {e.as_symbol for e in nest.input_maps[k]}]
    if not has_vector or len(found) != 1 or any(p is not None for p in nest.pad_values):
        return None
    along = memory_axis(nest, found[0])
    return (found[0], along) if along in (*axes, *roles.reduce) else None


def _schedule(
    kernel: KernelOp, nest: NestOp, roles: Roles, along: Symbol, elements: int, bytes_: int,
    **options: int,
) -> Schedule:
    """`elements` of the matrix at a time, mostly along its memory, or `bytes_` of columns."""
    [column], [summed] = roles.columns or roles.rows, roles.reduce
    extents, width = kernel.axes, factor_width(nest)
    if along == summed:
        depth = power(extents[summed], elements)
        columns = power(extents[column], max(1, elements // depth))
    else:
        columns = power(extents[column], bytes_ // width)
        depth = power(extents[summed], max(1, elements // columns))
    return finish(kernel, [*_single(roles.batch), Level("grid", column, columns),
                           Level("loop", summed, depth)], tails="mask", **options)


def _single(names: Sequence[Symbol]) -> list[Level]:
    return [Level("grid", name) for name in names]
