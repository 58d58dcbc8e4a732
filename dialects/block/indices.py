"""Index values of many programs at a time.

Programs that are evaluated together form a box. Its axes are the axes of the grid, then the trips
of enclosing parallel loops; an access adds one axis per tile dim. An index value has one number
per position in the box. Most index values are linear in the positions and are kept in this form
(`Linear`), so that memory is read through strided views. The others, such as quotients and
gathered indices, are arrays with one dim per axis, of size 1 along axes that they do not depend
on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dialects.strata.types import Array
from dialects.symbolic.expr import Atom, Expr
from dialects.symbolic.symbol import Symbol

DTYPE = np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class Linear:
    """base + the sum of strides[k] * (position along axis k); further axes have stride 0."""

    base: int
    strides: tuple[int, ...] = ()

    @property
    def constant(self) -> int | None:
        """The value, if it is the same everywhere."""
        return None if any(self.strides) else self.base


Index: TypeAlias = "Linear | Array"


def unit(axis: int) -> Linear:
    """The position along one axis."""
    return Linear(0, (0,) * axis + (1,))


def add(x: Linear, y: Linear) -> Linear:
    strides = tuple(a + b for a, b in zip_longest(x.strides, y.strides, fillvalue=0))
    return Linear(x.base + y.base, strides)


def scale(x: Linear, factor: int) -> Linear:
    return Linear(x.base * factor, tuple(s * factor for s in x.strides))


class Box(NamedTuple):
    """The positions of a product of axes with these extents, each at least 1."""

    extents: tuple[int, ...]

    def array(self, index: Index) -> Array:
        """The index values as an array with one dim per axis, of size 1 where they do not vary."""
        rank = len(self.extents)
        if not isinstance(index, Linear):
            return index.reshape(index.shape + (1,) * (rank - index.ndim))
        total: Any = np.full((1,) * rank, index.base, DTYPE)
        for axis, stride in enumerate(index.strides):
            if stride:
                steps = np.arange(self.extents[axis], dtype=DTYPE) * stride
                total = total + steps.reshape((-1,) + (1,) * (rank - axis - 1))
        return total

    def bounds(self, index: Index) -> tuple[int, int]:
        """The smallest and the largest index value."""
        if not isinstance(index, Linear):
            return int(index.min()), int(index.max())
        low = high = index.base
        for stride, extent in zip(index.strides, self.extents, strict=False):
            if stride < 0:
                low += stride * (extent - 1)
            else:
                high += stride * (extent - 1)
        return low, high

    def evaluate(self, expr: Expr, lookup: Callable[[Symbol], Index]) -> Index:
        """The values of an expression, with its symbols looked up by `lookup`."""
        total: Index = Linear(0)
        for monomial, factor in expr.terms:
            product: Index = Linear(factor)
            for atom in monomial:
                product = self._multiply(product, self._atom(atom, lookup))
            total = self._add(total, product)
        return total

    def _atom(self, atom: Atom, lookup: Callable[[Symbol], Index]) -> Index:
        if isinstance(atom, Symbol):
            return lookup(atom)
        left, right = (self.evaluate(a, lookup) for a in atom.args)
        if atom.op in ("max", "min"):
            return self._extremum(atom.op, left, right)
        quotient, rest = self._divide(left, right)
        return quotient if atom.op == "floordiv" else rest

    def _add(self, x: Index, y: Index) -> Index:
        if isinstance(x, Linear) and isinstance(y, Linear):
            return add(x, y)
        return self.array(x) + self.array(y)

    def _multiply(self, x: Index, y: Index) -> Index:
        if isinstance(x, Linear) and isinstance(y, Linear):
            if x.constant is not None:
                return scale(y, x.base)
            if y.constant is not None:
                return scale(x, y.base)
        return self.array(x) * self.array(y)

    def _divide(self, x: Index, y: Index) -> tuple[Index, Index]:
        """Quotient and remainder. They stay linear if the remainder's bounds show that it fits."""
        divisor = y.constant if isinstance(y, Linear) else None
        if isinstance(x, Linear) and divisor:
            whole = Linear(x.base // divisor, tuple(
                s // divisor if s % divisor == 0 else 0 for s in x.strides))
            rest = add(x, scale(whole, -divisor))
            low, high = self.bounds(rest)
            if low >= 0 and high < divisor:
                return whole, rest
        with np.errstate(divide="ignore"):
            return np.floor_divide(a := self.array(x), b := self.array(y)), np.remainder(a, b)

    def _extremum(self, op: str, x: Index, y: Index) -> Index:
        """The maximum or minimum. It stays linear if one side always wins."""
        if isinstance(x, Linear) and isinstance(y, Linear):
            low, high = self.bounds(add(x, scale(y, -1)))
            if low >= 0:
                return x if op == "max" else y
            if high <= 0:
                return y if op == "max" else x
        larger = np.maximum if op == "max" else np.minimum
        return larger(self.array(x), self.array(y))
