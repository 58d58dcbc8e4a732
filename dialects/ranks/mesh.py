"""A mesh: the ranks of a program, arranged along named axes, such as `dp=2,tp=4`.

Ranks are numbered in row-major order, so that neighbours differ along the last axis. Nothing here
imports xDSL.
"""

from __future__ import annotations

from itertools import product
from math import prod

from dialects.ranks.collectives import Group
from dialects.records import dataclass

AXES = ("dp", "tp", "sp")
"""The axes that there are: data parallel (rows of inputs), tensor parallel (weights), sequence
parallel (positions in sequences)."""


@dataclass(frozen=True)
class Mesh:
    """The axes with their sizes, in order."""

    axes: tuple[tuple[str, int], ...]

    @staticmethod
    def parse(text: str) -> Mesh:
        """The mesh that a text such as `dp=2,tp=4` describes. Raises ValueError."""
        found: dict[str, int] = {}
        for part in text.split(","):
            name, _, size = (word.strip() for word in part.partition("="))
            if name not in AXES:
                raise ValueError(f"{name[:40]!r} is no axis of a mesh: write "
                                 f"{' or '.join(AXES)}, as in dp=2,tp=4")
            if not size.isdecimal() or not 1 <= int(size) <= 1 << 16:
                raise ValueError(
                    f"the size of axis {name} is {size[:40]!r}, not a number from 1 on")
            if name in found:
                raise ValueError(f"axis {name} is there twice")
            found[name] = int(size)
        return Mesh(tuple(found.items()))

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes)

    @property
    def world(self) -> int:
        """The number of ranks."""
        return prod(size for _, size in self.axes)

    def size(self, axis: str) -> int:
        """The size of an axis; 1 for one that the mesh does not have."""
        return dict(self.axes).get(axis, 1)

    def group(self, axis: str) -> Group:
        """The ranks that differ along one axis only."""
        place = [name for name, _ in self.axes].index(axis)
        parts: dict[tuple[int, ...], list[int]] = {}
        for rank, at in enumerate(product(*(range(size) for _, size in self.axes))):
            parts.setdefault(at[:place] + at[place + 1:], []).append(rank)
        return Group(axis, tuple(map(tuple, parts.values())))
