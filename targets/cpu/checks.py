"""What native code checks while it runs, and the errors that Python raises when a check fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation

from dialects.control import LoopOp, SizeOp
from dialects.func import AssumeOp, SizeError
from dialects.syntax import location_name


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
    def error(seen: Sequence[int]) -> Exception:
        size = "too many" if seen[0] < 0 else str(seen[0])
        return ValueError(f"there is not enough memory at node {location_name(op)!r}, "
                          f"which needs {size} bytes")
    return Check(error)


def stack_check(op: LoopOp) -> Check:
    """Of what a loop stacks."""
    return Check(lambda _: ValueError(
        f"the values that the loop at node {location_name(op)!r} stacks have different shapes"))
