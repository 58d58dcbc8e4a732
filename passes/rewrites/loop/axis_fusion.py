"""Fuse several axes of a kernel into one, with divisions in the maps; arguments do not change.

    nest (i0: 8, i1: 56, i2: 56, reduce ...) ins(%x[i0, i1, i2, ...])
    ->  nest (i0: 25088, reduce ...) ins(%x[i0 floordiv 3136, (i0 floordiv 56) mod 56, i0 mod 56])

For targets whose programs hold tiles of indices: a convolution becomes one matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence

from dialects.loop import Axis, KernelOp, NestOp
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.rewrites.loop.nests import substitute_axes


def can_fuse(kernel: KernelOp, names: Sequence[Symbol]) -> bool:
    """Whether every nest walks all of these axes or none, all parallel or all reduced, and none is
    empty."""
    wanted, extents = set(names), kernel.axes
    if any(name in extents and extents[name].constant == 0 for name in names):
        return False
    for nest in kernel.nests:
        found = [a for a in nest.axes if a.name in wanted]
        if len(found) not in (0, len(wanted)) or len({a.reduce for a in found}) > 1:
            return False
    return len(wanted) > 1


def fuse_axes(kernel: KernelOp, names: Sequence[Symbol]) -> None:
    """Replace the axes, given from the outermost in, by a single one with the first one's name."""
    extents = kernel.axes
    fused = Expr.symbol(names[0])
    total = product(extents[n] for n in names)
    values: dict[Symbol, Size] = {}
    for k, name in enumerate(names):
        part = fused // product(extents[n] for n in names[k + 1:])
        values[name] = part % extents[name] if k else part
    for nest in kernel.nests:
        if any(a.name == names[0] for a in nest.axes):
            _swap(nest, names, total, values)


def _swap(nest: NestOp, names: Sequence[Symbol], total: Expr, values: dict[Symbol, Size]) -> None:
    axes = [Axis(a.name, total if a.name == names[0] else a.extent, a.reduce)
            for a in nest.axes if a.name not in names[1:]]
    new = substitute_axes(nest, axes, values)
    block = nest.parent_block()
    assert block is not None
    block.insert_op_before(new, nest)
    for old, result in zip(nest.results, new.results, strict=True):
        old.replace_all_uses_with(result)
    nest.detach()
    nest.erase()
