"""Loops of at most one trip, by which the programs of a kernel divide into parts.

    block.for %i = max(0, %p - 54) to min(9, %p - 54 + 1) step 1 { ... }

Programs 54 to 62 run the body once, with the ids 0 to 8 in %i; for all others the range is empty.
A range may also begin later than at 0:

    block.for %i = max(8, %p) to min(9, %p + 1) step 1 { ... }
"""

from __future__ import annotations

from dialects.block.kernel_ops import ForOp
from dialects.records import dataclass
from dialects.symbolic.expr import Call, Expr, maximum, minimum


@dataclass(frozen=True)
class Branch:
    """The body runs if `first` <= `index` < `end`, with the counter at `index`."""

    index: Expr
    """In terms of the loop's indices."""
    first: int
    end: int

    @property
    def count(self) -> int:
        """How many values the index takes."""
        return self.end - self.first

    @property
    def bounds(self) -> tuple[Expr, Expr]:
        """The bounds of the loop."""
        return maximum(self.first, self.index), minimum(self.end, self.index + 1)


def branch_of(loop: ForOp) -> Branch | None:
    """The branch that a loop is; None if it may have several trips, or carries values."""
    if loop.carried or loop.step.data.constant != 1:
        return None
    for index in _arguments("max", loop.lower.data):
        for first in _arguments("max", loop.lower.data):
            for end in _arguments("min", loop.upper.data):
                if first.constant is not None and end.constant is not None:
                    branch = Branch(index, first.constant, end.constant)
                    if branch.bounds == (loop.lower.data, loop.upper.data):
                        return branch
    return None


def is_single(loop: ForOp) -> bool:
    """Whether a loop has exactly one trip, and only names an index."""
    return not loop.carried and loop.upper.data - loop.lower.data == Expr.of(1)


def _arguments(op: str, expr: Expr) -> tuple[Expr, ...]:
    """The arguments of an expression that is one call of that name; else none."""
    match expr.terms:
        case (((Call(name, args),), 1),) if name == op:
            return args
        case _:
            return ()
