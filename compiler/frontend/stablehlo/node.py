"""The view of an operation of StableHLO that its importer gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from compiler.frontend.faults import Fault
from compiler.frontend.node import NodeBase
from compiler.frontend.stablehlo.operations import Op, Region
from compiler.frontend.values import Value, scalar
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr


@dataclass(eq=False)
class Node(NodeBase):
    """The operation that is being imported. `run`: imports a region with these arguments, and
    returns what it returns. `each`: the same for tensors in the place of its numbers."""

    op: Op
    run: Callable[[Region, Sequence[Value]], list[Value]]
    each: Callable[[Region, Sequence[Value]], list[Value]]

    @property
    def result(self) -> TensorType:
        return self.op.types[-1]

    def ints(self, name: str, default: Sequence[int] = ()) -> list[int]:
        """A list of integers, however it is spelled. Raises Fault for another attribute."""
        found: Any = self.op.attributes.get(name, default)
        listed: Any = found.reshape(-1).tolist() if hasattr(found, "reshape") else found
        if not isinstance(listed, (list, tuple)):
            raise Fault(f"its {name} must be a list of integers, not {found}")
        numbers = cast("Sequence[Any]", listed)
        if not all(isinstance(v, int) for v in numbers):
            raise Fault(f"its {name} must be a list of integers, not {found}")
        return [int(v) for v in numbers]

    def number(self, name: str, default: int | None = None) -> int:
        found = self.op.attributes.get(name, default)
        if not isinstance(found, int):
            raise Fault(f"its {name} must be an integer, not {found}")
        return found

    def scalar(self, number: float, like: Value) -> Value:
        return scalar(self.build, number, like.element)

    def sizes(self, value: Value, what: str) -> list[Expr]:
        """The elements of a tensor as sizes, which are bound if only a run knows them."""
        found = self.build.bind(value, what)
        if found is None:
            raise Fault(f"its {what} cannot be sizes")
        return [Expr.of(size) for size in found.reshape(-1)]
