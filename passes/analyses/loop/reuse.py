"""Which values a program stores in private memory instead of recomputing (`keep` of a schedule).

    %e = nest (i, j) ins(%x[i, j]) {exp}      not kept: the loop of %l computes it, and so does the
    %l = nest (i, reduce j) ins(%e[i, j])     loop of %y, which has to wait for %l
    %y = nest (i, j) ins(%e[i, j], %l[i])     kept: computed in the first loop, read in the second

Cheap values are recomputed, because an operand must be loaded in either case. The work of a value
is the number of operations that compute it, including those of its inputs that are not kept
themselves.
"""

from __future__ import annotations

from collections.abc import Collection

from xdsl.dialects import arith, math
from xdsl.ir import Operation, SSAValue

from dialects.loop import KernelOp, NestOp
from dialects.strata.schedule import Schedule
from dialects.strata.schedule_options import KEEP
from passes.analyses.loop.private import private_values
from passes.rewrites.loop.nests import plain_axes

_FUNCTION_WORK, _DIVISION_WORK = 16, 8
"""The cost of a transcendental function, and of a division or root; all else costs 1."""
_SIMPLE = (math.AbsFOp, math.AbsIOp, math.CeilOp, math.FloorOp, math.TruncOp, math.RoundOp,
           math.RoundEvenOp, math.FmaOp, math.CopySignOp)
_DIVISIONS = (arith.DivfOp, math.SqrtOp, math.RsqrtOp)


def kept_values(kernel: KernelOp, schedule: Schedule) -> list[SSAValue]:
    """Values with private memory, in order: those read elsewhere and those that `keep` adds."""
    least = schedule.option(KEEP)
    chosen = {*private_values(kernel), *(repeated_values(kernel, least) if least else ())}
    return [r for nest in kernel.nests for r in nest.results if r in chosen]


def repeated_values(kernel: KernelOp, least: int) -> list[SSAValue]:
    """Values of at least `least` operations that successive loops would compute again."""
    kept: list[SSAValue] = []
    for nest in reversed(kernel.nests):
        value = nest.results[0]
        if _may_be_kept(nest) and value not in kernel.yielded and _work(nest, kept) >= least and (
                _is_repeated(kernel, value, kept)):
            kept.append(value)
    return kept


def _may_be_kept(nest: NestOp) -> bool:
    return (nest.is_elementwise and not nest.is_scatter and len(nest.results) == 1
            and plain_axes(nest.output_maps[0]) is not None)


def _is_repeated(kernel: KernelOp, value: SSAValue, kept: Collection[SSAValue]) -> bool:
    """Whether a reduction over the value and a nest that needs its result both compute it."""
    users = [n for n in kernel.nests if value in _computed_in(n, kept)]
    assert isinstance(value.owner, NestOp)
    axes = {a.name for a in value.owner.axes}
    sums = [n for n in users if axes & {a.name for a in n.reduce_axes}]
    return any(s.results[0] in _sources(n) for s in sums for n in users if n is not s)


def _computed_in(nest: NestOp, kept: Collection[SSAValue]) -> set[SSAValue]:
    """Values of elementwise nests that a nest needs as tiles and that are not in memory."""
    found: set[SSAValue] = set()
    todo = list(nest.inputs)
    while todo:
        value = todo.pop()
        if value in found or value in kept or not isinstance(value.owner, NestOp):
            continue
        if value.owner.is_elementwise:
            found.add(value)
            todo += value.owner.inputs
    return found


def read_values(nest: NestOp, kept: Collection[SSAValue]) -> set[SSAValue]:
    """Values that a nest reads, also through elementwise nests that it computes again."""
    makers = [v.owner for v in _computed_in(nest, kept)]
    return {*nest.inputs, *(v for n in makers if isinstance(n, NestOp) for v in n.inputs)}


def _sources(nest: NestOp) -> set[SSAValue]:
    """All values that a nest's results depend on."""
    found: set[SSAValue] = set()
    todo = list(nest.inputs)
    while todo:
        value = todo.pop()
        if value not in found and isinstance(value.owner, NestOp):
            todo += value.owner.inputs
        found.add(value)
    return found


def _work(nest: NestOp, kept: Collection[SSAValue]) -> int:
    """Operations per element, including those of the values that it needs computed."""
    makers = {v.owner for v in _computed_in(nest, kept)}
    return sum(body_work(n) for n in (nest, *makers) if isinstance(n, NestOp))


def body_work(nest: NestOp) -> int:
    """Operations per element of a nest's own body."""
    return sum(map(_operation_work, nest.body.block.ops))


def _operation_work(op: Operation) -> int:
    if isinstance(op, _DIVISIONS):
        return _DIVISION_WORK
    is_function = op.name.startswith("math.") and not isinstance(op, _SIMPLE)
    return _FUNCTION_WORK if is_function else 1
