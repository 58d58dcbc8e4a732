"""The iteration domain of a nest during evaluation: axes and extents, split into blocks.

Nothing here imports xDSL.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dialects.semantics.views import strided
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol

if TYPE_CHECKING:
    from dialects.strata.types import Array

Ranges = Mapping[Symbol, range]
"""A block of the domain: the values of every axis."""

Affine = tuple[dict[Symbol, int], int]
"""The coefficients of the axes, and the offset."""


class Domain(NamedTuple):
    """The axes of a nest with their extents, and the values of size symbols."""

    extents: dict[Symbol, int]
    reduce: frozenset[Symbol]
    sizes: Mapping[Symbol, int]

    @property
    def names(self) -> list[Symbol]:
        return list(self.extents)

    @property
    def reduce_dims(self) -> tuple[int, ...]:
        """The positions of the reduce axes."""
        return tuple(k for k, name in enumerate(self.extents) if name in self.reduce)

    @property
    def parallel(self) -> list[Symbol]:
        return [name for name in self.extents if name not in self.reduce]

    @property
    def whole(self) -> Ranges:
        return {name: range(extent) for name, extent in self.extents.items()}

    def blocks(self, split: Sequence[Symbol], limit: int) -> Iterator[Ranges]:
        """Split the axes `split` so that a block has at most about `limit` points along them."""
        steps: list[list[range]] = []
        for k, name in enumerate(split):
            inner = math.prod(self.extents[n] for n in split[k + 1:])
            extent = self.extents[name]
            step = min(max(limit // inner, 1), extent)
            steps.append([range(s, min(s + step, extent)) for s in range(0, extent, step)])
        for chosen in itertools.product(*steps):
            yield {**self.whole, **dict(zip(split, chosen, strict=True))}

    def grid(self, ranges: Ranges, names: Collection[Symbol]) -> dict[Symbol, Array]:
        """The values of the axes `names` within a block, each along its own dim."""
        return {name: np.arange(r.start, r.stop).reshape(_along(k, len(ranges)))
                for k, (name, r) in enumerate(ranges.items()) if name in names}

    def affine_map(self, map_: Sequence[Expr]) -> list[Affine] | None:
        """All expressions of a reference in affine form; None if one is not affine."""
        known = [a for a in map(self._affine, map_) if a is not None]
        return known if len(known) == len(map_) else None

    def _affine(self, expr: Expr) -> Affine | None:
        split = expr.linear(self.extents)
        if split is None or not split[1].symbols <= self.sizes.keys():
            return None
        if not all(c.symbols <= self.sizes.keys() for c in split[0].values()):
            return None
        factors = {name: int(c.evaluate(self.sizes)) for name, c in split[0].items()}
        return factors, int(split[1].evaluate(self.sizes))

    def bounds(self, factors: Mapping[Symbol, int], offset: int) -> tuple[int, int]:
        """The smallest and largest value of an affine expression; no extent may be 0."""
        spans = [factor * (self.extents[name] - 1) for name, factor in factors.items()]
        return (offset + sum(min(s, 0) for s in spans), offset + sum(max(s, 0) for s in spans))


def _along(dim: int, rank: int) -> tuple[int, ...]:
    return tuple(-1 if k == dim else 1 for k in range(rank))


def cut(view: Array, ranges: Ranges) -> Array:
    """The part of an array over the whole domain that belongs to a block; dims of size 1 remain."""
    return view[(..., *(slice(None) if size == 1 else slice(r.start, r.stop)
                        for size, r in zip(view.shape, ranges.values(), strict=True)))]


def view_of(
    array: Array, maps: Sequence[Affine], domain: Domain, names: Sequence[Symbol]
) -> Array:
    """A view with one dim per name, of size 1 if no index depends on it."""
    steps = [sum(factors.get(name, 0) * stride
                 for (factors, _), stride in zip(maps, array.strides, strict=True))
             for name in names]
    used = {name for factors, _ in maps for name in factors}
    shape = [domain.extents[name] if name in used else 1 for name in names]
    origin = array[(..., *(slice(offset, offset + 1) for _, offset in maps))]
    return strided(origin, tuple(shape), tuple(steps))
