"""Code of a graph for the signs of its integers.

    x[k:]    k >= 0: elements from the size k on
             k < 0:  elements from n - 1 - m on, with the size m = -1 - k

An integer that shapes or indices follow from is a size of compiled code, and sizes are not
negative. Code is therefore made for the signs that integers have, and once more when they have
others.

The module can be imported without torch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from compiler.diagnostics import StrataError
from compiler.faults import CompilerFault
from compiler.frontend.torch.captured_graph import CapturedGraph, is_integer
from compiler.torch.messages.logs import count_recompilation

log = logging.getLogger("strata")

P = TypeVar("P")

MOST = 8
"""The number of combinations of signs that a graph has code for."""


def for_negative(captured: CapturedGraph, names: frozenset[str]) -> CapturedGraph:
    """The same graph, of whose integers these are negative and the others are not."""
    identity = captured.identity and f"{captured.identity} negative {sorted(names)}"
    return replace(captured, negative=names, identity=identity)


def negative_when_captured(module: Any) -> frozenset[str]:
    """The names of the integers that were negative when a graph was captured."""
    return frozenset(n.name for n in module.graph.nodes
                     if is_integer(n) and (n.meta["val"].node.hint or 0) < 0)


@dataclass
class Signs(Generic[P]):
    """The code of a graph for other signs. `compile`: makes it. `known`: the names of negative
    integers -> the code for them, or None where it cannot be made."""

    captured: CapturedGraph
    compile: Callable[[CapturedGraph], P]
    known: dict[frozenset[str], P | None] = field(
        default_factory=dict[frozenset[str], "P | None"])

    def find(self, arguments: Sequence[Any], own: frozenset[str]) -> P | None:
        """The code for the arguments of a call; None if their signs are those of the caller's own
        code, or if there is no code for them."""
        nodes = [n for n in self.captured.module.graph.nodes if n.op == "placeholder"]
        names = frozenset(node.name for node, value in zip(nodes, arguments, strict=True)
                          if is_integer(node) and value < 0)
        if names != own and names not in self.known and len(self.known) < MOST:
            changed = sorted(names ^ own)
            count_recompilation(f"other signs of {', '.join(changed)}")
            self.known[names] = self._compiled(names)
        return None if names == own else self.known.get(names)

    def _compiled(self, names: frozenset[str]) -> P | None:
        try:
            return self.compile(for_negative(self.captured, names))
        except (StrataError, CompilerFault) as error:
            log.warning("strata: a graph has no code for negative %s: %s",
                        ", ".join(sorted(names)), error)
            return None
