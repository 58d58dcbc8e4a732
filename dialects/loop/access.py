"""The inputs and results of a nest as arrays, with their index expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dialects.loop.domain import Domain, Ranges, cut, view_of
from dialects.loop.nest import NestOp
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import highest, lowest
from dialects.semantics.sums import reduced
from dialects.strata.types import Array, TensorType
from dialects.strata.weights import aligned_zeros
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol

REDUCERS: dict[str, np.ufunc] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or,
}


# ---------------------------------------------------------------------- inputs
@dataclass(frozen=True)
class Input:
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
        result = np.full([s + low + high for s, (low, high) in sizes], self.pad, self.array.dtype)
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


# ---------------------------------------------------------------------- outputs
@dataclass(frozen=True)
class Output:
    """A result under construction: the array, its index expressions, and its combiner."""

    array: Array
    map: Sequence[Expr]
    kind: str
    domain: Domain
    axes: Sequence[Symbol]
    """The axes that index it."""

    @staticmethod
    def of(
        nest: NestOp, number: int, domain: Domain, context: EvaluationContext,
        into: Sequence[Array],
    ) -> Output:
        type_ = nest.results[number].type
        assert isinstance(type_, TensorType)
        array = aligned_zeros(context.shape(type_), type_.dtype)
        for rest in into:
            array[...] = rest
        axes = domain.names if nest.is_scan else domain.parallel
        return Output(array, nest.output_maps[number], nest.combiner_names[number], domain, axes)

    def combine(self, ranges: Ranges, value: Array) -> None:
        """Reduce a block's values, one dim per axis, and write them."""
        axes = self.domain.reduce_dims
        value = value.view(self.array.dtype)
        if axes:
            full = np.broadcast_to(value, [len(r) for r in ranges.values()])
            merge = REDUCERS[self.kind]
            value = (merge.accumulate(full, axes[0], value.dtype) if self.is_scan
                     else reduced(merge, full, axes, value.dtype))
        self.write(ranges, value)

    def write(self, ranges: Ranges, value: Array) -> None:
        """Store values that have, or broadcast to, one dim per axis of the output."""
        block = {name: ranges[name] for name in self.axes}
        if self.view is not None:
            cut(self.view, block)[...] = value
            return
        symbols = {**self.domain.sizes, **self.domain.grid(block, block)}
        self.array[self._places(symbols)] = value

    @cached_property
    def view(self) -> Array | None:
        """A view of the elements that the whole domain writes; None if it is not affine."""
        known = self.domain.affine_map(self.map)
        if known is None:
            return None
        for dim, affine in enumerate(known):
            self._check(dim, *self.domain.bounds(*affine))
        return view_of(self.array, known, self.domain, self.axes)

    @property
    def is_scan(self) -> bool:
        return len(self.axes) > len(self.domain.parallel)

    def merge(self, known: Mapping[Symbol, Any], value: Array) -> None:
        """Merge values one after another into elements that may occur repeatedly."""
        value, *places = np.broadcast_arrays(value.view(self.array.dtype), *self._places(known))
        if self.kind != "none":
            return REDUCERS[self.kind].at(self.array, tuple(places), value)
        self.array[tuple(places)] = value

    def _places(self, known: Mapping[Symbol, Any]) -> tuple[Array, ...]:
        """The indices, given the values of their symbols."""
        indices = tuple(np.asarray(e.evaluate(known)) for e in self.map)
        for dim, index in enumerate(indices):
            self._check(dim, int(index.min()), int(index.max()))
        return indices

    def _check(self, dim: int, first: int, last: int) -> None:
        if first < 0 or last >= self.array.shape[dim]:
            raise IndexError(f"loop.nest writes elements {first} to {last}, by {self.map[dim]}, "
                             f"of dim {dim} of size {self.array.shape[dim]}")


def identity_of(kind: str, dtype: np.dtype[Any]) -> Array:
    """The identity of a combiner."""
    if kind == "and":
        return np.asarray(-1).astype(dtype) if dtype != np.bool_ else np.asarray(True)
    start = {"max": lowest(dtype), "min": highest(dtype), "mul": 1}.get(kind, 0)
    return np.asarray(start).astype(dtype)
