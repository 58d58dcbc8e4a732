"""Grouped-query attention: query heads that share keys become the rows of a kernel without rows.

    %s = nest (h: 32, j, reduce d) ins(%q[h, d], %k[h floordiv 4, j, d])
    ->
    %s = nest (g: 8, r: 4, j, reduce d) ins(%q[4*g + r, d], %k[g, j, d])

A program then computes a group of heads with matrix products, and loads the keys and values that
they share once. When kernels are joined, only for half precision: products of f32 on a GPU would
take as many instructions as before. Targets may divide others when they prepare kernels.
"""

from __future__ import annotations

from dialects.loop import Axis, KernelOp, NestOp, fresh_axes
from dialects.strata.types import TensorType, is_half
from dialects.symbolic.expr import Call, Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.private import block_axis
from passes.analyses.loop.runs import common_rows
from passes.rewrites.loop.nests import replace_nest, substitute_axes


def share_heads(kernel: KernelOp) -> None:
    """Rewrite the nests of a kernel in place."""
    products = [n for n in kernel.nests if is_contraction(n)]
    if block_axis(kernel) is not None or not all(
            isinstance(v.type, TensorType) and is_half(v.type.element)
            for n in products for v in n.inputs):
        return
    divide_heads(kernel)


def divide_heads(kernel: KernelOp) -> None:
    """Likewise, for factors of any type."""
    products = [n for n in kernel.nests if is_contraction(n)]
    for axis in common_rows(kernel):
        size = _group_size(products[0], axis)
        if size is not None and all(_group_size(n, axis) == size for n in products):
            _divide(kernel, axis, size)
            return


def _group_size(nest: NestOp, axis: Symbol) -> int | None:
    """The number of positions along an axis that read the same part of a factor, or None."""
    sizes: set[int | None] = set()
    for map_ in nest.input_maps:
        used = [e for e in map_ if axis in e.symbols]
        if len(used) == 1 and (size := _divisor(used[0], axis)) is not None:
            sizes.add(size)
    extent = next((a.extent for a in nest.axes if a.name == axis), Expr.of(0))
    size = sizes.pop() if len(sizes) == 1 else None
    return size if size is not None and (extent % size).constant == 0 else None


def _divisor(expr: Expr, axis: Symbol) -> int | None:
    """The n of `axis floordiv n`; None for other expressions."""
    [(atoms, factor), *more] = expr.terms
    match atoms:
        case (Call("floordiv", (divided, by)),) if not more and factor == 1:
            return by.constant if divided.as_symbol == axis else None
        case _:
            return None


def _divide(kernel: KernelOp, axis: Symbol, size: int) -> None:
    """Split an axis into groups and an axis inside them."""
    inner = next(fresh_axes(kernel.axes))
    for nest in kernel.nests:
        axes = [new for a in nest.axes for new in (
            (Axis(axis, a.extent // size), Axis(inner, Expr.of(size))) if a.name == axis
            else (a,))]
        replace_nest(nest, substitute_axes(nest, axes, {
            axis: Expr.symbol(axis) * size + Expr.symbol(inner)}))
