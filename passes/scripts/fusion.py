"""`fuse i0, i1` of two axes: rewrite a kernel so that one axis walks the positions of both.

    nest (i0: 8, i1: 56) ins(%x[i0, i1])  ->  nest (i0: 448) ins(%x[i0 floordiv 56, i0 mod 56])

All other steps transform a schedule. This one changes the kernel, so these steps come first in a
script, and they are applied before the script asks for the schedule that it begins with. The fused
axis keeps the name of the outer one. The schedule records the fusion (`Schedule.fused`), so that a
script that is printed from it begins with the same steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from dialects.loop import KernelOp, NestOp
from dialects.strata.types import format_symbols
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.private import is_elsewhere, reads_in
from passes.rewrites.loop.axis_fusion import can_fuse, fuse_axes
from passes.scripts.place import StepError

Fusion = tuple[Symbol, Symbol]
"""An axis, and the one that is fused into it."""


def fuse(kernel: KernelOp, fusion: Fusion) -> None:
    """Fuse two axes of a kernel. Raises StepError, and leaves the kernel unchanged, if a nest does
    not walk them as if they were one."""
    fault = _fault(kernel, *fusion)
    if fault is not None:
        raise StepError(fault)
    fuse_axes(kernel, fusion)


def _fault(kernel: KernelOp, outer: Symbol, inner: Symbol) -> str | None:
    """Why two axes cannot be fused; None if they can."""
    for axis in (outer, inner):
        if axis not in kernel.axes:
            return f"there is no axis {axis}; there are: {format_symbols(kernel.axes)}"
    for nest in kernel.nests:
        if fault := _nest_fault(nest, outer, inner):
            return fault
    assert can_fuse(kernel, [outer, inner]), "the faults of nests cover it"
    if _read_elsewhere(kernel, {outer, inner}):
        return (f"a nest reads a value that is computed along {outer} and {inner} at another "
                "position of them")
    return None


def _nest_fault(nest: NestOp, outer: Symbol, inner: Symbol) -> str | None:
    axes = {a.name: a for a in nest.axes}
    found = [a for a in (outer, inner) if a in axes]
    if not found:
        return None
    walked = f"a nest over {format_symbols(axes)}"
    if len(found) == 1:
        return f"{walked} has only {found[0]} of the two"
    if axes[outer].reduce != axes[inner].reduce:
        reduced = outer if axes[outer].reduce else inner
        return f"{walked} reduces along {reduced}, but not along the other one"
    order: Sequence[Symbol] = [*axes]
    if order.index(inner) != order.index(outer) + 1:
        return f"in {walked}, {inner} does not follow directly after {outer}"
    return None


def _read_elsewhere(kernel: KernelOp, axes: set[Symbol]) -> bool:
    """Whether a nest reads a value at another position of some axes than it is computed at."""
    for nest in kernel.nests:
        for result, stored in zip(nest.results, nest.output_maps, strict=True):
            along = any(e.symbols & axes for e in stored)
            if along and any(is_elsewhere(read, stored) for read in reads_in(kernel, result)):
                return True
    return False
