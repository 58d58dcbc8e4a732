"""The base of nodes in all frontends: what importers build operations with, besides formulas.

`n(PadOp, x, low=..., high=...)` builds an operation and returns its value. What arithmetic and
`formulas.py` can express is written with these instead: `x / (1 + abs(x))`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from compiler.frontend.builder import Builder
from compiler.frontend.faults import Fault
from compiler.frontend.values import Value, constant, of_size
from dialects.graph.base import GraphOp
from dialects.graph.constant import RangeOp
from dialects.graph.window import Window
from dialects.records import dataclass
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

    # ------------------------------------------------------------------ constants
    def constant(self, array: Array) -> Value:
        return constant(self.build, np.asarray(array), node=self.name)

    def of_size(self, size: Size) -> Value:
        """An i64 tensor of no dims that holds a size."""
        return of_size(self.build, size)

    def range(
        self, count: Size, element: Attribute = t.i64, *, start: Size = 0, step: Size = 1
    ) -> Value:
        """The numbers start, start + step, ..., of which there are `count`."""
        return self(RangeOp, start=start, step=step, count=count, to=element)

    # ------------------------------------------------------------------ checks at run time
    def require(self, low: Size, values: Value, high: Size) -> None:
        """Add a run-time check that the elements of an integer tensor are in [low, high).

        Raises Fault for floats: PyTorch refuses them as indices only when it runs.
        """
        if t.is_float(values.element):
            raise Fault(f"its indices are {values.element}, but must be integers")
        self.build.require(low, values, high)

    def require_index(self, values: Value, size: Size) -> None:
        """The same as `require`, for indices into a dim of this size, which may be negative."""
        self.require(-Expr.of(size), values, size)

    def require_vectors(self, vectors: Value, sizes: Sequence[Size]) -> None:
        """The same as `require_index`, for vectors of indices.

        Entry k of the last dim is an index into a dim of `sizes[k]`.
        """
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
        return x.part(x.rank - 1, k, 1)

    def whole_windows(self, x: Value, window: Window) -> None:
        """Add a run-time check that windows are not larger than the padded spatial dims of x."""
        for dim, size in enumerate(x.shape[2:]):
            if least(window.room(size, dim)) < 0:
                self.build.assume(0, "<=", window.room(size, dim))
