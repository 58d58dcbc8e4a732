"""How far rows reach along an axis that their sums are online along.

    %x = nest (i, j) {select(j <= i, s, -inf)}       row i reaches to j < i + 1

What is -inf has no weight beside other scores, so a program need not walk it. Neither has a number
so low that no difference to a score leaves anything of it, if a score is certain to be there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.arith import CMPI_COMPARISON_OPERATIONS
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Operation, SSAValue

from dialects.expr import Expr
from dialects.loop import IndexOp, KernelOp, NestOp
from dialects.ranges import is_nonnegative, lower_bound
from passes.loop.online import running_maximum

LOW = -6e4
"""A score as low as that has no weight beside one that was computed: halves have no lower ones."""

_CASTS = (arith.IndexCastOp, arith.ExtSIOp, arith.TruncIOp)
_OPPOSITE = {"sle": "sgt", "sgt": "sle", "slt": "sge", "sge": "slt"}


@dataclass(frozen=True)
class Limit:
    """Scores count where axis < `bound`, an expression over axes of the rows."""

    axis: str
    bound: Expr
    chosen: dict[Operation, SSAValue]
    """The selections that this decides, in any body: what they give where scores count."""


def limit_of(kernel: KernelOp, axis: str) -> Limit | None:
    """The limit of the scores whose maximum the sums along an axis follow, if they have one."""
    maxima = {r.maximum for n in kernel.nests if (r := running_maximum(n))
              and axis in {a.name for a in n.reduce_axes}}
    if len(maxima) != 1:
        return None
    [finder] = (m.owner for m in maxima)
    assert isinstance(finder, NestOp)
    scores = finder.inputs[0].owner
    if not isinstance(scores, NestOp) or finder.yielded[0] is not finder.body.block.args[0]:
        return None
    found = [d for op in scores.body.block.ops if isinstance(op, arith.SelectOp)
             and op.result is scores.yielded[0] and (d := _decided(op, axis)) is not None]
    if not found or not _is_low(found[0], scores):
        return None
    bound = found[0].bound
    chosen: dict[Operation, SSAValue] = {
        op: d.kept for nest in kernel.nests for op in nest.body.block.ops
              if isinstance(op, arith.SelectOp) and (d := _decided(op, axis)) and d.bound == bound}
    return Limit(axis, bound, chosen)


@dataclass(frozen=True)
class _Decision:
    bound: Expr
    kept: SSAValue
    other: SSAValue


def _is_low(decision: _Decision, nest: NestOp) -> bool:
    """Whether what is behind the bound has no weight."""
    constant = decision.other.owner
    if not isinstance(constant, arith.ConstantOp) or not isinstance(constant.value, FloatAttr):
        return False
    number = constant.value.value.data
    extents = {a.name: a.extent for a in nest.axes}
    least = lower_bound(decision.bound - 1, extents)
    scored = len(nest.inputs) == 1 and least is not None and is_nonnegative(least)
    return number == -np.inf or (number <= LOW and scored)


def _decided(op: arith.SelectOp, axis: str) -> _Decision | None:
    """The bound of an axis up to which a selection gives one of its values."""
    compare = op.cond.owner
    if not isinstance(compare, arith.CmpiOp):
        return None
    name = CMPI_COMPARISON_OPERATIONS[compare.predicate.value.data]
    left, right = _index(compare.lhs), _index(compare.rhs)
    if name not in _OPPOSITE or left is None or right is None:
        return None
    bound = _bound(name, left, right, axis)
    if bound is not None:
        return _Decision(bound, op.lhs, op.rhs)
    bound = _bound(_OPPOSITE[name], left, right, axis)
    return None if bound is None else _Decision(bound, op.rhs, op.lhs)


def _bound(name: str, left: Expr, right: Expr, axis: str) -> Expr | None:
    """e, where `left name right` says axis < e; e does not decrease along any other axis."""
    room = right - left if name in ("slt", "sle") else left - right  # the axis counts if this > 0
    room = room + (1 if name in ("sle", "sge") else 0)
    split = room.linear([axis])
    if split is None or split[0].get(axis, Expr.of(0)).constant != -1:
        return None
    return split[1]


def _index(value: SSAValue) -> Expr | None:
    """The index expression that a value of a body is."""
    while isinstance(value.owner, _CASTS):
        value = value.owner.operands[0]
    return value.owner.expr.data if isinstance(value.owner, IndexOp) else None


def extremes(
    bound: Expr, tiles: Sequence[tuple[str, Expr, int]]
) -> tuple[Expr, Expr] | None:
    """The bound of the first and of the last row of a tile: (axis, where it starts, its length).

    None where it depends on a row in another way than growing with it.
    """
    names = [name for name, _, _ in tiles]
    split = bound.linear(names)
    if split is None or any((c.constant or -1) < 0 for c in split[0].values()):
        return None
    first = bound.substitute({name: start for name, start, _ in tiles})
    last = bound.substitute({name: start + (size - 1) for name, start, size in tiles})
    return first, last
