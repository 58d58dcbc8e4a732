"""Ranges, in terms of sizes, of the values in tiles that are used as indices.

    %i = block.load %ids[...]                          anything
    %j = block.map (%i, %last) { min(max(%i, 0), %last) }        0 to max(n - 1, 0)

A loaded value lies in the range of the memory that it is loaded from. That range is determined by
what the kernel stores to its private memory, and by what the caller knows about other memory
(`passes.analyses.block.contents`). `scalar_ranges.py` propagates ranges through scalar operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TypeAlias

from xdsl.ir import Block, BlockArgument, SSAValue

from dialects import block as ops
from dialects.block.accesses import Scope, place
from dialects.records import dataclass
from dialects.strata.types import TileType
from dialects.symbolic.expr import Expr
from dialects.symbolic.inequalities import Prover, Span
from dialects.symbolic.symbol import Symbol
from passes.analyses.block.scalar_ranges import ANYTHING, Scalars, constant, joined

Contents: TypeAlias = "Callable[[BlockArgument, int | None], Span]"
"""The range of the elements of a kernel's buffer; those at one index of its last dim, if given."""


@dataclass
class Values:
    """The ranges of the values of one kernel, in terms of its sizes."""

    scope: Scope
    """The kernel's own scope, whose symbols cover all of its index values."""
    contents: Contents
    found: dict[SSAValue, Span] = field(default_factory=dict[SSAValue, Span])

    def of(self, value: SSAValue) -> Span:
        """The range of a tile's elements; anything for a value that depends on itself."""
        if value not in self.found:
            self.found[value] = ANYTHING
            self.found[value] = self._of(value)
        return self.found[value]

    def _of(self, value: SSAValue) -> Span:
        owner = value.owner
        if isinstance(owner, Block):
            loop = owner.parent_op()
            return self._carried(loop, owner.args.index(value) - 1) if (  # type: ignore[arg-type]
                isinstance(loop, ops.ForOp)) else ANYTHING
        match owner:
            case ops.ForOp():
                return self._carried(owner, owner.results.index(value))  # type: ignore[arg-type]
            case ops.ConvertOp():
                return self.of(owner.value)
            case ops.FullOp():
                return constant(owner.number, ops.element_type(value))
            case ops.IndexOp():
                return self._of_index(owner)
            case ops.MapOp():
                known: dict[SSAValue, Span] = dict(zip(
                    owner.body.block.args, map(self.of, owner.inputs), strict=True))
                number = list(owner.results).index(value)  # type: ignore[arg-type]
                return Scalars(known, lambda e: self._is_positive(e, owner)).of(
                    owner.yielded[number])
            case ops.LoadOp():
                return self._loaded(owner)
            case ops.ReduceOp() if owner.combiner.data in ("max", "min"):
                return self.of(owner.value)
            case _:
                return ANYTHING

    def _carried(self, loop: ops.ForOp, number: int) -> Span:
        """The range of what a loop carries from one trip to the next, and then yields.

        That is what it begins with, or what a trip yields, whatever that trip begins with.
        """
        if number < 0:  # the counter
            return ANYTHING
        last = loop.body.block.last_op
        assert isinstance(last, ops.YieldOp)
        return joined([self.of(loop.carried[number]), self.of(last.values[number])])

    def _is_positive(self, expr: Expr, op: ops.MapOp) -> bool:
        """Whether an expression over sizes is at least 1 wherever an operation runs."""
        block = op.parent_block()
        scope = self.scope.symbols.scopes.get(block) if block is not None else None
        return Prover({} if scope is None else scope.ranges).is_nonnegative(expr - 1)

    def _of_index(self, op: ops.IndexOp) -> Span:
        assert isinstance(op.result.type, TileType)
        expr = self.scope.value(op.result, tuple(range(op.result.type.rank)))
        if expr.symbols & self.scope.symbols.data.keys():
            return ANYTHING
        places = {place(d): Span(Expr.of(0), Expr.of(n - 1))
                  for d, n in enumerate(op.result.type.shape)}
        ranges = {**self.scope.symbols.spans, **places}
        return Span(_end(expr, ranges, False), _end(expr, ranges, True))

    def _loaded(self, op: ops.LoadOp) -> Span:
        if isinstance(op.buffer, BlockArgument):
            held = self.contents(op.buffer, op.exprs[-1].constant if op.exprs else None)
        else:  # private memory of the program
            stores = [use.operation for use in op.buffer.uses]
            held = joined([self.of(s.value) for s in stores if isinstance(s, ops.StoreOp)])
        pad = constant(op.pad_value, ops.element_type(op.result))
        return joined([held, pad]) if op.checked_dims else held

    def stored(self, buffer: SSAValue) -> Span | None:
        """The range of what a kernel stores to a buffer; None if it stores nothing, or at positions
        that data determine."""
        stores = [use.operation for use in buffer.uses if isinstance(use.operation, ops.StoreOp)]
        if not stores or any(isinstance(v.type, TileType) and not isinstance(v.owner, ops.IndexOp)
                             for s in stores for v in s.indices):
            return None
        return joined([self.of(s.value) for s in stores])


def _end(expr: Expr, ranges: Mapping[Symbol, Span], upper: bool) -> Expr | None:
    """The largest or smallest value of an expression in terms of sizes; None if it is not known."""
    for symbol in [s for s in list(ranges)[::-1] if s in expr.symbols]:
        split = expr.linear([symbol]) if symbol in expr.symbols else None
        factor = None if split is None else split[0][symbol].constant if symbol in split[0] else 0
        if split is None or factor is None:
            return None
        end = ranges[symbol].last if (factor > 0) == upper else ranges[symbol].first
        if end is None:
            return None
        expr = split[1] + end * factor
    return expr
