"""Instruments: they observe a module in the pipeline without changing it.

    dump         writes the text after every pass that changed something
    timing       measures the passes
    verify       executes the module after every pass and compares the numbers
    ring         does so in a ring, in which sums do not round (`preserved.py`: which passes may)
    kept_bits    finds the kernels that keep every bit in the ring, without executing them
    values       finds the first operation that computes something else than before a pass
    progress     shows progress on the terminal
    changes      prints what each pass removed, added and moved
    provenance   follows the model's nodes, and finds operations without one
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step


class Instrument:
    """The callbacks of an instrument, which do nothing by default."""

    wants_passes: bool = True
    """Whether passes must run for it even if the compiled model is in the cache."""
    wants_changes: bool = False
    """Whether it needs an accurate `changed`, which costs printing the module after every pass."""

    def report(self, phase: str) -> None:
        """Called when a phase other than a pass begins."""

    def count(self, done: int, total: int, seconds: float | None = None) -> None:
        """Called on progress. `seconds`: the remaining time, if known."""

    def start(self, state: State) -> None:
        """Called before the first pass, with the module as read."""

    def before(self, step: Step, state: State) -> None:
        """Called before a pass."""

    def after(self, step: Step, state: State, seconds: float, changed: bool) -> None:
        """Called after a pass; `state.level` is the current level."""

    def finish(self, state: State) -> None:
        """Called after the last pass."""

    def emitted(self, level: str, text: str, seconds: float) -> None:
        """Called when the target has emitted code."""
