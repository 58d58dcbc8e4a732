"""The checks of native code at run time, and the Python errors for those that fail.

Checks are plain data, so that a compiled model can be stored in a file with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dialects.strata.assumptions import (
    AccessError,
    Assumption,
    DivisionByZeroError,
    IndexRangeError,
    SizeError,
    access_refusal,
    check_with_choices,
    division_refusal,
    index_refusal,
    size_refusal,
)
from targets.host_checks import MOST_BYTES, memory_error, stack_error

if TYPE_CHECKING:
    from xdsl.ir import Operation

    from dialects.strata.requirements import RequireOp, TrapOp
    from dialects.strata.sizes import AssumeOp


SIGNAL, EXCHANGE = "signal", "exchange"


class Check(NamedTuple):
    """A check that belongs to a node of the model. `kind`: size, assumption, index, divisor,
    access, memory, stack, or signal or exchange, which have no errors of their own.

    `label`: for an index check, the name of what is indexed; for an access check, its texts, one
    per line.
    """

    kind: str
    node: str
    assumption: Assumption | None = None
    label: str = ""

    def error(self, seen: Sequence[int], checks: Iterable[Check] = ()) -> Exception:
        """The error, made from the values that the code recorded. `checks`: all of the program."""
        if self.assumption is not None:
            return _contradiction(self.assumption, seen, checks)
        if self.kind == "index":
            return _wrong_index(self, seen)
        if self.kind == "divisor":
            return DivisionByZeroError(division_refusal(self.node))
        if self.kind == "access":
            return AccessError(access_refusal(seen[0], self.label.split("\n")))
        if self.kind == "size":
            return SizeError(size_refusal(seen[0], self.node))
        if self.kind == "stack":
            return stack_error(self.node)
        return memory_error(self.node, seen[0] if seen[0] >= 0 else MOST_BYTES + 1)

    # ------------------------------------------------------------------ files
    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them."""
        return [self.kind, self.node, self.assumption and self.assumption.facts(), self.label]

    @staticmethod
    def read(facts: Sequence[Any]) -> Check:
        """The check that `facts` describes."""
        kind, node, assumption, label = facts
        return Check(str(kind), str(node), assumption and Assumption.read(assumption), str(label))


def size_check(op: Operation) -> Check:
    """The check of a value read by `strata.size`; the code records the value."""
    return Check("size", _node(op))


def assume_check(op: AssumeOp) -> Check:
    """The check of an assumption; the code records the sizes, in the order of their names."""
    return Check("assumption", _node(op), op.assumption)


def index_check(op: RequireOp) -> Check:
    """The check of indices or divisors from data; the code records the worst index and the two
    bounds."""
    return Check("index" if op.divisors is None else "divisor", _node(op), label=op.label)


def access_check(op: TrapOp) -> Check:
    """The check of a kernel's accesses; the code records the number of a text, from 1 on."""
    return Check("access", _node(op), label="\n".join(op.messages))


def memory_check(op: Operation) -> Check:
    """The check of an allocation; the code records the bytes, or -1 if they overflow."""
    return Check("memory", _node(op))


def stack_check(op: Operation) -> Check:
    """The check of the values that a loop stacks."""
    return Check("stack", _node(op))


def signal_check(op: Operation) -> Check:
    """The check of a loop that a signal ends; the heap holds the exception of its handler."""
    return Check(SIGNAL, _node(op))


def exchange_check(op: Operation) -> Check:
    """The check of a collective operation; the call's state holds what went wrong."""
    return Check(EXCHANGE, _node(op))


def _node(op: Operation) -> str:
    from dialects.text.syntax import location_name

    return location_name(op)


def _contradiction(
    assumption: Assumption, seen: Sequence[int], checks: Iterable[Check]
) -> Exception:
    sizes = dict(zip(sorted(assumption.symbols), seen, strict=False))
    choices = (c.assumption for c in checks if c.assumption and c.assumption.choice)
    try:
        check_with_choices(assumption, choices, sizes)
    except SizeError as error:
        return error
    return AssertionError(f"native code found that sizes {sizes} break an assumption; they do not")


def _wrong_index(check: Check, seen: Sequence[int]) -> Exception:
    value, low, high, *_ = seen
    return IndexRangeError(index_refusal(value, low, high, check.node, check.label))
