"""The assumptions about sizes that compiled code relies on, and the errors for violations.

In the IR, `strata.assume` and `strata.size` express them. This module holds the same information
as plain data, so that a compiled model runs without any IR. It does not import xDSL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dialects.strata.array_type import read_size, size_facts
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol

MAX_SIZE = 2**48
"""The upper limit of sizes computed at run time. Nothing larger fits into any memory."""

LARGEST_NUMBER = 2**62
"""The upper limit of any number that code computes from sizes, so that it fits into 64 bits."""


class SizeError(ValueError):
    """Run-time sizes break an assumption under which the model was compiled."""


class IndexRangeError(IndexError):
    """An index taken from run-time data is out of range."""


class AccessError(RuntimeError):
    """A memory access was out of bounds, which must never happen in compiled code."""


class Assumption(NamedTuple):
    """`left <= right` or `left == right`; `node` names the model node that requires it."""

    left: Expr
    relation: str
    right: Expr
    node: str

    @property
    def symbols(self) -> frozenset[Symbol]:
        """The sizes that it mentions."""
        return self.left.symbols | self.right.symbols

    @property
    def is_limit(self) -> bool:
        """Whether it bounds a number computed from sizes so that it fits into 64 bits."""
        return self.relation == "<=" and self.right.constant == LARGEST_NUMBER

    def check(self, sizes: Mapping[Symbol, int]) -> None:
        """Raises SizeError, naming the node, if the sizes violate the assumption."""
        left, right = (int(e.evaluate(sizes)) for e in (self.left, self.right))
        if left == right or (left < right and self.relation == "<="):
            return
        for symbol in self._excluded(sizes):
            raise SizeError(f"sizes do not fit each other at node {self.node!r}: {symbol} must not "
                            f"be {sizes[symbol]}, for which other code is needed; compile the "
                            f"model with this size fixed, for instance with --dim "
                            f"{symbol}={sizes[symbol]}")
        values = ", ".join(f"{s} = {sizes[s]}" for s in sorted(self.symbols))
        if self.is_limit:
            raise SizeError(f"sizes are too large at node {self.node!r}, which computes numbers "
                            f"beyond 64 bits of {values}")
        raise SizeError(f"sizes do not fit each other at node {self.node!r}: it needs "
                        f"{self.left} {self.relation} {self.right}, which is "
                        f"{left} {self.relation} {right} with {values}")

    def _excluded(self, sizes: Mapping[Symbol, int]) -> list[Symbol]:
        """The size n in `1 <= (n - k)*(n - k)`, which encodes n != k, if its value is k."""
        return [symbol for symbol in self.symbols if self.left.constant == 1 and self.right == (
            Expr.symbol(symbol) - sizes[symbol]) * (Expr.symbol(symbol) - sizes[symbol])]

    def facts(self) -> list[Any]:
        """All fields in a form that JSON can represent."""
        return [size_facts(self.left), self.relation, size_facts(self.right), self.node]

    @staticmethod
    def read(facts: Sequence[Any]) -> Assumption:
        """The inverse of `facts`."""
        left, relation, right, node = facts
        return Assumption(read_size(left), str(relation), read_size(right), str(node))


def size_refusal(value: int, node: str) -> str:
    """The error message for a computed value that is not a valid size."""
    return f"a size computed at node {node!r} is {value}; it must be from 0 to {MAX_SIZE}"


def index_refusal(value: int, low: int, high: int, node: str, label: str) -> str:
    """The error message for an index outside [low, high). `label` is the name of the indices."""
    name = f"an index of {label!r}" if label else "an index"
    wanted = f"it must be from {low} to {high - 1}" if low < high else "there is nothing to index"
    return f"{name} is {value} at node {node!r}; {wanted}"


def farthest_value(key: int, low: int) -> int:
    """Recover the value that lies farthest above `low` in unsigned distance.

    `key` is the operand of a `strata.require` with `farthest`: the distance with its sign bit
    inverted.
    """
    distance = key + (1 << 63)
    value = distance + low
    return value - (1 << 64) if value >= 1 << 63 else value


def access_refusal(number: int, texts: Sequence[str]) -> str:
    """The error message for a non-zero number that `strata.trap` found in its fault buffer."""
    known = 0 < number <= len(texts)
    return texts[number - 1] if known else f"a check stored the unknown number {number}"
