"""Nests that find between which places of the hidden axis rows see anything.

    %f = nest (i, reduce j) {select(c, j, the largest number)} outs(min)     the first place
    %l = nest (i, reduce j) {select(c, j + 1, 0)} outs(max)                  one after the last

Two searches consist of them. A program that searches for itself asks all conditions of the mask for
each of its rows (`add_search`). A kernel of its own asks what may be visible to blocks of rows
(`passes.rewrites.kernels.visible`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from dialects.loop import Axis, IndexOp, KernelOp, NestOp, YieldOp
from dialects.strata.types import i32, tensor
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.analyses.loop.seen import Condition, Derivation, Seen
from passes.rewrites.loop.nests import Read

SEARCHED = Symbol.axis("seen")
"""The axis along which a program searches. No other nest has it."""


# ---------------------------------------------------------------------- the search of a program
def add_search(
    kernel: KernelOp, seen: Seen, alike: Collection[Symbol] = ()
) -> tuple[NestOp, NestOp]:
    """Add the two nests before all others. Both sum over `SEARCHED`. `alike`: the axes of rows that
    all see the same, for which they look once."""
    rows = [a for a in seen.scores.axes if a.name not in (seen.axis, *alike)]

    def made() -> Question:
        reads, block, copies = excerpt(
            seen.derivation, {seen.axis: Expr.symbol(SEARCHED)})
        return Question(reads, block, [
            Condition(copies[c.value], c.holds) for c in seen.conditions])

    first, last = places(seen, rows, SEARCHED, made)
    kernel.body.block.insert_ops_before([first, last], kernel.nests[0])
    return first, last


# ---------------------------------------------------------------------- nests
class Excerpt(NamedTuple):
    """Values of a nest's body as a body of its own: what that reads, and the copies of values."""

    reads: list[Read]
    block: Block
    copies: dict[SSAValue, SSAValue]


def excerpt(derived: Derivation, at: Mapping[Symbol, Size]) -> Excerpt:
    """What computes values of a nest's body, at other places of its axes. No read is gathered."""
    reads = [Read(r.value, tuple(e.substitute(at) for e in r.map), r.pad) for r in derived.reads]
    block = Block(arg_types=[a.type for a in derived.arguments])
    copies: dict[SSAValue, SSAValue] = dict(zip(derived.arguments, block.args, strict=True))
    for op in derived.operations:
        copy: Operation = IndexOp.of(op.expr.data.substitute(at)) if isinstance(op, IndexOp) else (
            op.clone(copies) if op.regions else op.clone_without_regions(copies))
        copies |= zip(op.results, copy.results, strict=True)
        block.add_op(copy)
    return Excerpt(reads, block, copies)


class Question(NamedTuple):
    """A body that tells whether rows see a place, if all conditions are met, and what it reads."""

    reads: Sequence[Read]
    block: Block
    conditions: Sequence[Condition]


def places(
    seen: Seen, rows: Sequence[Axis], along: Symbol, made: Callable[[], Question]
) -> tuple[NestOp, NestOp]:
    """The first place that each row sees and one after the last, as i32; the largest number and 0
    for a row that sees nothing. `made`: makes what each of both nests asks."""
    place = Expr.symbol(along)
    first = _place(seen, rows, along, made(), "min", place, int(np.iinfo(np.int32).max))
    return first, _place(seen, rows, along, made(), "max", place + 1, 0)


def _place(
    seen: Seen, rows: Sequence[Axis], along: Symbol, asked: Question, combiner: str, place: Expr,
    otherwise: int,
) -> NestOp:
    index = IndexOp.of(place)
    number = arith.IndexCastOp(index.result, i32)
    other = arith.ConstantOp(IntegerAttr(otherwise, i32))
    asked.block.add_ops([index, number, other])
    chosen: SSAValue = number.result
    for condition in asked.conditions:
        sides = (chosen, other.result)
        choice = arith.SelectOp(condition.value, *(
            sides if condition.holds else sides[::-1]))
        asked.block.add_op(choice)
        chosen = choice.result
    extent = next(a.extent for a in seen.scores.axes if a.name == seen.axis)
    axes = [*rows, Axis(along, extent, True)]
    return reduction(seen, axes, asked.reads, asked.block, chosen, combiner, i32)


def reduction(
    seen: Seen, axes: Sequence[Axis], reads: Sequence[Read], block: Block, value: SSAValue,
    combiner: str, element: Attribute,
) -> NestOp:
    """A nest that reduces a value of a body for each row, and belongs to the nodes of the scores.
    """
    block.add_op(YieldOp.of(value))
    for op in block.ops:
        set_location(op, seen.scores)
    rows = [a for a in axes if not a.reduce]
    nest = NestOp.of(
        axes, [r.value for r in reads], [r.map for r in reads],
        [tensor(element, [a.extent for a in rows])], [[Expr.symbol(a.name) for a in rows]],
        combiners=[combiner], pads=[r.pad for r in reads], body=Region(block))
    set_location(nest, seen.scores)
    return nest
