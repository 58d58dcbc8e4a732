"""Where rows begin and end along the axis of their online sums (causal masks, windows, ...).

    %x = nest (i, j) {select(j <= i, s, -inf)}       row i ends before j = i + 1
    %x = nest (i, j) {select(j > i - 8, s, -inf)}    row i begins at j = i - 7

    %p = nest (i, j) {select(j <= i, p, 0)}          sums of products with %p end there, too

A score of -inf has no weight, so a program need not walk it. Neither has a finite score so low that
its weight rounds to 0 next to any computed score, provided that the row certainly has one. A
product with a factor that is selected to be zero counts as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.arith import CMPI_COMPARISON_OPERATIONS
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, SSAValue

from dialects.loop import IndexOp, KernelOp, NestOp
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import is_nonnegative, lower_bound
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.numbers import float_of, unscaled
from passes.analyses.loop.online import (
    argument_read,
    elementwise_maker,
    is_zero,
    running_maximum,
)
from passes.rewrites.loop.concatenations import is_selected_factor
from passes.rewrites.loop.nests import Read, reads_of

LOW = -6e4
"""A score this low has no weight next to a computed one: half precision has no lower numbers."""

_CASTS = (arith.IndexCastOp, arith.ExtSIOp, arith.TruncIOp)


class Limit(NamedTuple):
    """Scores count where `begin` <= axis < `end`, expressions over the axes of the rows.

    None: from the beginning; to the end.
    """

    axis: Symbol
    begin: Expr | None
    end: Expr | None
    chosen: dict[Operation, SSAValue]
    """Selections in any body that the end decides, and the value selected before it."""

    @property
    def symbols(self) -> set[Symbol]:
        return {s for e in (self.begin, self.end) if e is not None for s in e.symbols}


def limit_of(kernel: KernelOp, axis: Symbol) -> Limit | None:
    """The limit of the scores whose maximum the sums along an axis follow, or of the factors that
    are not zero in sums of products; None if there is none."""
    maxima = {r.maximum for n in kernel.nests if (r := running_maximum(n))
              and axis in {a.name for a in n.reduce_axes}}
    if len(maxima) > 1:
        return None
    decisions = _of_maximum(*maxima, axis=axis) if maxima else _of_sums(kernel, axis)
    begin, end = (_of_rows([e for d in decisions if (e := of(d)) is not None], kernel)
                  for of in (attrgetter("begin"), attrgetter("end")))
    if begin is None and end is None:
        return None
    chosen: dict[Operation, SSAValue] = {
        op: d.kept for nest in kernel.nests for op in nest.body.block.ops
        if end is not None and isinstance(op, arith.SelectOp) and (d := _decided(op, axis))
        and d.end == end}
    return Limit(axis, begin, end, chosen)


def first_part_of(kernel: KernelOp, axis: Symbol) -> Limit | None:
    """Where the first parts of concatenated factors end along an axis: what comes before is read
    from them alone. None if there is none, or if they end at places that cannot be compared."""
    found = {op: d for nest in kernel.nests if is_selected_factor(nest)
             for op in nest.body.block.ops if isinstance(op, arith.SelectOp)
             and (d := _decided(op, axis)) is not None}
    ends = {d.end for d in found.values() if d.end is not None}
    first = next((e for e in ends if all(is_nonnegative(other - e) for other in ends)), None)
    return None if first is None else Limit(
        axis, None, first, {op: d.kept for op, d in found.items() if d.end is not None})


def _of_maximum(maximum: SSAValue, axis: Symbol) -> list[_Decision]:
    finder = maximum.owner
    assert isinstance(finder, NestOp)
    scores = choosing(reads_of(finder)[0])
    plain = finder.yielded[0] is finder.body.block.args[0]
    return _decisions(scores, axis) if scores is not None and plain else []


def _of_sums(kernel: KernelOp, axis: Symbol) -> list[_Decision]:
    """The selections outside of which all sums along an axis add products with zero."""
    sums = [n for n in kernel.nests if axis in {a.name for a in n.reduce_axes}]
    found = [_zeros(n, n.yielded[0], axis) if is_contraction(n) else [] for n in sums]
    return [d for d in found[0] if all(any(d.bounds == other.bounds for other in more)
                                       for more in found)] if found else []


def _zeros(nest: NestOp, value: SSAValue, axis: Symbol) -> list[_Decision]:
    """The selections that make a value of a body zero outside of their bounds."""
    op = value.owner
    if isinstance(op, Block):
        made = elementwise_maker(argument_read(nest, value))
        return [] if made is None else _zeros(*made, axis)
    match op:
        case arith.ExtFOp() | arith.TruncFOp():
            return _zeros(nest, op.operands[0], axis)
        case arith.MulfOp():
            return [*_zeros(nest, op.lhs, axis), *_zeros(nest, op.rhs, axis)]
        case arith.SelectOp():
            decision = _selected(op, axis, is_zero)
            return [*([decision] if decision else []), *(
                _zeros(nest, op.lhs, axis) if is_zero(op.rhs) else [])]
        case _:
            return []


def kept_anyway(nest: NestOp, choice: arith.SelectOp) -> SSAValue | None:
    """The weights of which a selection makes some 0 that are 0 anyway; None if some are not.

    `nest`: an online sum of products whose factor `choice` computes. They are 0 if the same bounds
    give scores of -inf, and each row has a computed score: exp(-inf - maximum) is 0.
    """
    running, [axis] = running_maximum(nest), nest.reduce_axes
    zeros = _selected(choice, axis.name, is_zero)
    if running is None or zeros is None or not isinstance(running.maximum.owner, NestOp):
        return None
    scores = choosing(reads_of(running.maximum.owner)[0])
    nested = _nested(scores, axis.name) if scores is not None else []
    hides = any(d is not None and d.bounds == zeros.bounds and float_of(other) == -np.inf
                for d, other in nested)
    certain = hides and scores is not None and _is_certain(scores, axis.name, nested)
    return zeros.kept if certain else None


def _of_rows(bounds: Sequence[Expr], kernel: KernelOp) -> Expr | None:
    """The first bound that depends on rows, or else the first one."""
    return next((b for b in bounds if b.symbols & kernel.axes.keys()), next(iter(bounds), None))


def choosing(read: Read) -> NestOp | None:
    """The nest that chooses what a read sees, past those that scale, round or widen it."""
    made = elementwise_maker(read)
    if made is None:
        return None
    nest, value = made
    while (inner := unscaled(value)) is not None:
        value = inner
    before = choosing(argument_read(nest, value)) if isinstance(value.owner, Block) else None
    return before or nest


class _Decision(NamedTuple):
    """A selection of `kept` from `begin` on or before `end`, whichever is given."""

    begin: Expr | None
    end: Expr | None
    kept: SSAValue
    other: SSAValue

    @property
    def bounds(self) -> tuple[Expr | None, Expr | None]:
        return self.begin, self.end


def _decisions(scores: NestOp, axis: Symbol) -> list[_Decision]:
    """The nested selections that give only scores without weight outside of their bounds."""
    nested = _nested(scores, axis)
    certain = _is_certain(scores, axis, nested)
    found: list[_Decision] = []
    for decision, other in nested:
        if not _is_low(other, certain):
            break
        found += [decision] if decision else []
    return found


def _nested(scores: NestOp, axis: Symbol) -> list[tuple[_Decision | None, SSAValue]]:
    """The selections around the scores, outermost first, each with the other one of its values. A
    selection that something else than bounds decides is None."""
    nested: list[tuple[_Decision | None, SSAValue]] = []
    value = scores.yielded[0]
    while isinstance(op := value.owner, arith.SelectOp):
        decision = _decided(op, axis)
        value, other = (decision.kept, decision.other) if decision else (
            (op.lhs, op.rhs) if float_of(op.lhs) is None else (op.rhs, op.lhs))
        nested.append((decision, other))
    return nested


def _is_certain(
    scores: NestOp, axis: Symbol, nested: Sequence[tuple[_Decision | None, SSAValue]]
) -> bool:
    """Whether every row has a computed score: bounds alone decide, and they leave room."""
    bounds = [d for d, _ in nested if d is not None]
    if len(bounds) < len(nested) or len(scores.inputs) != 1:
        return False
    extents = {a.name: a.extent for a in scores.axes}
    begins = [Expr.of(0), *(d.begin for d in bounds if d.begin is not None)]
    ends = [extents.get(axis, Expr.of(0)), *(d.end for d in bounds if d.end is not None)]
    rooms = [lower_bound(end - begin - 1, extents) for begin in begins for end in ends]
    return all(room is not None and is_nonnegative(room) for room in rooms)


def _is_low(value: SSAValue, certain: bool) -> bool:
    """Whether a score has no weight: -inf, or low while its row certainly has a computed score."""
    number = float_of(value)
    if isinstance(value.owner, arith.AddfOp):
        number = float_of(value.owner.rhs)
    return number is not None and (number == -np.inf or (certain and number <= LOW))


def _decided(op: arith.SelectOp, axis: Symbol) -> _Decision | None:
    """The bounds outside of which a selection selects the other one of its values."""
    return _selected(op, axis, lambda _: True)


def _selected(
    op: arith.SelectOp, axis: Symbol, is_other: Callable[[SSAValue], bool]
) -> _Decision | None:
    """The bounds outside of which a selection selects a value of which that holds."""
    room = compared_indices(op.cond)
    if room is None:
        return None
    for inside, kept, other in ((room, op.lhs, op.rhs), (1 - room, op.rhs, op.lhs)):
        begin, end = _begin(inside, axis), _end(inside, axis)
        if (begin is not None or end is not None) and not _is_low(kept, True) and is_other(other):
            return _Decision(begin, end, kept, other)
    return None


def _end(room: Expr, axis: Symbol) -> Expr | None:
    """The e for which `room > 0` means axis < e."""
    split = room.linear([axis])
    if split is None or split[0].get(axis, Expr.of(0)).constant != -1:
        return None
    return split[1]


def _begin(room: Expr, axis: Symbol) -> Expr | None:
    """The e for which `room > 0` means axis >= e."""
    split = room.linear([axis])
    if split is None or split[0].get(axis, Expr.of(0)).constant != 1:
        return None
    return 1 - split[1]


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
