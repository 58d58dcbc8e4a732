"""What an operator's importer sees of its node: its results' types, and means to build.

`n(AddOp, x, y)` builds an operation and returns its value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from compiler.frontend.onnx.builder import Builder
from compiler.frontend.onnx.faults import Fault
from compiler.frontend.onnx.values import Value, computed, constant
from dialects import types as t
from dialects.expr import Expr, Size
from dialects.graph.base import GraphOp
from dialects.graph.constant import RangeOp
from dialects.graph.shape import BroadcastOp, ReshapeOp, SliceOp, TransposeOp
from dialects.graph.unary import CastOp
from dialects.types import Array, TensorType


@dataclass(eq=False)
class Node:
    """One node at its turn in the import.

    `op` is the operator's full name, `results` the types that PyTorch gives its results (None for
    a result that is no tensor), `used` the numbers of the results that something uses.
    """

    name: str
    op: str
    results: Sequence[TensorType | None]
    used: frozenset[int]
    build: Builder

    def __call__(self, op_type: type[GraphOp], *operands: Value, **attributes: Any) -> Value:
        return self.build(op_type, *operands, **attributes)

    # ------------------------------------------------------------------ the result
    @property
    def result(self) -> TensorType:
        """The type of the first result."""
        first = self.results[0] if self.results else None
        if first is None:
            raise Fault("it has no tensor as its result")
        return first

    @property
    def element(self) -> Attribute:
        return self.result.element

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.result.shape

    def wants(self, index: int) -> bool:
        """Whether something uses the result of this number."""
        return index in self.used

    # ------------------------------------------------------------------ arguments
    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front; a scalar counts as of one dim."""
        if not -max(rank, 1) <= axis < max(rank, 1):
            raise Fault(f"axis {axis} is out of range for {rank} dims")
        return axis % max(rank, 1)

    def axes(self, given: Sequence[int] | int | None, rank: int) -> list[int]:
        """Axes sorted and counted from the front; all of them for None or none."""
        listed = [given] if isinstance(given, int) else given
        if not listed:
            return list(range(rank))
        return sorted({self.axis(int(a), rank) for a in listed} & set(range(rank)))

    def integer(self, size: Size, what: str) -> int:
        """A size that must be constant. Raises Fault."""
        size = Expr.of(size)
        if size.constant is None:
            raise Fault(f"its {what} depend on the size {size}, but must be constant",
                        f"fix the size, for instance with --dim {min(size.symbols)}=1")
        return size.constant

    def integers(self, sizes: Sequence[Size], what: str) -> list[int]:
        return [self.integer(s, what) for s in sizes]

    # ------------------------------------------------------------------ small things to build with
    def scalar(self, number: Size | float | bool, element: Attribute) -> Value:
        """A constant, or a size, of no dims."""
        if isinstance(number, Expr):
            return self.cast(self.of_size(number), element)
        return self.constant(np.array(number).astype(t.tensor(element, ()).dtype))

    def constant(self, array: Array) -> Value:
        return constant(np.asarray(array), node=self.name)

    def of_size(self, size: Size) -> Value:
        """An i64 tensor of no dims that holds a size."""
        contents = np.empty((), object)
        contents[()] = Expr.of(size)
        return computed(contents, t.tensor(t.i64, ()), self.name)

    def range(self, count: Size, element: Attribute = t.i64, start: Size = 0) -> Value:
        """start, start + 1, ..."""
        return self(RangeOp, start=Expr.of(start), step=1, count=Expr.of(count), to=element)

    def cast(self, x: Value, element: Attribute) -> Value:
        return x if x.element == element else self(CastOp, x, to=element)

    def reshape(self, x: Value, shape: Sequence[Size]) -> Value:
        """x in another shape; x itself where the shape is the same."""
        same = x.shape == tuple(map(Expr.of, shape))
        return x if same else self(ReshapeOp, x, shape=list(shape))

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """x with permuted dims; x itself where they stay in place."""
        same = list(perm) == list(range(x.rank))
        return x if same else self(TransposeOp, x, perm=list(perm))

    def swap(self, x: Value, first: int = -2, second: int = -1) -> Value:
        """x with two dims exchanged."""
        perm = list(range(x.rank))
        perm[first], perm[second] = perm[second], perm[first]
        return self.transpose(x, perm)

    def broadcast(self, x: Value, shape: Sequence[Size]) -> Value:
        same = x.shape == tuple(map(Expr.of, shape))
        return x if same else self(BroadcastOp, x, shape=list(shape))

    def part(self, x: Value, axis: int, start: Size, size: Size, step: int = 1) -> Value:
        """Elements of one axis from `start` on; x itself where that is all of them."""
        if Expr.of(size) == x.shape[axis] and step == 1:
            return x
        starts, sizes, steps = [Expr.of(0)] * x.rank, list(x.shape), [1] * x.rank
        starts[axis], sizes[axis], steps[axis] = Expr.of(start), Expr.of(size), step
        return self(SliceOp, x, starts=starts, sizes=sizes, steps=steps)

    def channelwise(self, x: Value, rank: int) -> Value:
        """A parameter with one element per channel, shaped to fit [n, c, s...] of this rank."""
        return self.reshape(x, [x.type.count, *[1] * (rank - 2)])
