"""The results of a nest as arrays, with their index expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from dialects.loop.nest import NestOp
from dialects.records import dataclass
from dialects.semantics.domain import Domain, Ranges, cut, view_of
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
            value = (self._scanned(full, axes[0]) if self.is_scan
                     else reduced(REDUCERS[self.kind], full, axes, value.dtype))
        self.write(ranges, value)

    def _scanned(self, values: Array, axis: int) -> Array:
        """The running values along an axis, or the sorted ones."""
        if self.kind == "sort":
            return np.sort(values, axis)
        return REDUCERS[self.kind].accumulate(values, axis, values.dtype)

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
    start = {"max": lowest(dtype), "min": highest(dtype), "sort": highest(dtype), "mul": 1}.get(
        kind, 0)
    return np.asarray(start).astype(dtype)
