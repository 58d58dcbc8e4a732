"""The base of nodes in all frontends: helpers with which importers build operations.

`n(AddOp, x, y)` builds an operation and returns its value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from compiler.frontend.builder import Builder
from compiler.frontend.faults import Fault
from compiler.frontend.values import Value, computed, constant
from dialects.graph.base import GraphOp
from dialects.graph.shape import BroadcastOp, ReshapeOp, SliceOp, TransposeOp
from dialects.graph.unary import CastOp
from dialects.graph.window import Window
from dialects.strata import types as t
from dialects.strata.types import Array
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.ranges import least


def fixed(size: Size, what: str) -> int:
    """A size that must be constant. Raises Fault for one that is not."""
    size = Expr.of(size)
    if size.constant is None:
        raise Fault(f"its {what} depend on the size {size}, but must be constant",
                    f"fix the size, for instance with --dim {min(size.symbols)}=1")
    return size.constant


@dataclass(eq=False)
class NodeBase:
    """The node that is being imported."""

    name: str
    build: Builder

    def __call__(self, op_type: type[GraphOp], *operands: Value, **attributes: Any) -> Value:
        return self.build(op_type, *operands, **attributes)

    def constant(self, array: Array) -> Value:
        return constant(np.asarray(array), node=self.name)

    def of_size(self, size: Size) -> Value:
        """An i64 tensor of no dims that holds a size."""
        contents = np.empty((), object)
        contents[()] = Expr.of(size)
        return computed(contents, t.tensor(t.i64, ()), self.name)

    def cast(self, x: Value, element: Attribute) -> Value:
        return x if x.element == element else self(CastOp, x, to=element)

    def reshape(self, x: Value, shape: Sequence[Size]) -> Value:
        """x in another shape; x itself if the shape is the same."""
        return x if _has_shape(x, shape) else self(ReshapeOp, x, shape=list(shape))

    def broadcast(self, x: Value, shape: Sequence[Size]) -> Value:
        """x broadcast to a shape; x itself if it has that shape."""
        return x if _has_shape(x, shape) else self(BroadcastOp, x, shape=list(shape))

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """x with permuted dims; x itself for the identity."""
        same = list(perm) == list(range(x.rank))
        return x if same else self(TransposeOp, x, perm=list(perm))

    def require(self, low: Size, values: Value, high: Size) -> None:
        """Add a run-time check that the elements of an integer tensor are in [low, high)."""
        self.build.require(low, values, high)

    def require_index(self, values: Value, size: Size) -> None:
        """The same as `require` for indices into a dim; negative ones count from its end."""
        self.require(-Expr.of(size), values, size)

    def require_vectors(self, vectors: Value, sizes: Sequence[Size]) -> None:
        """The same as `require_index` for entries of the last dim, one for each of `sizes`."""
        depth = (vectors.shape[-1].constant or 0) if vectors.rank else 0
        used = list(map(Expr.of, sizes[:depth]))
        if len(set(used)) == 1:
            self.require_index(vectors, used[0])
            return
        for k, size in enumerate(used):
            self.require_index(self._column(vectors, k), size)

    def _column(self, x: Value, k: int) -> Value:
        """Entry k of the last dim."""
        if x.array is not None:
            return self.constant(x.array[..., k])
        return self.part(x, x.rank - 1, k, 1)

    def part(self, x: Value, axis: int, start: Size, size: Size, step: int = 1) -> Value:
        """Entries of one axis from `start` on; x itself if these are all entries."""
        if Expr.of(size) == x.shape[axis] and step == 1:
            return x
        starts, sizes, steps = [Expr.of(0)] * x.rank, list(x.shape), [1] * x.rank
        starts[axis], sizes[axis], steps[axis] = Expr.of(start), Expr.of(size), step
        return self(SliceOp, x, starts=starts, sizes=sizes, steps=steps)


    def whole_windows(self, x: Value, window: Window) -> None:
        """Add a run-time check that windows are not larger than the padded spatial dims of x."""
        for dim, size in enumerate(x.shape[2:]):
            if least(window.room(size, dim)) < 0:
                self.build.assume(0, "<=", window.room(size, dim))


def _has_shape(x: Value, shape: Sequence[Size]) -> bool:
    return x.shape == tuple(map(Expr.of, shape))
