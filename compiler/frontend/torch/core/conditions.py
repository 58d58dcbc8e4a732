"""Conditions on sizes, of which a program makes the truth value that `torch.cond` takes.

    torch.cond(x.shape[0] > 4, ...)     ->     %c = greater n, 4 : i1[]

At fixed sizes PyTorch itself decides. At open ones both branches are compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import ge, gt, le, lt
from typing import Any

import numpy as np

from compiler.frontend.builder import Builder
from compiler.frontend.faults import Fault
from compiler.frontend.torch.sizes import Sizes
from compiler.frontend.values import Value, combined, constant, of_size
from dialects.graph.logic import EqualOp


@dataclass(frozen=True)
class Condition:
    """What a SymBool says, as a SymPy expression over the symbols of `sizes`."""

    expr: Any
    sizes: Sizes

    def value(self, build: Builder) -> Value:
        """The truth value as i1[]. Raises Fault for what size expressions cannot represent."""
        kind = type(self.expr).__name__
        if kind in ("BooleanTrue", "BooleanFalse"):
            return constant(build, np.array(kind == "BooleanTrue"), node=build.node)
        if kind in _RELATIONS:
            left, right = (of_size(build, self.sizes.expression(a)) for a in self.expr.args)
            return _RELATIONS[kind](left, right)
        parts = [Condition(a, self.sizes).value(build) for a in getattr(self.expr, "args", ())]
        if kind == "Not":
            return ~parts[0]
        if kind not in _CONNECTIVES:
            raise Fault(f"the condition {self.expr} contains {kind}, which is not supported")
        return reduce(_CONNECTIVES[kind], parts)


def condition_on(meta: Any, sizes: Sizes) -> Condition | None:
    """The condition that a node computes. `meta`: the example value of its result."""
    return Condition(meta.node.expr, sizes) if type(meta).__name__ == "SymBool" else None


def equal(left: Value, right: Value) -> Value:
    """Whether two numbers are equal, as i1[]."""
    return combined(EqualOp, left, right)


_RELATIONS: Mapping[str, Callable[[Value, Value], Value]] = {
    "Equality": equal, "Unequality": lambda a, b: ~equal(a, b),
    "LessThan": le, "GreaterThan": ge, "StrictLessThan": lt, "StrictGreaterThan": gt,
}
_CONNECTIVES: Mapping[str, Callable[[Value, Value], Value]] = {
    "And": lambda a, b: a & b, "Or": lambda a, b: a | b}
