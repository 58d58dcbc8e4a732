"""Scores that a mask hides from all rows of a tile: nothing along their axes need be computed.

    %x = nest (i, j) {select(c, s, -inf)}                scores: -inf where c is false
    %m = nest (i, reduce j) ins(%x[i, j]) outs(max)
    %e = nest (i, k) ins(%x[i, k], %m[i]) {exp(x - m)}   weights: 0 there
    %l = nest (i, reduce k) ins(%e[i, k]) outs(add)
    %y = nest (i, d, reduce n) ins(%e[i, n], %v[n, d])   sums of products with them

A maximum does not change by scores of -inf, nor a sum by weights of 0. So each loop over j, k or n
may leave out what c hides from all rows of a program: `Seen` names the conditions and the axes. It
also says that nothing else reads what those loops would have computed there. A row that sees
nothing is what it would be otherwise, as long as each loop walks at least one place.

A program may search the conditions for what its rows see (`passes.loop_to_block.seen`), or a kernel
before it for what may be visible to blocks of rows (`passes.rewrites.kernels.visible`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from xdsl.dialects import arith, math
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from dialects.loop import IndexOp, KernelOp, NestOp
from dialects.semantics.scalar import operations_for
from dialects.strata.schedule import Schedule
from dialects.strata.types import i1
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.limits import choosing
from passes.analyses.loop.numbers import float_of, unscaled
from passes.analyses.loop.online import argument_read, is_zero
from passes.analyses.loop.private import reads_in
from passes.rewrites.loop.nests import Read, gathered_inputs, reads_of


class Derivation(NamedTuple):
    """What some values of a nest's body are computed from."""

    nest: NestOp
    operations: Sequence[Operation]
    arguments: Sequence[BlockArgument]

    @staticmethod
    def of(nest: NestOp, values: Sequence[SSAValue]) -> Derivation:
        ops = operations_for(nest.body.block, values)
        needed = {*values}.union(*(op.operands for op in ops))
        return Derivation(nest, ops, [a for a in nest.body.block.args if a in needed])

    @property
    def reads(self) -> list[Read]:
        """The reads that the arguments stand for."""
        return [argument_read(self.nest, a) for a in self.arguments]

    @property
    def indices(self) -> list[Expr]:
        """The indices whose values are used."""
        return [op.expr.data for op in self.operations if isinstance(op, IndexOp)]

    @property
    def places(self) -> list[Expr]:
        """The indices at which inputs are read, and those whose values are used."""
        return [*(e for read in self.reads for e in read.map), *self.indices]

    @property
    def axes(self) -> set[Symbol]:
        """The axes along which the values differ."""
        return {s for e in self.places for s in e.symbols} & {a.name for a in self.nest.axes}


class Condition(NamedTuple):
    """A truth value of the body of the scores, and its value where they count."""

    value: SSAValue
    holds: bool


class Seen(NamedTuple):
    """Scores that count where all conditions are met, and the axes of all loops that walk them."""

    scores: NestOp
    axis: Symbol
    conditions: tuple[Condition, ...]
    walked: frozenset[Symbol]

    def is_walked(self, schedule: Schedule) -> bool:
        """Whether a schedule walks all of the axes in loops."""
        return all(x.kind == "loop" for x in schedule.levels if x.axis in self.walked)

    def has_trips(self, schedule: Schedule) -> bool:
        """Whether a loop over the scores has several trips."""
        length = next(a.extent for a in self.scores.axes if a.name == self.axis).constant
        first = next((x for x in schedule.levels if x.axis == self.axis), None)
        return first is not None and (length is None or length > 2 * first.tile)

    @property
    def derivation(self) -> Derivation:
        """What tells the conditions."""
        return Derivation.of(self.scores, [c.value for c in self.conditions])


def seen_scores(kernel: KernelOp) -> Seen | None:
    """The scores of a kernel that a mask hides, if every loop over them may leave hidden ones out.
    """
    for nest in kernel.nests:
        [axis, *more] = [a.name for a in nest.reduce_axes] or [None]
        if axis is None or more or nest.combiner_names != ["max"] or nest.is_scan:
            continue
        scores = choosing(reads_of(nest)[0])
        if scores is None or nest.yielded[0] is not nest.body.block.args[0]:
            continue
        conditions = tuple(
            c for c in _conditions(scores.yielded[0]) if _is_given(scores, c.value))
        if conditions and axis in {a.name for a in scores.axes} and len(scores.results) == 1:
            walked = _Flow(kernel, scores, axis).walked()
            return None if walked is None else Seen(scores, axis, conditions, walked)
    return None


def _conditions(value: SSAValue) -> list[Condition]:
    """The conditions outside of which a score is -inf."""
    match value.owner:
        case arith.SelectOp() as op:
            for kept, other, holds in ((op.lhs, op.rhs, True), (op.rhs, op.lhs, False)):
                if _is_lowest(other):
                    return [Condition(op.cond, holds), *_conditions(kept)]
            return []
        case arith.AddfOp() as op:
            return [*_conditions(op.lhs), *_conditions(op.rhs)]
        case _:
            inner = unscaled(value)
            return [] if inner is None else _conditions(inner)


def _is_lowest(value: SSAValue) -> bool:
    """Whether a value is -inf, or a score to which it is added."""
    number = value.owner.rhs if isinstance(value.owner, arith.AddfOp) else value
    return float_of(number) == -np.inf


def _is_given(scores: NestOp, condition: SSAValue) -> bool:
    """Whether inputs of the kernel and indices tell a condition, so that no score is needed."""
    derived = Derivation.of(scores, [condition])
    return condition.type == i1 and bool(derived.arguments or derived.indices) and (
        not gathered_inputs(derived.places)) and all(
        isinstance(r.value.owner, Block) for r in derived.reads)


# ---------------------------------------------------------------------- what becomes of scores
class _Flow:
    """The values that are made of scores."""

    def __init__(self, kernel: KernelOp, scores: NestOp, axis: Symbol):
        self.kernel, self.scores, self.axis = kernel, scores, axis
        self.dims: dict[SSAValue, tuple[int, Expr]] = {}
        """Each with its dim along the hidden axis, and where that axis begins in it."""
        self.weights = set[SSAValue]()
        """Those that are 0 where scores are hidden; the others are -inf there."""

    def walked(self) -> frozenset[Symbol] | None:
        """The axes along which all of them are walked; None if something needs hidden ones."""
        found = {self.axis}
        if not self._add(self.scores, self.axis):
            return None
        for nest in self.kernel.nests:
            axes = {self._axis_of(r) for r in reads_of(nest) if r.value in self.dims}
            if not axes:
                continue
            [axis, *more] = axes
            if axis is None or more or not self._follow(nest, axis):
                return None
            found.add(axis)
        others = [n for n in self.kernel.nests if n.results[0] not in self.dims]
        return frozenset(found) if all(self._stays(n, found) for n in others) else None

    def _axis_of(self, read: Read) -> Symbol | None:
        """The axis along which a hidden dim is read; None for other places."""
        dim, begin = self.dims[read.value]
        return (read.map[dim] - begin).as_symbol if read.pad is None else None

    def _follow(self, nest: NestOp, axis: Symbol) -> bool:
        """Whether what a nest makes of scores does not depend on hidden ones."""
        number = self._number(nest, nest.yielded[0])
        if len(nest.results) != 1 or number is None or nest.is_scan or nest.is_recurrence:
            return False
        if nest.is_elementwise:
            if number == 0:
                self.weights.add(nest.results[0])
            return self._add(nest, axis)
        return nest.is_reduction and axis in {a.name for a in nest.reduce_axes} and (
            nest.combiner_names == ["max" if number else "add"])

    def _add(self, nest: NestOp, axis: Symbol) -> bool:
        """Note the result of an elementwise nest; False if the kernel returns it."""
        [value] = nest.results
        stored = nest.stored_at(value)
        places = [d for d, e in enumerate(stored) if axis in e.symbols]
        if len(places) != 1 or value in self.kernel.yielded:
            return False
        begin = stored[places[0]] - Expr.symbol(axis)
        self.dims[value] = places[0], begin
        return axis not in begin.symbols

    def _number(self, nest: NestOp, value: SSAValue) -> float | None:
        """-inf or 0, if a value of a body is that where scores are hidden; None for others."""
        match value.owner:
            case Block():
                read = argument_read(nest, value).value
                return None if read not in self.dims else 0 if read in self.weights else -np.inf
            case math.ExpOp() | math.Exp2Op() as op:
                return 0 if self._number(nest, op.operands[0]) == -np.inf else None
            case arith.ExtFOp() | arith.TruncFOp() as op:
                return self._number(nest, op.operands[0])
            case arith.MulfOp() as op:
                numbers = [self._number(nest, v) for v in (op.lhs, op.rhs)]
                low = numbers[0] == -np.inf and (float_of(op.rhs) or 0) > 0
                return 0 if 0 in numbers else -np.inf if low else None
            case arith.DivfOp() as op:
                return 0 if self._number(nest, op.lhs) == 0 else None
            case arith.SubfOp() as op:
                return -np.inf if self._number(nest, op.lhs) == -np.inf else None
            case arith.SelectOp() as op:
                sides = {0 if is_zero(v) else self._number(nest, v) for v in (op.lhs, op.rhs)}
                return sides.pop() if len(sides) == 1 else None
            case _:
                return None

    def _stays(self, nest: NestOp, walked: set[Symbol]) -> bool:
        """Whether what another nest computes along walked axes is read only in their loops."""
        if not walked & {a.name for a in nest.axes}:
            return True
        return not walked & {a.name for a in nest.reduce_axes if not self._is_followed(nest)} and (
            all(self._is_read_alike(r, nest.stored_at(r), walked) for r in nest.results))

    def _is_followed(self, nest: NestOp) -> bool:
        return any(v in self.dims for v in nest.inputs)

    def _is_read_alike(
        self, value: SSAValue, stored: Sequence[Expr], walked: set[Symbol]
    ) -> bool:
        begins = {d: e.substitute(dict.fromkeys(walked, Expr.of(0)))
                  for d, e in enumerate(stored) if e.symbols & walked}
        reads = reads_in(self.kernel, value)
        return not begins or (value not in self.kernel.yielded and all(
            (r.map[d] - begin).as_symbol in walked and r.pad is None
            for r in reads for d, begin in begins.items()))
