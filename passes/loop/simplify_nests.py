"""`loop-simplify-nests`: bring nests into the form that all later passes rely on.

    drop unit axes     nest (i: 1, j: n)                   ->  nest (j: n), with 0 for i
    drop idle axes     %y = sum nest (i, j, reduce k) ins(%x[i, k])
                                                       ->  %s = sum nest (i, reduce k) ins(%x[i, k])
                                                           %y = copy of %s, the same for every j
    merge equal reads  nest reads %x[e], %x[e]             ->  nest reads %x[e]

Enters: nests as lowering made them. Leaves: nests in which every axis has more than one element,
and every parallel axis of a reduction indexes an input. Fusion can create such axes and reads
again, so it applies these rules, too.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.ir import Block, Region, SSAValue

from dialects.loop import NestOp, YieldOp, extents_of, scalar_type
from dialects.strata.types import tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.base import StrataContext, StrataPass
from passes.rewrites.loop.nests import (
    carry,
    has_calls,
    index_exprs,
    reads_of,
    result_types,
    substitute_axes,
    without_equal_reads,
)
from passes.rewriting import Rewriter, rewrite


class LoopSimplifyNests(StrataPass):
    """Drop unit axes, and axes along which every result of a reduction is the same."""

    name = "loop-simplify-nests"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        rewrite(module, {NestOp: SIMPLER}, context)


def drop_unit_axes(nest: NestOp, at: Rewriter) -> list[SSAValue] | None:
    """An axis of extent 1 is the index 0; a reduction over nothing but unit axes just stores."""
    unit = {a.name: 0 for a in nest.axes if a.extent.constant == 1}
    if not unit:
        return None
    kept = [a for a in nest.axes if a.name not in unit]
    new = substitute_axes(nest, kept, unit)
    if nest.is_reduction and not new.reduce_axes:
        new.properties["combiners"] = ArrayAttr([StringAttr("none")] * len(new.results))
    return list(at.insert(new).results)


def drop_idle_axes(nest: NestOp, at: Rewriter) -> list[SSAValue] | None:
    """Compute a reduction once if it is the same along an axis, and repeat its result."""
    if nest.is_elementwise or len(nest.results) != 1 or nest.into or nest.is_scan:
        return None
    named = [e for read in reads_of(nest) for e in read.map] + index_exprs(nest)
    used = {symbol for expr in named for symbol in expr.symbols}
    idle = {a.name for a in nest.axes if not a.reduce and a.name not in used}
    if not idle or has_calls(nest.output_maps[0]):
        return None
    once = _without_axes(nest, idle)
    at.insert(once)
    point = once.output_maps[0]
    block = Block(arg_types=[scalar_type(once.results[0])])
    block.add_op(YieldOp.of(block.args[0]))
    repeat = NestOp.of([a for a in nest.axes if not a.reduce], once.results, [point],
                       result_types(nest), nest.output_maps, body=Region(block))
    return list(at.insert(carry(nest, repeat)).results)


def _without_axes(nest: NestOp, names: set[Symbol]) -> NestOp:
    """The nest of one result without the given axes, which only the result's map names.

    A dim of the result that mixes such axes with others is replaced by one dim per other axis.
    """
    [result], extents = result_types(nest), extents_of(nest.axes)
    dims: list[tuple[Expr, Expr]] = []
    for expr, size in zip(nest.output_maps[0], result.shape, strict=True):
        if expr.symbols & names:
            others = [a.name for a in nest.axes if a.name in expr.symbols - names]
            dims += [(Expr.symbol(n), extents[n]) for n in others]
        else:
            dims.append((expr, size))
    return NestOp.of(
        [a for a in nest.axes if a.name not in names], list(nest.inputs), nest.input_maps,
        [tensor(result.element, [size for _, size in dims])], [[expr for expr, _ in dims]],
        combiners=nest.combiner_names, pads=nest.pad_values, body=nest.body.clone())


def merge_equal_reads(nest: NestOp, at: Rewriter) -> list[SSAValue] | None:
    """Read an element once, even when the operator names it twice: x * x."""
    reads = reads_of(nest)
    keys = [r.key() for r in reads[int(nest.is_recurrence):]]  # the first is read once only
    if len(set(keys)) == len(keys):
        return None
    return list(at.insert(without_equal_reads(nest)).results)


SIMPLER = [drop_unit_axes, drop_idle_axes, merge_equal_reads]
