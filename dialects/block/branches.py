"""Loops of at most one trip, by which the programs of a kernel divide into parts.

    block.for %i = max(0, %p - 54) to min(9, %p - 54 + 1) step 1 { ... }

Programs 54 to 62 run the body once, with the ids 0 to 8 in %i; for all others the range is empty.
"""

from __future__ import annotations

from dataclasses import dataclass

from dialects.block.kernel_ops import ForOp
from dialects.symbolic.expr import Call, Expr, maximum, minimum


@dataclass(frozen=True)
class Branch:
    """The body runs if 0 <= `index` < `count`, with the counter at `index`."""

    index: Expr
    """In terms of the loop's indices."""
    count: int


def branch_bounds(index: Expr, count: int) -> tuple[Expr, Expr]:
    """The bounds of a loop that is a branch."""
    return maximum(0, index), minimum(count, index + 1)


def branch_of(loop: ForOp) -> Branch | None:
    """The branch that a loop is; None if it may have several trips, or carries values."""
    if loop.carried or loop.step.data.constant != 1:
        return None
    for index in _arguments("max", loop.lower.data):
        for count in _arguments("min", loop.upper.data):
            number = count.constant
            if number is not None and branch_bounds(index, number) == (
                    loop.lower.data, loop.upper.data):
                return Branch(index, number)
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
