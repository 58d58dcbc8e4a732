"""Nests that find where a program's rows see something: the first place, and one after the last.

    %x = nest (i, j) {select(c, s, -inf)}
    ->  %first = nest (i, reduce n) outs(min i32) {select(c, n, the largest number)}
        %last = nest (i, reduce n) outs(max i32) {select(c, n + 1, 0)}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from dialects.loop import Axis, IndexOp, KernelOp, NestOp, YieldOp
from dialects.semantics.scalar import operations_for
from dialects.strata.types import i32, tensor
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.analyses.loop.seen import Seen
from passes.rewrites.loop.nests import Read, reads_of

AXIS = Symbol.axis("seen")


def add_places(kernel: KernelOp, seen: Seen) -> tuple[NestOp, NestOp]:
    """Add the two nests before all others. Both sum over `AXIS`, which no other nest has."""
    first = _nest(seen, "min", Expr.symbol(AXIS), int(np.iinfo(np.int32).max))
    last = _nest(seen, "max", Expr.symbol(AXIS) + 1, 0)
    kernel.body.block.insert_ops_before([first, last], kernel.nests[0])
    return first, last


class Excerpt(NamedTuple):
    """Values of a nest's body as a body of its own: what that reads, and the copies of values."""

    reads: list[Read]
    block: Block
    copies: dict[SSAValue, SSAValue]


def excerpt(nest: NestOp, values: Sequence[SSAValue], at: Mapping[Symbol, Size]) -> Excerpt:
    """What computes values of a nest's body, at other places of its axes. No read is gathered."""
    ops: list[Operation] = list(operations_for(nest.body.block, values))
    needed = {*values}.union(*(op.operands for op in ops))
    numbers = [a.index for a in nest.body.block.args if a in needed]
    reads = [reads_of(nest)[k] for k in numbers]
    reads = [Read(r.value, tuple(e.substitute(at) for e in r.map), r.pad) for r in reads]
    block = Block(arg_types=[nest.body.block.args[k].type for k in numbers])
    copies: dict[SSAValue, SSAValue] = {
        nest.body.block.args[k]: a for k, a in zip(numbers, block.args, strict=True)}
    for op in ops:
        copy: Operation = IndexOp.of(op.expr.data.substitute(at)) if isinstance(op, IndexOp) else (
            op.clone(copies) if op.regions else op.clone_without_regions(copies))
        copies |= zip(op.results, copy.results, strict=True)
        block.add_op(copy)
    return Excerpt(reads, block, copies)


def _nest(seen: Seen, combiner: str, place: Expr, otherwise: int) -> NestOp:
    """The least or the greatest place that each row sees; `otherwise` for a row that sees nothing.
    """
    scores = seen.scores
    reads, block, copies = excerpt(
        scores, [c.value for c in seen.conditions], {seen.axis: Expr.symbol(AXIS)})
    index = IndexOp.of(place)
    number = arith.IndexCastOp(index.result, i32)
    other = arith.ConstantOp(IntegerAttr(otherwise, i32))
    block.add_ops([index, number, other])
    chosen: SSAValue = number.result
    for condition in seen.conditions:
        sides = (chosen, other.result)
        choice = arith.SelectOp(copies[condition.value], *(
            sides if condition.holds else sides[::-1]))
        block.add_op(choice)
        chosen = choice.result
    block.add_op(YieldOp.of(chosen))
    rows = [a for a in scores.axes if a.name != seen.axis]
    extent = next(a.extent for a in scores.axes if a.name == seen.axis)
    nest = NestOp.of(
        [*rows, Axis(AXIS, extent, True)], [r.value for r in reads], [r.map for r in reads],
        [tensor(i32, [a.extent for a in rows])], [[Expr.symbol(a.name) for a in rows]],
        combiners=[combiner], pads=[r.pad for r in reads], body=Region(block))
    set_location(nest, scores)
    return nest
