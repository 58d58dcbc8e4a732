"""Selections by comparisons of indices, put in branches, because they matter in few tiles.

    %y = block.map (%x, %j, %i) {select(j <= i, x, -inf)}
    ->  y = x
        if k + 63 > p*64:        # the last of j, the first of i
            y = tl.where(...)

The position in a last, partial tile is compared with the end in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.arith import CMPI_COMPARISON_OPERATIONS
from xdsl.ir import BlockArgument, Operation, SSAValue

from dialects.block import IndexOp, MapOp, ValidOp
from dialects.block.programs import tile_type
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from targets.cuda.emit.context import Context
from targets.cuda.emit.values import Value

_CASTS = (arith.IndexCastOp, arith.ExtSIOp)


@dataclass(frozen=True)
class Choice:
    """A selection that yields `usual` unless `small < large` (or `<=`) fails for some positions.

    For `block.valid`, the larger side is the end.
    """

    usual: SSAValue
    small: IndexOp | ValidOp
    large: IndexOp | ValidOp
    equal: bool


def choice_of(op: MapOp, value: SSAValue) -> Choice | None:
    """The selection that yields a map's value, if its other side is a constant; else None."""
    choice = value.owner
    if not isinstance(choice, arith.SelectOp):
        return None
    valid = _tile(op, choice.cond)
    if isinstance(valid, ValidOp) and isinstance(choice.rhs.owner, arith.ConstantOp):
        return Choice(choice.lhs, valid, valid, False)
    if not isinstance(choice.cond.owner, arith.CmpiOp):
        return None
    compare = choice.cond.owner
    left, right = (_index(op, v) for v in (compare.lhs, compare.rhs))
    name = CMPI_COMPARISON_OPERATIONS[compare.predicate.value.data]
    if left is None or right is None or name not in ("slt", "sle", "sgt", "sge"):
        return None
    grows = name in ("slt", "sle")
    if isinstance(choice.rhs.owner, arith.ConstantOp):
        pair = (left, right) if grows else (right, left)
        return Choice(choice.lhs, *pair, name in ("sle", "sge"))
    if isinstance(choice.lhs.owner, arith.ConstantOp):  # the opposite keeps
        pair = (right, left) if grows else (left, right)
        return Choice(choice.rhs, *pair, name in ("slt", "sgt"))
    return None


def unrounded(value: SSAValue) -> SSAValue:
    """The value that is rounded to a narrower float, or the value itself."""
    return value.owner.operands[0] if isinstance(value.owner, arith.TruncFOp) else value


def only_for(choices: Mapping[SSAValue, Choice]) -> list[Operation]:
    """The operations of a body that nothing needs but these selections, in order; what is selected
    usually is not among them."""
    wanted = {unrounded(v).owner for v in choices} | {v.owner for v in choices}
    usual = {choice.usual for choice in choices.values()}
    body = next((op.parent_block() for op in wanted if isinstance(op, Operation)), None)
    for op in reversed(list(body.ops) if body is not None else []):
        users = {use.operation for r in op.results for use in r.uses}
        if users and users <= wanted and not usual & {*op.results}:
            wanted.add(op)
    return [op for op in body.ops if op in wanted] if body is not None else []


def _index(op: MapOp, value: SSAValue) -> IndexOp | None:
    """The tile of indices to which a value of a map's body belongs; None if there is none."""
    while isinstance(value.owner, _CASTS):
        value = value.owner.operands[0]
    tile = _tile(op, value)
    return tile if isinstance(tile, IndexOp) and not any(
        dims.data for dims in tile.index_dims.data) else None


def _tile(op: MapOp, value: SSAValue) -> object:
    """The operation that makes the tile to which a value of a map's body belongs; else None."""
    return op.inputs[value.index].owner if isinstance(value, BlockArgument) else None


def branch_off(
    result: SSAValue, choice: Choice, whole: Callable[[], Value], context: Context
) -> None:
    """Give a result its usual value, and in a branch the whole selection where it matters.

    `whole` emits that, with its comparison: what is computed before the branch would be computed by
    all tiles.
    """
    last = _end(choice.small, choice.small.expr.data, context, last=True)
    large = choice.large.bound if isinstance(choice.large, ValidOp) else choice.large.expr
    first = _end(choice.large, large.data, context, last=False)
    name = context.values[result].text
    own = context.writer.fresh(f"chosen_{name}")
    context.writer.line(f"{own} = {name}")
    context.writer.line(f"if {last.text} {'>' if choice.equal else '>='} {first.text}:")
    with context.writer.indented():
        context.writer.line(f"{own} = {whole().text}")
    context.values[result] = Value(own, context.values[result].shape)


def _end(op: IndexOp | ValidOp, expr: Expr, context: Context, *, last: bool) -> Value:
    """The largest or smallest value of an expression over the positions of a tile."""
    shape = tile_type(op.result).shape
    split = expr.linear([Symbol.place(d) for d in range(len(shape))])
    assert split is not None, "positions in a tile are added to indices"
    ends = {name: shape[name.number] - 1 if ((step.constant or 1) > 0) == last else 0
            for name, step in split[0].items()}
    [value] = context.indices([expr.substitute(ends)], (), op.indices)
    return value
