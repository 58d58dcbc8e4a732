"""How many rewrites passes may make: `bisect` allows the first so many, to find a wrong one.

A rewrite counts where a pass can go on without it: the driver of rules asks before it tries a rule,
`replace` before it replaces, and passes without rules ask before they change a kernel, a call or a
group of operations. Whatever is left out, the module is whole. Passes are deterministic, so a
number always stands for the same rewrite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation

from dialects.records import dataclass
from dialects.text.syntax import location_names


class Rewritten(NamedTuple):
    """What a rewrite changes. `operation`: its kind and symbol; `nodes`: those of the model."""

    rule: str
    operation: str
    nodes: tuple[str, ...]

    @staticmethod
    def of(rule: str, op: Operation) -> Rewritten:
        symbol = op.properties.get("sym_name") or op.properties.get("kernel")
        name = f"{op.name} @{symbol.data}" if isinstance(symbol, StringAttr) else op.name
        return Rewritten(rule, name, tuple(location_names(op)))


@dataclass
class Allowance:
    """`most`: the number of rewrites allowed; None for any number. `done`: those made so far.

    If `watched`, `last` is the last rewrite that was allowed, `tried` what a rule was tried on
    since, and `tell` is called whenever one of them changes.
    """

    most: int | None = None
    watched: bool = False
    tell: Callable[[], None] | None = None
    done: int = 0
    last: Rewritten | None = None
    tried: Rewritten | None = None

    @property
    def is_spent(self) -> bool:
        return self.most is not None and self.done >= self.most

    def take(self, op: Operation, rule: str) -> bool:
        """Whether `op` may be rewritten. If so, it counts."""
        if self.is_spent:
            return False
        self.done += 1
        if self.watched:
            self.last, self.tried = Rewritten.of(rule, op), None
            self._told()
        return True

    def attempt(self, op: Operation, rule: str) -> None:
        """Keep what is tried now, in case that it fails."""
        self.tried = Rewritten.of(rule, op)
        self._told()

    def _told(self) -> None:
        if self.tell is not None:
            self.tell()
