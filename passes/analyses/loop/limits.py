"""How far rows reach along the axis of their online sums (causal masks and the like).

    %x = nest (i, j) {select(j <= i, s, -inf)}       row i reaches to j < i + 1

A score of -inf has no weight, so a program need not walk it. Neither has a finite score so low that
its weight rounds to 0 next to any computed score, provided that the row certainly has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.arith import CMPI_COMPARISON_OPERATIONS
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from dialects.loop import IndexOp, KernelOp, NestOp
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import is_nonnegative, lower_bound
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.numbers import float_of
from passes.analyses.loop.online import elementwise_maker, running_maximum
from passes.rewrites.loop.nests import reads_of

LOW = -6e4
"""A score this low has no weight next to a computed one: half precision has no lower numbers."""

_CASTS = (arith.IndexCastOp, arith.ExtSIOp, arith.TruncIOp)


@dataclass(frozen=True)
class Limit:
    """Scores count where axis < `bound`, an expression over the axes of the rows."""

    axis: Symbol
    bound: Expr
    chosen: dict[Operation, SSAValue]
    """Selections in any body that the bound decides, and the value selected where scores count."""


def limit_of(kernel: KernelOp, axis: Symbol) -> Limit | None:
    """The limit of the scores whose maximum the sums along an axis follow, or None."""
    maxima = {r.maximum for n in kernel.nests if (r := running_maximum(n))
              and axis in {a.name for a in n.reduce_axes}}
    if len(maxima) != 1:
        return None
    [finder] = (m.owner for m in maxima)
    assert isinstance(finder, NestOp)
    scores = _choosing(finder)
    if scores is None or finder.yielded[0] is not finder.body.block.args[0]:
        return None
    decisions = _decisions(scores, axis)
    if not decisions:
        return None
    bound = next((d.bound for d in decisions if d.bound.symbols & kernel.axes.keys()),
                 decisions[0].bound)
    chosen: dict[Operation, SSAValue] = {
        op: d.kept for nest in kernel.nests for op in nest.body.block.ops
              if isinstance(op, arith.SelectOp) and (d := _decided(op, axis)) and d.bound == bound}
    return Limit(axis, bound, chosen)


def _choosing(nest: NestOp) -> NestOp | None:
    """The nest that computes the elements a nest reads, past products with a positive constant."""
    made = elementwise_maker(reads_of(nest)[0])
    if made is None:
        return None
    maker, value = made
    product = value.owner
    scales = isinstance(product, arith.MulfOp) and len(maker.inputs) == 1 and (
        product.lhs is maker.body.block.args[0] and (float_of(product.rhs) or 0) > 0)
    return _choosing(maker) or maker if scales else maker


@dataclass(frozen=True)
class _Decision:
    bound: Expr
    kept: SSAValue
    other: SSAValue


def _decisions(scores: NestOp, axis: Symbol) -> list[_Decision]:
    """The nested selections that give only scores without weight from their bounds on."""
    found: list[_Decision] = []
    value, alone = scores.yielded[0], True
    while isinstance(op := value.owner, arith.SelectOp):
        decision = _decided(op, axis)
        value, other = (decision.kept, decision.other) if decision else (
            (op.lhs, op.rhs) if float_of(op.lhs) is None else (op.rhs, op.lhs))
        alone = alone and decision is not None and not isinstance(value.owner, arith.SelectOp)
        if not _is_low(other, scores, decision.bound if decision and alone else None):
            break
        found += [decision] if decision else []
    return found


def _is_low(value: SSAValue, nest: NestOp, bound: Expr | None) -> bool:
    """Whether a score has no weight: -inf, or low while a score before the bound is certain."""
    number = float_of(value)
    if isinstance(value.owner, arith.AddfOp):
        number = float_of(value.owner.rhs)
    if number is None or bound is None:
        return number == -np.inf
    least = lower_bound(bound - 1, {a.name: a.extent for a in nest.axes})
    scored = len(nest.inputs) == 1 and least is not None and is_nonnegative(least)
    return number == -np.inf or (number <= LOW and scored)


def _decided(op: arith.SelectOp, axis: Symbol) -> _Decision | None:
    """The bound up to which a selection selects one of its values along an axis."""
    room = compared_indices(op.cond)
    if room is None:
        return None
    bound = _bound(room, axis)
    if bound is not None:
        return _Decision(bound, op.lhs, op.rhs)
    bound = _bound(1 - room, axis)
    return None if bound is None else _Decision(bound, op.rhs, op.lhs)


def _bound(room: Expr, axis: Symbol) -> Expr | None:
    """The e for which `room > 0` means axis < e."""
    split = room.linear([axis])
    if split is None or split[0].get(axis, Expr.of(0)).constant != -1:
        return None
    return split[1]


def compared_indices(value: SSAValue) -> Expr | None:
    """The e for which a truth value of a body means e > 0."""
    compare = value.owner
    if not isinstance(compare, arith.CmpiOp):
        return None
    left, right = _index(compare.lhs), _index(compare.rhs)
    if left is None or right is None:
        return None
    match CMPI_COMPARISON_OPERATIONS[compare.predicate.value.data]:
        case "slt":
            return right - left
        case "sle":
            return right - left + 1
        case "sgt":
            return left - right
        case "sge":
            return left - right + 1
        case _:
            return None


def _index(value: SSAValue) -> Expr | None:
    """The index expression that a value of a body holds; None if it is none."""
    while isinstance(value.owner, _CASTS):
        value = value.owner.operands[0]
    match value.owner:
        case IndexOp():
            return value.owner.expr.data
        case arith.ConstantOp() if isinstance(value.owner.value, IntegerAttr):
            return Expr.of(value.owner.value.value.data)
        case arith.AddiOp() | arith.SubiOp():
            left, right = map(_index, value.owner.operands)
            if left is None or right is None:
                return None
            return left + right if isinstance(value.owner, arith.AddiOp) else left - right
        case _:
            return None


def extremes(
    bound: Expr, tiles: Sequence[tuple[Symbol, Expr, int]]
) -> tuple[Expr, Expr] | None:
    """The bounds of the first and the last row of a tile, given as (axis, its start, its length).

    None if the bound depends on a row other than by growing with it.
    """
    names = [name for name, _, _ in tiles]
    split = bound.linear(names)
    if split is None or any((c.constant or -1) < 0 for c in split[0].values()):
        return None
    first = bound.substitute({name: start for name, start, _ in tiles})
    last = bound.substitute({name: start + (size - 1) for name, start, size in tiles})
    return first, last
