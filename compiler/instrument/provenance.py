"""Checks that operations keep the name of the model node that they come from.

Scalar operations and terminators inside a nest, a map or a kernel belong to it and are not counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from compiler.instrument import Instrument
from dialects.syntax import location_name

if TYPE_CHECKING:
    from xdsl.ir import Operation

    from compiler.driver import State
    from compiler.pipeline import Step


@dataclass
class Provenance(Instrument):
    """After which pass how many operations have no model node, by operation name."""

    lost: dict[str, Counter[str]] = field(default_factory=dict[str, "Counter[str]"])

    def after(self, step: Step, state: State, seconds: float, changed: bool) -> None:
        without = without_node(state.module)
        if without:
            self.lost[step.name] = without


def without_node(module: Operation) -> Counter[str]:
    """The tensor operations, nests and launches of a module that name no model node."""
    from xdsl.traits import IsTerminator, SymbolOpInterface

    return Counter(
        op.name for op in module.walk()
        if op.parent_op() is not None and not location_name(op)
        and op.name.split(".")[0] not in ("arith", "math")
        and not op.has_trait(IsTerminator) and not op.has_trait(SymbolOpInterface))


def nodes_of(module: Operation) -> list[str]:
    """The model nodes that a module's operations come from, in order of appearance."""
    names = (location_name(op) for op in module.walk())
    return list(dict.fromkeys(name for name in names if name))
