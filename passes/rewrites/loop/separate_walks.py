"""Rename axes that a program must walk again: only nests with the same axis name share a loop.

    %m = nest (i, reduce j) ins(%s[i, j])       %e = nest (i, j) ins(%s[i, j], %m[i])
    ->                                          %e = nest (i, j1) ins(%s[i, j1], %m[i])
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from dialects.loop import KernelOp, NestOp, fresh_axes
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.rewrites.loop.nests import rename_axes, replace_nest


def separate_walks(kernel: KernelOp, rows: set[Symbol]) -> None:
    """Give an axis a new name wherever it must be walked again."""
    current = {name: name for name in kernel.axes}
    names = fresh_axes(current)
    for nest in kernel.nests:
        walked: dict[Symbol, Symbol] = {}
        for axis in nest.axes:
            if axis.name in rows:
                continue
            if axis.reduce and is_contraction(nest):
                walked[axis.name] = next(names)
                continue
            if _needs_reduction(nest, current[axis.name]):
                current[axis.name] = next(names)
            walked[axis.name] = current[axis.name]
        replace_nest(nest, rename_axes(nest, walked))


def _needs_reduction(nest: NestOp, axis: Symbol) -> bool:
    """Whether a nest depends, directly or indirectly, on a reduction over an axis."""
    todo, seen = list(nest.inputs), set[SSAValue]()
    while todo:
        value = todo.pop()
        if value in seen or not isinstance(value.owner, NestOp):
            continue
        seen.add(value)
        if any(a.name == axis for a in value.owner.reduce_axes):
            return True
        todo += value.owner.inputs
    return False
