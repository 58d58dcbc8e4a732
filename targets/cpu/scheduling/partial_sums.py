"""Long sums on the CPU become sums of partial sums, through levels of a schedule marked `partial`.

A register that accumulates n products has the rounding errors of n additions. Libraries add a block
of some hundred products at a time, and lose fewer digits. `add_partial_levels` splits the loops of
a sum in the same way, wherever one register would take clearly more additions than PRODUCT or
PLAIN, or more than the nest asks for (`parts`):

    loop k tile 1      ->  loop k tile 64 partial, loop k tile 1            k: 4096
    loop c, loop w     ->  loop c tile 16 partial, loop c, loop w           c: 512, w: 3

This costs one more addition per register and partial sum. Products fill the registers, so that
their totals go through memory, and get longer parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Level, Schedule
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.loop_to_block.partial import sums_floats

PRODUCT, PLAIN = 64, 32
"""Consecutive additions of a partial sum, if its nest does not set another number: of products that
reuse both factors, as in libraries of convolutions, and of all other sums, which PyTorch adds up in
some levels of its own. Parts of 128 products take as long, and are 1.4 times as far from the sum.
"""
TOLERANCE = 1.5
"""How many times that number is still accepted."""


def add_partial_levels(kernel: KernelOp, schedule: Schedule) -> Schedule:
    """The schedule with partial levels in the loops of long sums of floats."""
    sums = [_Sum({a.name for a in n.reduce_axes} - schedule.matrix, _part(n))
            for n in kernel.nests if sums_floats(n)]
    levels = list(schedule.levels)
    for chain in reversed(_chains(levels, [s.axes for s in sums])):
        loops = levels[chain]
        part = min(s.part for s in sums if s.axes.issuperset(x.axis for x in loops))
        levels[chain] = _cut(loops, kernel, part)
    return replace(schedule, levels=tuple(levels))


class _Sum(NamedTuple):
    """The axes that a nest sums over, and the number of additions of a partial sum."""

    axes: set[Symbol]
    part: int


def _part(nest: NestOp) -> int:
    """Additions of a partial sum of a nest."""
    if nest.part is not None:
        return nest.part.data
    return PRODUCT if _is_product(nest) else PLAIN


def _is_product(nest: NestOp) -> bool:
    """Whether two factors are reused along axes of their own: a tile fills the registers."""
    parallel = {a.name for a in nest.parallel_axes if a.extent.constant != 1}
    reused = {frozenset(parallel - used.symbols) for used in nest.maps.data}
    return is_contraction(nest) and len(reused - {frozenset[Symbol]()}) >= 2


def _chains(levels: Sequence[Level], sums: Sequence[set[Symbol]]) -> list[slice]:
    """Runs of nested loops that belong to one sum."""
    found: list[slice] = []
    for k, level in enumerate(levels):
        if level.kind != "loop" or not any(level.axis in axes for axes in sums):
            continue
        follows = bool(found) and found[-1].stop == k
        before = {x.axis for x in levels[found[-1]]} if follows else set[Symbol]()
        if before and any({level.axis, *before} <= axes for axes in sums):
            found[-1] = slice(found[-1].start, k + 1)
        else:
            found.append(slice(k, k + 1))
    return found


def _cut(levels: Sequence[Level], kernel: KernelOp, wanted: int) -> list[Level]:
    """The loops of a sum with partial levels, inserted from the innermost loop outwards."""
    made, inner = list[Level](), 1
    for level in reversed(levels):
        made.insert(0, level)
        for part in _parts(kernel.axes[level.axis].ceildiv(level.tile), inner, wanted):
            made.insert(0, Level("loop", level.axis, part * made[0].tile, partial=True))
            inner = 1
        inner *= kernel.axes[level.axis].ceildiv(made[0].tile).constant or 1
    return made


def _parts(trips: Expr, inner: int, wanted: int) -> Iterator[int]:
    """Iterations of a loop per partial sum, then partial sums per larger one, as needed."""
    count = trips.constant
    if count is None:
        yield max(1, wanted // inner)
        return
    while count * inner > TOLERANCE * wanted:
        part = _even(count, max(1, wanted // inner))
        yield part
        count, inner = -(-count // part), 1


def _even(count: int, wanted: int) -> int:
    """About the wanted number: a divisor, if there is one from half to one and a half times it."""
    near = range(max(1, wanted // 2), min(count, wanted * 3 // 2) + 1)
    fitting = [n for n in near if count % n == 0]
    return min(fitting, key=lambda n: abs(n - wanted), default=min(count, wanted))
