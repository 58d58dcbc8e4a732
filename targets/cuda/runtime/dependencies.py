"""Which steps depend on which: those that access the same bytes, where one of the two writes.

Steps without a dependency may run in parallel, as the products for an attention's query, key and
value do. The number of parallel chains is a fact of the device, because the host launches a chain
of CUDA graph nodes at once, but spends extra time on every node that starts a new chain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple


class Access(NamedTuple):
    """Bytes of a memory, from `start` to `end` (exclusive), that a step reads or writes."""

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
    """For each step, the earlier steps that it waits for directly.

    A step that one of these already waits for is left out.

    At most `lanes` chains of steps run in parallel. A step that would start one more chain also
    waits for the chain whose last step is the oldest.
    """
    touched: defaultdict[int, list[tuple[Access, int]]] = defaultdict(list)
    preceding: list[int] = []
    """For each step, as a bit mask, all the steps before it in the order of dependencies."""
    waits: list[list[int]] = []
    ends: list[int] = []
    """The last step of each lane."""
    for number, accesses in enumerate(steps):
        found = {n for a in accesses for other, n in touched[a.memory] if a.conflicts(other)}
        followed = [n for n in ends if _bits(found, preceding) >> n & 1]
        if not followed and len(ends) == lanes:
            found.add(ends[0])
            followed = ends[:1]
        ends = [*(n for n in ends if n not in followed[-1:]), number]
        waits.append(_nearest(found, preceding))
        preceding.append(_bits(found, preceding))
        for a in accesses:
            kept = [(other, n) for other, n in touched[a.memory] if not a.covers(other)]
            touched[a.memory] = [*kept, (a, number)]
    return waits


def _bits(steps: Iterable[int], preceding: Sequence[int]) -> int:
    """A bit mask of steps and all the steps before them in the order of dependencies."""
    bits = 0
    for step in steps:
        bits |= preceding[step] | 1 << step
    return bits


def _nearest(found: Collection[int], preceding: Sequence[int]) -> list[int]:
    """The steps that come before no other of the given steps."""
    passed = 0
    for step in found:
        passed |= preceding[step]
    return sorted(step for step in found if not passed >> step & 1)
