"""Which steps wait for which: those that touch the same bytes, where one of the two writes.

What waits for nobody else may run side by side, as the products of an attention's inputs do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple


class Access(NamedTuple):
    """Bytes of a memory, from `start` up to `end`, that a step reads or writes."""

    memory: int
    start: int
    end: int
    writes: bool

    def conflicts(self, other: Access) -> bool:
        shared = max(self.start, other.start) < min(self.end, other.end)
        return shared and (self.writes or other.writes)

    def covers(self, other: Access) -> bool:
        return self.writes and self.start <= other.start and other.end <= self.end


def waits_of(steps: Sequence[Collection[Access]]) -> list[list[int]]:
    """For each step the earlier ones that it waits for, without those that these wait for."""
    touched: defaultdict[int, list[tuple[Access, int]]] = defaultdict(list)
    behind: list[int] = []
    """For each step, as bits, all that it comes behind."""
    waits: list[list[int]] = []
    for number, accesses in enumerate(steps):
        found = {n for a in accesses for other, n in touched[a.memory] if a.conflicts(other)}
        waits.append(_nearest(found, behind))
        behind.append(_bits(found, behind))
        for a in accesses:
            kept = [(other, n) for other, n in touched[a.memory] if not a.covers(other)]
            touched[a.memory] = [*kept, (a, number)]
    return waits


def _bits(steps: Iterable[int], behind: Sequence[int]) -> int:
    """Steps, and all that they come behind."""
    bits = 0
    for step in steps:
        bits |= behind[step] | 1 << step
    return bits


def _nearest(found: Collection[int], behind: Sequence[int]) -> list[int]:
    """Those of the steps that no other of them comes behind."""
    passed = 0
    for step in found:
        passed |= behind[step]
    return sorted(step for step in found if not passed >> step & 1)
