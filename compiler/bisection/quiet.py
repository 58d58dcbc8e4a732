"""A compiler for trials: what fails is expected to, so it leaves no folder with a reproducer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compiler.faults import CompilerFault, Reproducer
from compiler.pipeline.driver import Compiler

if TYPE_CHECKING:
    from pathlib import Path

    from compiler.pipeline.plan import PlannedStep
    from compiler.pipeline.state import State


class _Unwritten(Reproducer):
    def write(self) -> Path | None:
        return None


class QuietCompiler(Compiler):
    """Does not replay passes that fail."""

    def reproducer(
        self, fault: CompilerFault, ran: Sequence[PlannedStep], state: State | None
    ) -> Reproducer:
        return _Unwritten(fault, "", "", None, None)
