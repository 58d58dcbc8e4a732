"""Instruments: they watch a module as it goes through the pipeline, and change nothing.

    dump         writes the text after every pass that changed something
    timing       measures the passes
    verify       executes the module after every pass and compares the numbers
    progress     tells on the terminal what is being done
    provenance   (for these) which operations have lost their model node
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step


class Instrument:
    """What an instrument may do. By default it does nothing."""

    wants_passes: bool = True
    """Whether passes must run for it, also where the compiled model is in the cache."""
    wants_changes: bool = False
    """Whether `changed` must be told truly; that costs a printout after every pass."""

    def tell(self, phase: str) -> None:
        """Something other than a pass begins."""

    def count(self, done: int, total: int, seconds: float | None = None) -> None:
        """So much of the work is done. `seconds`: what the rest takes, where that is known."""

    def start(self, state: State) -> None:
        """Before the first pass; the module is as it was read."""

    def before(self, step: Step, state: State) -> None:
        """Before a pass."""

    def after(self, step: Step, state: State, seconds: float, changed: bool) -> None:
        """After a pass; `state.level` is the level that holds now."""

    def finish(self, state: State) -> None:
        """After the last pass."""

    def emitted(self, level: str, text: str, seconds: float) -> None:
        """The target has made code."""
