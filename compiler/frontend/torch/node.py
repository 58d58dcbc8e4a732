"""The view of a node that an operator's importer gets: its results' types, its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Attribute

from compiler.frontend.faults import Fault
from compiler.frontend.node import NodeBase, fixed
from compiler.frontend.torch.memory.memory_order import order_of
from compiler.frontend.values import Number, Value, scalar
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr, Size


@dataclass(eq=False)
class Node(NodeBase):
    """The node that is being imported.

    `op`: the operator's full name. `results`: the types that PyTorch gives its results, None for a
    result that is not a tensor, and the type of the parts of complex numbers. `used`: the indices
    of the results that other nodes use. `is_complex`: whether the first result is complex.
    `example`: the tensor that PyTorch traced the first operand with, if it is one. `alone`: whether
    nothing runs a node that is refused; else PyTorch does.
    """

    op: str
    results: Sequence[TensorType | None]
    used: frozenset[int]
    is_complex: bool = False
    example: Any = None
    alone: bool = False

    # ------------------------------------------------------------------ the result
    @property
    def result(self) -> TensorType:
        """The type of the first result."""
        first = self.results[0] if self.results else None
        if first is None:
            raise Fault("its first result is not a tensor")
        return first

    @property
    def element(self) -> Attribute:
        return self.result.element

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.result.shape

    def wants(self, index: int) -> bool:
        """Whether another node uses the result of this index."""
        return index in self.used

    @property
    def channels_last(self) -> bool:
        """Whether the first operand [n, c, ...] lay with its channels last."""
        order = None if self.example is None else order_of(self.example)
        return order is not None and order == (0, *range(2, len(order)), 1)

    # ------------------------------------------------------------------ arguments
    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front. A scalar counts as a tensor of one dim. Raises Fault."""
        if not -max(rank, 1) <= axis < max(rank, 1):
            raise Fault(f"axis {axis} is out of range for {rank} dims")
        return axis % max(rank, 1)

    def axes(self, given: Sequence[int] | int | None, rank: int) -> list[int]:
        """Axes, sorted and counted from the front. None and an empty list stand for all axes."""
        listed = [given] if isinstance(given, int) else given
        if not listed:
            return list(range(rank))
        return sorted({self.axis(int(a), rank) for a in listed} & set(range(rank)))

    def integers(self, sizes: Sequence[Size], what: str) -> list[int]:
        return [fixed(s, what) for s in sizes]

    # ------------------------------------------------------------------ helpers
    def scalar(self, number: Number, element: Attribute) -> Value:
        """A constant or a size, as a tensor of no dims."""
        return scalar(self.build, number, element)

    def swap(self, x: Value, first: int = -2, second: int = -1) -> Value:
        """x with two dims exchanged."""
        perm = list(range(x.rank))
        perm[first], perm[second] = perm[second], perm[first]
        return x.transpose(perm)

    def channelwise(self, x: Value, rank: int) -> Value:
        """A parameter with one element per channel, shaped to broadcast to [n, c, s...] of this
        rank.
        """
        return x.reshape([x.type.count, *[1] * (rank - 2)])


def example_of(args: Sequence[Any]) -> Any:
    """The tensor that PyTorch traced the first argument with; None if it is no tensor."""
    value = getattr(args[0], "meta", {}).get("val") if args else None
    return value if hasattr(value, "stride") else None
