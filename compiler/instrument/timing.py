"""Measures passes: their time in seconds and the number of operations after each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from compiler.instrument import Instrument

if TYPE_CHECKING:
    from xdsl.ir import Operation

    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step


@dataclass(frozen=True)
class PassTime:
    """One run of one pass."""

    name: str
    level: str
    seconds: float
    operations: int


@dataclass
class Timing(Instrument):
    """Collects one row per pass."""

    rows: list[PassTime] = field(default_factory=list[PassTime])

    def after(self, step: Step, state: State, seconds: float, changed: bool) -> None:
        self.rows.append(PassTime(step.name, state.level, seconds, count_operations(state.module)))

    def table(self) -> str:
        """The rows as text, with the slowest pass last."""
        rows = sorted(self.rows, key=lambda row: row.seconds)
        lines = [f"{r.seconds:9.3f} s  {r.operations:7} ops  {r.name}" for r in rows]
        total = sum(r.seconds for r in rows)
        return "\n".join([*lines, f"{total:9.3f} s  in {len(rows)} passes"])


def count_operations(module: Operation) -> int:
    """The number of operations inside a module, including nested ones."""
    return sum(1 for _ in module.walk()) - 1
