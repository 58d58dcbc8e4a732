"""What native code checks while it runs, and the errors that Python raises when a check fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation

from dialects.control import LoopOp
from dialects.sizes import AssumeOp, SizeError, SizeOp
from targets.host_checks import MOST_BYTES, memory_error, stack_error


@dataclass(frozen=True)
class Check:
    """One check. `error` makes the exception from the values that the code saw."""

    error: Callable[[Sequence[int]], Exception]


def size_check(op: SizeOp) -> Check:
    """Of what `strata.size` reads: the code saw the value."""
    return Check(lambda seen: SizeError(op.refusal(seen[0])))


def assume_check(op: AssumeOp) -> Check:
    """Of an assumption: the code saw the sizes, in order of their names."""
    return Check(lambda seen: _contradiction(op, dict(zip(sorted(op.symbols), seen, strict=False))))


def _contradiction(op: AssumeOp, sizes: dict[str, int]) -> Exception:
    try:
        op.check(sizes)
    except SizeError as error:
        return error
    return AssertionError(f"native code found that sizes {sizes} break an assumption; they do not")


def memory_check(op: Operation) -> Check:
    """Of memory that an operation asks for: the code saw the bytes, -1 where beyond counting."""
    return Check(lambda seen: memory_error(op, seen[0] if seen[0] >= 0 else MOST_BYTES + 1))


def stack_check(op: LoopOp) -> Check:
    """Of what a loop stacks."""
    return Check(lambda _: stack_error(op))
