"""Proofs by the ends of loops alone: a counter is below its loop's end, wherever the loop starts.

    block.for %i = 6*((n + 3) floordiv 4 floordiv 6) to (n + 3) floordiv 4 - 1 step 2 {
      block.load %x[%i + t0] : tile<2xf32>      at most (n + 3) floordiv 4 - 2 + 1

Most tiles end where their loop does, so that nothing is left of the difference to the size of the
dim. No fact about sizes and no quotient is needed, of which there are others in each kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from xdsl.ir import Block, BlockArgument, SSAValue

from dialects.block import ForOp, KernelOp
from dialects.block.accesses import Access, operand, place
from dialects.records import dataclass
from dialects.symbolic.expr import Call, Expr
from dialects.symbolic.facts import is_plain
from dialects.symbolic.symbol import Kind


@dataclass
class Ends:
    """The largest values of a kernel's counters and program ids, over its sizes."""

    found: dict[SSAValue, Expr | None] = field(default_factory=dict[SSAValue, "Expr | None"])

    def prove(self, access: Access) -> bool:
        """Whether an access stays inside for this reason; its index must be a sum of what is not
        negative."""
        if not is_plain(access.index) or not access.data.keys().isdisjoint(access.index.symbols):
            return False
        most = self._most(access.expr, access.indices, access.shape)
        return most is not None and is_plain(access.size - most - 1)

    def _most(
        self, expr: Expr, indices: Sequence[SSAValue], shape: Sequence[int] = ()
    ) -> Expr | None:
        """What an operation's expression never exceeds; None if that is not seen."""
        split = _without_minimum(expr).linear([s for s in expr.symbols if s.kind is not Kind.SIZE])
        if split is None:
            return None
        factors, total = split
        if not factors:
            return total
        values = {operand(k): v for k, v in enumerate(indices)}
        places = {place(d): Expr.of(n - 1) for d, n in enumerate(shape)}
        for name, factor in factors.items():
            number = factor.constant
            end = self._end(values[name]) if name in values else places.get(name)
            if number is None or number < 0 or end is None:
                return None
            total = total + end * number
        return total

    def _end(self, value: SSAValue) -> Expr | None:
        """The largest value of a counter or a program id."""
        if value not in self.found:
            self.found[value] = self._new_end(value)
        return self.found[value]

    def _new_end(self, value: SSAValue) -> Expr | None:
        block = value.owner
        if not isinstance(block, Block) or not isinstance(value, BlockArgument):
            return None
        parent = block.parent_op()
        if isinstance(parent, ForOp) and value is parent.counter:
            most = self._most(parent.upper.data, parent.indices)
        elif isinstance(parent, KernelOp) and value in parent.program_ids:
            most = parent.grid.data[parent.program_ids.index(value)]
        else:
            return None
        return None if most is None else most - 1


def _without_minimum(expr: Expr) -> Expr:
    """An upper bound: of a minimum that is added, the operand over sizes only."""
    for monomial, factor in expr.terms:
        call = monomial[0] if len(monomial) == 1 else None
        if isinstance(call, Call) and call.op == "min" and factor > 0:
            for argument in call.args:
                if all(s.kind is Kind.SIZE for s in argument.symbols):
                    return expr - Expr(((monomial, factor),)) + argument * factor
    return expr
