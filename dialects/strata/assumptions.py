"""What compiled code relies on about sizes, and the words for sizes that break it.

`strata.assume` and `strata.size` say it in the IR; this is their meaning as plain data, for running
a compiled model without any IR: nothing here imports xDSL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dialects.strata.array_type import read_size, size_facts
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol

MAX_SIZE = 2**48
"""No size that is computed at run time may be larger: nothing of that size fits any memory."""

LARGEST_NUMBER = 2**62
"""No number that code computes of sizes may be larger: it would not fit 64 bits."""


class SizeError(ValueError):
    """Run-time sizes break an assumption under which the model was compiled."""


class IndexRangeError(IndexError):
    """An index that data bring is outside what it indexes."""


class AccessError(RuntimeError):
    """An access to memory has left its buffer, which compiled code must never do."""


class Assumption(NamedTuple):
    """`left <= right` or `left == right`, needed by the model's node of that name."""

    left: Expr
    relation: str
    right: Expr
    node: str

    @property
    def symbols(self) -> frozenset[Symbol]:
        """The sizes that it is about."""
        return self.left.symbols | self.right.symbols

    @property
    def is_limit(self) -> bool:
        """Whether it says that numbers computed of sizes are small enough for 64 bits."""
        return self.relation == "<=" and self.right.constant == LARGEST_NUMBER

    def check(self, sizes: Mapping[Symbol, int]) -> None:
        """Raises SizeError naming the node where the sizes break it."""
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
        """The size n of `1 <= (n - k)*(n - k)`, which says n != k, where k is its value."""
        return [symbol for symbol in self.symbols if self.left.constant == 1 and self.right == (
            Expr.symbol(symbol) - sizes[symbol]) * (Expr.symbol(symbol) - sizes[symbol])]

    def facts(self) -> list[Any]:
        """Everything, as JSON can hold it."""
        return [size_facts(self.left), self.relation, size_facts(self.right), self.node]

    @staticmethod
    def read(facts: Sequence[Any]) -> Assumption:
        """What `facts` wrote."""
        left, relation, right, node = facts
        return Assumption(read_size(left), str(relation), read_size(right), str(node))


def size_refusal(value: int, node: str) -> str:
    """What is wrong with a value that a node computes as a size, and that is none."""
    return f"a size computed at node {node!r} is {value}; it must be from 0 to {MAX_SIZE}"


def index_refusal(value: int, low: int, high: int, node: str, label: str) -> str:
    """What is wrong with an index that is not in [low, high). `label`: what the indices are called.
    """
    name = f"an index of {label!r}" if label else "an index"
    wanted = f"it must be from {low} to {high - 1}" if low < high else "there is nothing to index"
    return f"{name} is {value} at node {node!r}; {wanted}"


def farthest_value(key: int, low: int) -> int:
    """The value that is farthest above `low`, counted without a sign: `farthest` of
    `strata.require`, whose number is `key`."""
    distance = key + (1 << 63)
    value = distance + low
    return value - (1 << 64) if value >= 1 << 63 else value


def access_refusal(number: int, texts: Sequence[str]) -> str:
    """What `strata.trap` says of a number that it found. Checks that were not met say nothing."""
    known = 0 < number <= len(texts)
    return texts[number - 1] if known else f"a check stored {number}, which is none of its numbers"
