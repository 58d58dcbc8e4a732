"""`loop-split-products`: split the sums of contractions that have few results (split-K).

    %y = nest (i: 16, j: 64, reduce k: 4096) ins(%a[i, k], %b[k, j]) outs(add f32[16, 64][i, j])
    ->  %p = nest (k: 4, i: 16, j: 64, reduce l: 1024)
               ins(%a[i, 1024*k + l], %b[1024*k + l, j]) outs(add f32[4, 16, 64][k, i, j])
        %y = nest (reduce k: 4, i: 16, j: 64) ins(%p[k, i, j]) outs(add f32[16, 64][i, j])

If the number of parts does not divide the axis, the last part is shorter: both factors are read as
0 beyond the end.

The parts are added in a fixed order, by the kernel that also computes what follows, such as a bias
or an activation, and are stored in the order in which that stores its result. The target chooses
the axis and the number of parts (`Rules.product_parts`), since only it knows what a program
computes and how many programs keep its machine busy.

Enters: fused nests, in their final layouts. Leaves: nests. Sums in half precision stay as they are,
because they would be rounded twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from dialects.loop import Axis, NestOp
from dialects.strata.types import bf16, f16, is_float
from dialects.symbolic.expr import Expr
from passes.analyses.loop.kinds import is_contraction
from passes.base import StrataContext, StrataPass
from passes.contract import Parts
from passes.loop.split_reductions import split_nest
from passes.rewrites.loop.nests import (
    Read,
    divided,
    plain_axes,
    reads_of,
    result_types,
    substitute_axes,
    with_reads,
)
from passes.rewriting import Rewriter, functions, rewrite


class LoopSplitProducts(StrataPass):
    """Split the sums of contractions into parts that programs compute in parallel."""

    name = "loop-split-products"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        rules = context.rules
        if rules is None:
            return

        def split(nest: NestOp, at: Rewriter) -> SSAValue | None:
            parts = rules.product_parts(nest) if _is_candidate(nest) else None
            return None if parts is None else _split(at, nest, parts)

        for func in functions(module):
            rewrite(func, {NestOp: [split]}, context)


def _is_candidate(nest: NestOp) -> bool:
    """Whether a nest is a sum of products whose order of addition may change."""
    return is_contraction(nest) and len(nest.results) == 1 and not nest.into and (
        result_types(nest)[0].element not in (f16, bf16))


def _split(at: Rewriter, nest: NestOp, parts: Parts) -> SSAValue:
    axis = next(a for a in nest.reduce_axes if a.name == parts.axis)
    whole = not parts.size or axis.extent.constant == parts.count * parts.size
    parted = divided(nest, axis, parts.count) if whole else _unevenly_divided(nest, axis, parts)
    return split_nest(at, parted, [parts.axis], _order_of_reader(nest))


def _unevenly_divided(nest: NestOp, axis: Axis, parts: Parts) -> NestOp:
    """The sum with an axis of both factors in equal parts that exceed it.

        nest (reduce k: 7) ins(%a[i, k], %b[k, j])
        ->  nest (reduce k: 2, reduce l: 4) ins(%a[i, 4*k + l] pad 0, %b[4*k + l, j] pad 0)
    """
    inner, size = axis.name.followed_by("_part"), Expr.of(parts.size)
    axes = [new for a in nest.axes for new in (
        (Axis(a.name, Expr.of(parts.count), True), Axis(inner, size, True)) if a == axis else (a,))]
    place = Expr.symbol(axis.name) * size + Expr.symbol(inner)
    moved = substitute_axes(nest, axes, {axis.name: place})
    element = result_types(nest)[0].element
    zero = 0.0 if is_float(element) else 0
    new = with_reads(moved, [Read(r.value, r.map, zero if r.pad is None else r.pad)
                             for r in reads_of(moved)])
    moved.erase()
    return new


def _order_of_reader(nest: NestOp) -> Sequence[int] | None:
    """The order in which an elementwise nest, the only reader, stores the dims of the result."""
    readers = [use.operation for use in nest.results[0].uses]
    reader = readers[0] if len(readers) == 1 else None
    if not isinstance(reader, NestOp) or not reader.is_elementwise:
        return None
    read = next(r for r in reads_of(reader) if r.value is nest.results[0])
    axes, stored = plain_axes(read.map), plain_axes(reader.output_maps[0])
    if axes is None or stored is None or len(axes) != len(read.map) or not {*axes} <= {*stored}:
        return None
    return sorted(range(len(axes)), key=lambda d: stored.index(axes[d]))
