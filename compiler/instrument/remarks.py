"""Collects the remarks of passes, and prints each reason once with its count.

    note: not fused: 31 x it works on other axes, 12 x a contraction starts a kernel
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from compiler.instrument import Instrument
from compiler.io.printing import show

if TYPE_CHECKING:
    from compiler.pipeline.state import State
    from passes.base import Remark


class Remarks(Instrument):
    """The remarks of a compilation, available after its passes."""

    wants_passes = False

    def __init__(self) -> None:
        self.found: Sequence[Remark] = ()

    def finish(self, state: State) -> None:
        self.found = state.context.remarks

    def show(self, each: bool) -> None:
        """Print them on standard error: `each` with its node, or counted."""
        lines = [str(remark) for remark in self.found] if each else counted(
            remark.text for remark in self.found)
        for line in lines:
            show(f"note: {line}", file=sys.stderr)


def counted(texts: Iterable[str]) -> list[str]:
    """One line per kind of remark (the text before a colon), with its reasons by frequency."""
    kinds: dict[str, Counter[str]] = {}
    for text in texts:
        kind, _, reason = text.partition(": ")
        kinds.setdefault(kind, Counter())[reason] += 1
    return [_line(kind, reasons) for kind, reasons in kinds.items()]


def _line(kind: str, reasons: Counter[str]) -> str:
    texts = [f"{count} x {reason}" if count > 1 else reason
            for reason, count in reasons.most_common()]
    if not any(reasons):  # remarks without a colon
        return kind if reasons.total() == 1 else f"{reasons.total()} x {kind}"
    return f"{kind}: {', '.join(texts)}"
