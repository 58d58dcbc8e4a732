"""A tensor that a nest reads, as an array with its index expressions. Nothing here imports xDSL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dialects.semantics.carriers import as_in
from dialects.semantics.domain import Domain, view_of
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol

if TYPE_CHECKING:
    from dialects.strata.types import Array


class Input(NamedTuple):
    """A tensor, its index expressions, and the pad value (None: reads outside are errors)."""

    array: Array
    map: Sequence[Expr]
    pad: float | bool | None

    def view(self, domain: Domain) -> Array | None:
        """The elements for the whole domain as a view (of a padded copy); None if not affine."""
        known = domain.affine_map(self.map)
        if known is None:
            return None
        margins = [self._margin(dim, *domain.bounds(*m)) for dim, m in enumerate(known)]
        shifted = [(factors, offset + low)
                   for (factors, offset), (low, _) in zip(known, margins, strict=True)]
        return view_of(self._padded(margins), shifted, domain, domain.names)

    def _margin(self, dim: int, first: int, last: int) -> tuple[int, int]:
        """How far reads from `first` to `last` extend past both ends of a dim."""
        low, high = max(-first, 0), max(last + 1 - self.array.shape[dim], 0)
        if (low or high) and self.pad is None:
            self._complain(dim, first, last)
        return low, high

    def _complain(self, dim: int, first: int, last: int) -> None:
        raise IndexError(f"loop.nest reads elements {first} to {last}, by {self.map[dim]}, "
                         f"of dim {dim} of size {self.array.shape[dim]}")

    def _padded(self, margins: Sequence[tuple[int, int]]) -> Array:
        if not any(low or high for low, high in margins):
            return self.array
        sizes = zip(self.array.shape, margins, strict=True)
        shape = [s + low + high for s, (low, high) in sizes]
        result = as_in(np.full(shape, self.pad, self.array.dtype), self.array)
        inner = zip(self.array.shape, margins, strict=True)
        result[tuple(slice(low, low + s) for s, (low, _) in inner)] = self.array
        return result

    def gather(self, values: Mapping[Symbol, Any]) -> Array:
        """The elements at computed indices: `values` holds axes, sizes and gathered inputs."""
        inside = np.ones((), np.bool_)
        terms: dict[tuple[int, ...], Array] = {}  # by shape, so that few large arrays are added
        step = self.array.size
        for dim, (expr, size) in enumerate(zip(self.map, self.array.shape, strict=True)):
            index = np.asarray(expr.evaluate(values), np.int64)
            first, last = int(index.min()), int(index.max())
            if first < 0 or last >= size:
                if self.pad is None:
                    self._complain(dim, first, last)
                inside = inside & (index >= 0) & (index < size)
                index = np.clip(index, 0, max(size - 1, 0))
            step //= max(size, 1)
            terms[index.shape] = terms.get(index.shape, np.int64(0)) + index * step
        flat = np.asarray(sum(sorted(terms.values(), key=np.size)), np.int64)
        if not self.array.size:
            return np.full(flat.shape, self.pad, self.array.dtype)
        found = self.array.reshape(-1).take(flat)
        pad = self.array.dtype.type(self.pad or 0)
        return found if inside.all() else np.where(inside, found, pad)
