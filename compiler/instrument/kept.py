"""Tracks how much compiled code is in the cache, for the report on Ctrl-C."""

from __future__ import annotations

from compiler.instrument import Instrument
from dialects.records import dataclass
from targets.files import folder_fault

MAKING_CODE = "making code"
"""The name of the phase in which targets compile."""


@dataclass
class KeptCode(Instrument):
    """`folder`: the cache, or None. Code is stored before it is counted."""

    wants_passes = False

    folder: str | None
    done: int = 0
    total: int = 0
    is_code: bool = False
    """Whether code is being counted."""

    def report(self, phase: str) -> None:
        self.is_code = phase.endswith(MAKING_CODE)

    def count(self, done: int, total: int, seconds: float | None = None) -> None:
        if self.is_code and total:
            self.done, self.total = done, total

    def __str__(self) -> str:
        """`12 of 41 pieces of code are compiled and kept; ...`; or an empty string."""
        if not self.done or self.folder is None or folder_fault(self.folder):
            return ""
        return (f"{self.done} of {self.total} pieces of code are compiled and kept; the same "
                "command goes on from there")
