"""The axes that are contiguous in memory, and those that all nests share, for schedule rules."""

from __future__ import annotations

from collections.abc import Sequence

from dialects.loop import Axis, KernelOp, NestOp
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.rewrites.loop.concatenations import is_selected_factor
from passes.rewrites.loop.nests import has_calls


def common_rows(kernel: KernelOp) -> list[Symbol]:
    """Axes over which every nest is parallel, so that programs may divide them. A program selects
    the factors that its products read, whatever their axes."""
    common = set(kernel.axes)
    for nest in kernel.nests:
        if not is_selected_factor(nest):
            common &= {a.name for a in nest.parallel_axes}
    return [a for a in kernel.axes if a in common]


LONG = 8
"""The number of elements from which an axis fills vectors well enough."""


def result_order(nest: NestOp) -> list[Symbol]:
    """Parallel axes in the order in which they index the first result's memory, fastest last.

    Axes within a divided index have no such order and are taken by name.
    """
    order: list[Symbol] = []
    for expr in nest.output_maps[0]:
        split = expr.linear([a.name for a in nest.parallel_axes])
        if split is None:
            order += [n for n in sorted(expr.symbols) if n not in order and any(
                a.name == n for a in nest.parallel_axes)]
            continue
        steps = sorted(split[0].items(), key=lambda item: -(item[1].constant or 1 << 60))
        order += [name for name, _ in steps if name not in order]
    return order


def memory_order(nest: NestOp, names: Sequence[Symbol]) -> list[Symbol]:
    """Axes in memory order of the input that most of them index, slowest first."""
    wanted = set(names)
    map_ = max(nest.input_maps, key=lambda m: sum(len(e.symbols & wanted) for e in m), default=())
    place = {s: d for d, e in reversed(list(enumerate(map_))) for s in e.symbols}
    return sorted(names, key=lambda a: place.get(a, len(map_)))


def contiguous_axes(kernel: KernelOp) -> list[Symbol]:
    """Axes that are contiguous in some reference, the most useful first.

    Axes of at least LONG elements come first, then those of more references. A result counts twice
    as much as an input, but less than one along a reduction, which reads more than it stores.
    Results of a reduction that only other nests read are not in memory and do not count, nor do
    those of elements in a kernel that reduces nothing. Nor do nests that compute a number for each
    row of another nest's elements: they touch little.
    """
    score: dict[Symbol, int] = {}
    maps_only = all(n.is_elementwise for n in kernel.nests)
    passed_on = {v for n in kernel.nests if n.is_reduction or maps_only
                 for v in n.results} - {*kernel.yielded}
    for nest in _largest(kernel.nests):
        stored = 1 if nest.is_reduction else 2
        values = [*nest.inputs, *nest.results]
        maps = [*((m, _reads(nest, m)) for m in nest.input_maps),
                *((m, stored) for m in nest.output_maps)]
        weighted = [x for v, x in zip(values, maps, strict=True) if v not in passed_on]
        for map_, weight in weighted:
            for name in running_axis(map_, nest.axes):
                score[name] = score.get(name, 0) + weight
    extents = kernel.axes
    names = [n for n in score if extents[n].constant != 1]
    order = list(extents)
    return sorted(names, key=lambda n: (
        -min(extents[n].constant or LONG, LONG), -score[n], order.index(n)))


def _reads(nest: NestOp, map_: Sequence[Expr]) -> int:
    """How much an input counts: what a reduction reads once for each row counts like any other."""
    reduce = {a.name for a in nest.reduce_axes}
    return 4 if any(reduce & e.symbols for e in map_) else 1


def _largest(nests: Sequence[NestOp]) -> list[NestOp]:
    """The nests whose axes are not a part of the axes of another nest's elements."""
    elements = [frozenset(a.name for a in n.parallel_axes) for n in nests]
    return [n for n in nests if not any({a.name for a in n.axes} < other for other in elements)]


def running_axis(map_: Sequence[Expr], axes: Sequence[Axis]) -> list[Symbol]:
    """The axes with step 1 in the last dim of a reference."""
    names = {a.name for a in axes}
    if not map_ or has_calls(map_[-1:]):
        return []
    split = map_[-1].linear(names)
    return [n for n, step in split[0].items() if step.constant == 1] if split else []
