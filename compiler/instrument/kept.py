"""Knows, at any moment, how much compiled code is in the cache: what Ctrl-C tells of it."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.instrument import Instrument
from targets.files import folder_fault

MAKING_CODE = "making code"
"""How the phase is called in which targets compile."""


@dataclass
class KeptCode(Instrument):
    """`folder`: the cache, None for none. What has its code is kept before it is counted."""

    wants_passes = False

    folder: str | None
    done: int = 0
    total: int = 0
    is_code: bool = False
    """Whether what is counted is code."""

    def tell(self, phase: str) -> None:
        self.is_code = phase.endswith(MAKING_CODE)

    def count(self, done: int, total: int, seconds: float | None = None) -> None:
        if self.is_code:
            self.done, self.total = done, total

    def __str__(self) -> str:
        """`12 of 41 pieces of code are compiled and kept; ...`; empty where nothing is."""
        if not self.done or self.folder is None or folder_fault(self.folder):
            return ""
        return (f"{self.done} of {self.total} pieces of code are compiled and kept; the same "
                "command goes on from there")
