"""Delta debugging: finds a small part of a list that still fails (Zeller, Hildebrandt, 2002)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item")


def ddmin(items: Sequence[Item], fails: Callable[[list[Item]], bool]) -> list[Item]:
    """A part of `items` that fails and is 1-minimal: it passes without any single item.

    `fails` is assumed to hold for `items`. Chunks are tried first, then their complements, with
    decreasing chunk sizes.
    """
    left, count = list(items), 2
    while len(left) >= 2:
        smaller = _smaller(left, count, fails)
        if smaller is not None:
            is_chunk = len(smaller) <= len(left) // count + 1
            left, count = smaller, 2 if is_chunk else max(count - 1, 2)
        elif count >= len(left):
            break
        else:
            count = min(2 * count, len(left))
    return left


def _smaller(
    items: list[Item], count: int, fails: Callable[[list[Item]], bool]
) -> list[Item] | None:
    """A chunk that fails, or the complement of one."""
    chunks = _chunks(items, count)
    for chunk in chunks:
        if fails(chunk):
            return chunk
    if count == 2:  # the complement is the other chunk
        return None
    for k in range(len(chunks)):
        rest = [item for j, chunk in enumerate(chunks) if j != k for item in chunk]
        if fails(rest):
            return rest
    return None


def _chunks(items: list[Item], count: int) -> list[list[Item]]:
    bounds = [len(items) * k // count for k in range(count + 1)]
    return [items[a:b] for a, b in pairwise(bounds) if a < b]
