"""Promotion: sums of products of narrow floats in f32, where instructions sum with fewer bits.

A loop that adds such products to a carried sum accumulates them in a separate partial sum. After
every `promote` products it adds the partial sum to the total:

    for k in tl.range(0, 4096, 128):
        part = tl.dot(x, y, part)
        if k % 512 == 384:
            total = total + part
            part = tl.full([128, 128], 0.0, tl.float32)
    total = total + part

If one step already has that many products, `tl.dot` does this itself (`max_num_imprecise_acc`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dialects.block import DotOp, ForOp
from dialects.block.programs import tile_type
from dialects.strata import types as t
from targets.cuda.emit.context import Context
from targets.cuda.emit.values import Value, typed_number


@dataclass(frozen=True)
class PartialSum:
    """The variables of a sum and of its partial sum, and the initial value of the latter."""

    total: str
    part: str
    zero: str


def begin_partial_sums(
    op: ForOp, carried: Sequence[str], context: Context
) -> list[PartialSum]:
    """Before the loop: set the partial sums to zero. In the loop they replace the carried sums."""
    found: list[PartialSum] = []
    for argument, name, yielded in zip(op.body.block.args[1:], carried, op.yielded, strict=True):
        dot = yielded.owner
        if isinstance(dot, DotOp) and dot.c is argument and _is_promoted(op, context):
            tile = tile_type(dot.result)
            part = context.writer.fresh("part")
            sum_ = PartialSum(name, part, typed_number(0.0, t.f32, tile.shape))
            context.writer.line(f"{part} = {sum_.zero}")
            context.values[argument] = Value(part, tile.shape)
            found.append(sum_)
    return found


def _is_promoted(op: ForOp, context: Context) -> bool:
    """Whether a partial sum takes several steps of the loop from 0 on, and the loop is longer."""
    step, upper = op.step.data.constant or 1, op.upper.data.constant
    several = context.promote > step and context.promote % step == 0
    return several and op.lower.data.constant == 0 and (upper is None or upper > context.promote)


def add_partial_sums(
    sums: Sequence[PartialSum], op: ForOp, counter: str, context: Context
) -> None:
    """At the end of the loop's body: after every `promote` products, add the partial sums."""
    if not sums:
        return
    last = context.promote - (op.step.data.constant or 1)
    context.writer.line(f"if {counter} % {context.promote} == {last}:")
    with context.writer.indented():
        for sum_ in sums:
            context.writer.line(f"{sum_.total} = {sum_.total} + {sum_.part}")
            context.writer.line(f"{sum_.part} = {sum_.zero}")


def end_partial_sums(sums: Sequence[PartialSum], context: Context) -> None:
    """After the loop: add what is left in the partial sums."""
    for sum_ in sums:
        context.writer.line(f"{sum_.total} = {sum_.total} + {sum_.part}")
