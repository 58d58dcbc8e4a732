"""How the trees of an ensemble are grouped, to be descended together.

The trees of a group take the same number of steps, that of its deepest tree. Few groups mean few
kernels, and many groups mean few steps that a shallow tree takes in vain. A group is an array of
trees [parts, trees]. The sums of its parts are computed apart: by other threads if there is a
single row, and one after the other, so that the nodes of a part stay in caches, if there are many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dialects.strata.types import Array

KERNEL_STEPS = 500
"""A further kernel must save so many steps per row. A step takes about a nanosecond."""
MOST_DEPTHS = 64
"""The number of depths between which groups may be divided."""
PART_NODES, PART_STEPS = 1 << 14, 1 << 10
"""The most nodes of a part, and the steps of a group from which it is worth another part."""
PART_TREES = 16
"""About the fewest trees of a part, which are descended at the same time even for a single row."""
MOST_PARTS = 4
"""The parts of a group whose nodes fit into one: as many threads may share one row."""
WASTE = 1.5
"""The most trees with which targets may be filled up to equal numbers, relative to all trees."""


@dataclass(frozen=True)
class Group:
    """Trees [..., trees], and the number of steps in which all of them reach a leaf."""

    trees: Array
    steps: int


def grouped(depths: Array, sizes: Array, filler: int | None) -> list[Group]:
    """Groups of trees [parts, trees]. The filler, or another tree of the group if there is none,
    fills up the last part."""
    order = np.argsort(depths, kind="stable")
    return [_in_parts(order[span], depths, sizes, filler)
            for span in _spans(depths[order], np.ones(len(order), np.int64))]


def by_target(depths: Array, targets: Array, count: int, filler: int) -> list[Group] | None:
    """Groups of trees [targets, trees], whose leaves only vote for one target each.

    `targets`: that target of each tree. None if the numbers of their trees are too different.
    """
    order = np.lexsort((-depths, targets))
    numbers = np.bincount(targets, minlength=count)
    longest = int(numbers.max(initial=0))
    if count * longest > WASTE * len(depths):
        return None
    trees = np.full((count, longest), filler)
    starts = np.cumsum(numbers) - numbers
    trees[targets[order], np.arange(len(order)) - starts[targets[order]]] = order
    known = np.append(depths, 0)[np.minimum(trees, len(depths))]  # the filler has no steps
    deepest = known.max(axis=0, initial=0)[::-1]
    return [Group(trees[:, ::-1][:, span], int(deepest[span].max(initial=0)))
            for span in _spans(deepest, np.full(longest, count))]


def _in_parts(trees: Array, depths: Array, sizes: Array, filler: int | None) -> Group:
    steps = int(depths[trees].max(initial=0))
    wanted = max(-(-int(sizes[trees].sum()) // PART_NODES),
                 min(MOST_PARTS, steps * len(trees) // PART_STEPS))
    parts = max(min(wanted, -(-len(trees) // PART_TREES)), 1)
    each = -(-len(trees) // parts)
    parts = -(-len(trees) // max(each, 1))
    filled = np.full(parts * each, trees[-1] if filler is None else filler)
    filled[:len(trees)] = trees
    return Group(filled.reshape(parts, each), steps)


# ---------------------------------------------------------------------- where to divide
def _spans(depths: Array, trees: Array) -> list[slice]:
    """Divide ascending depths, each that of so many trees, so that the fewest steps are taken."""
    ends = _ends(depths)
    total = np.concatenate([[0], np.cumsum(trees)])
    best: list[tuple[float, Sequence[int]]] = [(0.0, ())]
    for k, end in enumerate(ends):
        firsts = [0, *ends[:k]]
        costs = [best[j][0] + KERNEL_STEPS + float(total[end] - total[first]) * float(
            depths[end - 1]) for j, first in enumerate(firsts)]
        j = int(np.argmin(costs))
        best.append((costs[j], (*best[j][1], end)))
    cuts = [0, *best[-1][1]]
    return [slice(a, b) for a, b in pairwise(cuts)]


def _ends(depths: Array) -> list[int]:
    """Where a group may end: after the last of equal depths; at most MOST_DEPTHS places."""
    found = np.append(np.flatnonzero(np.diff(depths)) + 1, len(depths)) if len(depths) else (
        np.zeros(0, np.int64))
    chosen = np.unique(np.linspace(0, len(found) - 1, min(len(found), MOST_DEPTHS)).astype(int))
    return found[chosen].tolist()
