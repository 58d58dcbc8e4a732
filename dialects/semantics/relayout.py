"""Copies of a tensor in another order, such as a weight packed for a kernel, as plain data.

A kept program packs the weights of its caller anew, so nothing here imports xDSL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dialects.semantics.domain import Domain, Ranges, cut
from dialects.semantics.reads import Input
from dialects.strata.mapped import release
from dialects.strata.parallel import Begun, in_threads
from dialects.strata.weights import aligned_zeros
from dialects.symbolic.expr import Expr
from dialects.symbolic.expr_syntax import expr_of, symbol_of
from dialects.symbolic.symbol import Symbol

if TYPE_CHECKING:
    from dialects.strata.types import Array

BLOCK_BYTES = 4 << 20
"""The bytes of the result that one thread copies at a time."""


class Relayout(NamedTuple):
    """y[axes] = x[map], or `pad` where that is outside of x.

    `shape`: the sizes of x, whose elements are given in any shape. `axes`: the dims of y, each with
    its extent. Where `pad` is None, reads outside raise IndexError.
    """

    shape: tuple[int, ...]
    axes: tuple[tuple[Symbol, int], ...]
    map: tuple[Expr, ...]
    pad: float | bool | None = None

    def __call__(self, array: Array) -> Array:
        result, values = self._empty(array), array.reshape(self.shape)
        if result.size:
            self._fill(result, values, self._view(values))
        return result

    def begin(self, array: Array) -> Begun:
        """The result, and what fills it. That is one copy of a view, if there is one, so that a
        thread needs no interpreter for it."""
        result = self._empty(array)

        def fill() -> None:
            values = array.reshape(self.shape)
            view = self._view(values) if result.size else None
            if view is not None:
                np.copyto(result, view)
                release(values)
            elif result.size:
                self._fill(result, values, None)

        return Begun(result, fill)

    def _empty(self, array: Array) -> Array:
        return aligned_zeros([extent for _, extent in self.axes], array.dtype)

    @property
    def _domain(self) -> Domain:
        return Domain(dict(self.axes), frozenset(), {})

    def _view(self, values: Array) -> Array | None:
        """The result as a view of x, or of a padded copy; None if x is not read at affine places.
        """
        return Input(values, self.map, self.pad).view(self._domain)

    def _fill(self, result: Array, values: Array, view: Array | None) -> None:
        """Copy blocks in threads."""
        domain, symbols = self._domain, {s for e in self.map for s in e.symbols}
        whole = values if view is not None or values.flags.c_contiguous else values.copy()
        source = Input(whole, self.map, self.pad)

        def copy(ranges: Ranges) -> None:
            found = source.gather(domain.grid(ranges, symbols)) if view is None else cut(
                view, ranges)
            place = tuple(slice(r.start, r.stop) for r in ranges.values())
            result[(..., *place)] = found

        in_threads(copy, domain.blocks(domain.names, max(BLOCK_BYTES // values.itemsize, 1)))
        release(values)

    # ------------------------------------------------------------------ files
    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them."""
        return [self.shape, [[name.text, extent] for name, extent in self.axes],
                [str(e) for e in self.map], self.pad]

    @staticmethod
    def read(facts: Sequence[Any]) -> Relayout:
        """The inverse of `facts`."""
        shape, axes, map_, pad = facts
        return Relayout(tuple(map(int, shape)),
                        tuple((symbol_of(name), int(extent)) for name, extent in axes),
                        tuple(map(expr_of, map_)), pad)


class Transposed(NamedTuple):
    """The dims of a tensor in another order: a view, since what is packed from it is a copy."""

    shape: tuple[int, ...]
    order: tuple[int, ...]

    def __call__(self, array: Array) -> Array:
        return array.reshape(self.shape).transpose(self.order)

    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them."""
        return [self.shape, self.order]

    @staticmethod
    def read(facts: Sequence[Any]) -> Transposed:
        """The inverse of `facts`."""
        return Transposed(tuple(map(int, facts[0])), tuple(map(int, facts[1])))


class Reshaped(NamedTuple):
    """The same elements with other sizes."""

    shape: tuple[int, ...]

    def __call__(self, array: Array) -> Array:
        return array.reshape(self.shape)

    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them."""
        return [self.shape]

    @staticmethod
    def read(facts: Sequence[Any]) -> Reshaped:
        """The inverse of `facts`."""
        return Reshaped(tuple(map(int, facts[0])))
