"""Evaluating an operation: what it is given besides arrays, and where its meaning is written.

An operation has a method `evaluate(context, *arrays)`: it returns one array, or a sequence with one
array per result. Where the meaning is an interpreter of its own, as that of nests is, the module
`interpret` of the operation's dialect has it in a table `EVALUATIONS`, by the operation's class.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.util import find_spec

from xdsl.ir import Operation

from dialects.strata.types import Array, ExprAttr, SizesAttr, TensorType
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol

Evaluation = Callable[..., "Array | Sequence[Array]"]
"""`(context, *operands)`, and in tables `(operation, context, *operands)`."""


@dataclass
class EvaluationContext:
    """What evaluation needs besides operands: the values of size symbols, and the weights."""

    sizes: dict[Symbol, int] = field(default_factory=dict[Symbol, int])
    weights: WeightStore = field(default_factory=WeightStore)

    def int(self, attribute: ExprAttr) -> int:
        return int(attribute.data.evaluate(self.sizes))

    def ints(self, attribute: SizesAttr) -> tuple[int, ...]:
        return tuple(int(e.evaluate(self.sizes)) for e in attribute.data)

    def shape(self, type_: TensorType) -> tuple[int, ...]:
        """The run-time shape of a tensor type."""
        return self.ints(type_.sizes)


def evaluation_of(op: Operation) -> Evaluation | None:
    """What computes the results of an operation; None where it has no meaning of its own."""
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
