"""Which steps wait for which: those that touch the same bytes, where one of the two writes.

What waits for nobody else may run side by side, as the products of an attention's inputs do. Only
so much: the host launches a chain of nodes at once, but every node that begins one by itself, which
takes it time of its own. So the device's facts say how many chains there are.
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


def waits_of(steps: Sequence[Collection[Access]], lanes: int) -> list[list[int]]:
    """For each step the earlier ones that it waits for, without those that these wait for.

    At most so many `lanes` of steps run side by side: one that follows the last step of none waits
    for the lane that was left first, too.
    """
    touched: defaultdict[int, list[tuple[Access, int]]] = defaultdict(list)
    behind: list[int] = []
    """For each step, as bits, all that it comes behind."""
    waits: list[list[int]] = []
    ends: list[int] = []
    """The last steps of the lanes."""
    for number, accesses in enumerate(steps):
        found = {n for a in accesses for other, n in touched[a.memory] if a.conflicts(other)}
        followed = [n for n in ends if _bits(found, behind) >> n & 1]
        if not followed and len(ends) == lanes:
            found.add(ends[0])
            followed = ends[:1]
        ends = [*(n for n in ends if n not in followed[-1:]), number]
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
