"""How operations are evaluated: their context, and where their semantics are defined.

An operation has a method `evaluate(context, *arrays)`, which returns one array, or a sequence with
one array per result. If the semantics need an interpreter of their own, like those of nests, the
module `interpret` of the operation's dialect provides it in a table `EVALUATIONS`, keyed by the
operation's class.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from xdsl.ir import Operation

from dialects.records import dataclass
from dialects.strata.types import Array, ExprAttr, SizesAttr, TensorType
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol

if TYPE_CHECKING:
    from dialects.ranks.peers import Peers

Evaluation = Callable[..., "Array | Sequence[Array]"]
"""Called with `(context, *operands)`; in tables, with `(operation, context, *operands)`."""


@dataclass
class EvaluationContext:
    """What evaluation needs besides operands: the values of size symbols, and the weights."""

    sizes: dict[Symbol, int] = field(default_factory=dict[Symbol, int])
    weights: WeightStore = field(default_factory=WeightStore)
    call: int | None = None
    """The number of the call that is evaluated (`strata.call`): which weights its constants are."""
    carry: Callable[[Array], Array] | None = None
    """Gives floats another arithmetic (`carriers.py`); None for that of NumPy."""

    peers: Peers | None = None
    """The other ranks of a distributed program; None if there are none."""

    def carried(self, results: Sequence[Array]) -> Sequence[Array]:
        """Results of an operation, in the arithmetic of this evaluation."""
        return results if self.carry is None else [self.carry(r) for r in results]

    def int(self, attribute: ExprAttr) -> int:
        return int(attribute.data.evaluate(self.sizes))

    def ints(self, attribute: SizesAttr) -> tuple[int, ...]:
        return tuple(int(e.evaluate(self.sizes)) for e in attribute.data)

    def shape(self, type_: TensorType) -> tuple[int, ...]:
        """The run-time shape of a tensor type."""
        return self.ints(type_.sizes)


def evaluation_of(op: Operation) -> Evaluation | None:
    """The function that computes an operation's results; None if it has no semantics of its own."""
    own: Evaluation | None = getattr(op, "evaluate", None)
    if own is not None:
        return own
    found = _elsewhere(type(op))
    return None if found is None else partial(found, op)


@cache
def _elsewhere(kind: type[Operation]) -> Evaluation | None:
    name = f"{kind.__module__.rpartition('.')[0]}.interpret"
    if find_spec(name) is None:
        return None
    table: dict[type[Operation], Evaluation] = getattr(
        importlib.import_module(name), "EVALUATIONS", {})
    return table.get(kind)
