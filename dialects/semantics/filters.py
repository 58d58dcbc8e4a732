"""Filters of convolutions computed from others, as plain data (`computations.py`).

They are computed in f64 and rounded once; in another arithmetic (`carriers.py`) they are exact.
Nothing here imports xDSL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from dialects.records import dataclass
from dialects.semantics.carriers import Carrier, as_in
from dialects.strata.array_type import dtype_named
from dialects.strata.parallel import Begun

if TYPE_CHECKING:
    from dialects.strata.types import Array

SLAB = 512
"""Filter rows that are multiplied at a time, so that they stay in cache in double precision, and
that BLAS does not share among threads."""

SLABS = 16
"""Slabs for which NumPy is called at a time: a thread in the background waits for the interpreter
after each call."""


class Change(NamedTuple):
    """y * factor + shift, per channel of y: how both vectors follow from constants, in f64.

    `formula`: `batch norm` (of scale, bias, mean and variance), `times`, `over`, `plus` or `minus`
    (of one number per channel).
    """

    formula: str
    epsilon: float = 0.0

    @property
    def shifts(self) -> bool:
        return self.formula not in ("times", "over")

    def __call__(self, *constants: Array) -> tuple[Any, Any]:
        """The factor and the shift."""
        if self.formula == "batch norm":
            scale, bias, mean, variance = constants
            factor = scale / np.sqrt(variance + variance.dtype.type(self.epsilon))
            return factor, bias - mean * factor
        [c] = constants
        c = c.reshape(-1)
        return {"times": (c, 0), "plus": (1, c), "minus": (1, -c)}.get(
            self.formula) or (1 / c, 0)


class ChangedFilter(NamedTuple):
    """A filter times one factor per result channel: [co, ci/group, k...], or [ci, co/group, k...]
    of a transposed convolution with so many `groups`. Takes the filter, then the constants."""

    change: Change
    channels: int
    dtype: np.dtype[Any]
    groups: int = 0
    on_carriers = True

    def __call__(self, *arrays: Array) -> Array:
        weight, *others = map(_wide, arrays)
        factor = np.broadcast_to(self.change(*others)[0], (self.channels,))
        spatial = (1,) * (weight.ndim - 2)
        if not self.groups:
            return (weight * factor.reshape(-1, 1, *spatial)).astype(self.dtype)
        per_group = weight.reshape(self.groups, len(weight) // self.groups, *weight.shape[1:])
        scaled = per_group * factor.reshape(self.groups, 1, -1, *spatial)
        return scaled.reshape(weight.shape).astype(self.dtype)

    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them."""
        return [self.change.formula, self.change.epsilon, self.channels, self.dtype.name,
                self.groups]

    @staticmethod
    def read(facts: Sequence[Any]) -> ChangedFilter:
        """The inverse of `facts`."""
        formula, epsilon, channels, dtype, groups = facts
        return ChangedFilter(Change(formula, epsilon), channels, dtype_named(dtype), groups)


class ChangedBias(NamedTuple):
    """A bias after the change, per result channel. Takes the bias if `has_bias`, else it is zero,
    then the constants."""

    change: Change
    channels: int
    dtype: np.dtype[Any]
    has_bias: bool
    on_carriers = True

    def __call__(self, *arrays: Array) -> Array:
        given = arrays if self.has_bias else (np.zeros(1), *arrays)
        bias, *others = map(_wide, given)
        factor, shift = self.change(*others)
        return np.broadcast_to(bias * factor + shift, (self.channels,)).astype(self.dtype)

    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them."""
        return [self.change.formula, self.change.epsilon, self.channels, self.dtype.name,
                self.has_bias]

    @staticmethod
    def read(facts: Sequence[Any]) -> ChangedBias:
        """The inverse of `facts`."""
        formula, epsilon, channels, dtype, has_bias = facts
        return ChangedBias(Change(formula, epsilon), channels, dtype_named(dtype), has_bias)


def _wide(array: Array) -> Array:
    """In f64; in another arithmetic, in the type in which a norm adds its epsilon."""
    if isinstance(array, Carrier):
        return array.astype(np.float32) if array.dtype.itemsize == 2 else array
    return array.astype(np.float64)


class JoinedGroups(NamedTuple):
    """Filters [co, c, k...] padded with zeros to [co, joined*c, k...], for fewer groups."""

    group: int
    joined: int

    def __call__(self, filters: Array) -> Array:
        outputs, channels = filters.shape[0] // self.group, filters.shape[1]
        result = np.zeros(
            (filters.shape[0], self.joined * channels, *filters.shape[2:]), filters.dtype)
        for g in range(self.group):
            first, rows = g % self.joined * channels, slice(g * outputs, (g + 1) * outputs)
            result[rows, first:first + channels] = filters[rows]
        return result

    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them."""
        return [self.group, self.joined]

    @staticmethod
    def read(facts: Sequence[Any]) -> JoinedGroups:
        """The inverse of `facts`."""
        return JoinedGroups(*map(int, facts))


@dataclass(frozen=True)
class FilterAtPoints:
    """A filter at the points of windows (Winograd), as [*points, dims without taps].

    `taps`: the dims of the filter that windows replace, in the order of `points`. `table`: rows of
    the products' factors, one per point, each with a factor per combination of taps. `divisors`:
    what each row is divided by, so that the table itself needs no rounding.
    """

    taps: tuple[int, ...]
    points: tuple[int, ...]
    table: tuple[tuple[float, ...], ...]
    divisors: tuple[float, ...]
    on_carriers: ClassVar[bool] = True

    def __call__(self, weight: Array) -> Array:
        if isinstance(weight, Carrier):
            return self._exact(weight)
        begun = self.begin(weight)
        begun.fill()
        return begun.array

    def begin(self, weight: Array) -> Begun:
        """The result, and what fills it."""
        values = self._taps_last(weight)
        kept = values.shape[:values.ndim - len(self.taps)]
        products = np.empty((*self.points, *kept), np.float32)
        return Begun(products, lambda: self._fill(products, values))

    def _taps_last(self, weight: Array) -> Array:
        kept = [d for d in range(weight.ndim) if d not in self.taps]
        return weight.transpose(*kept, *self.taps)

    def _exact(self, weight: Carrier) -> Array:
        """The same in the arithmetic of the filter."""
        values = self._taps_last(weight)
        kept = values.shape[:values.ndim - len(self.taps)]
        table = as_in(np.array(self.table), weight)
        divisors = as_in(np.array(self.divisors), weight).reshape(-1, 1)
        rows = values.astype(np.float64).reshape(-1, table.shape[1])
        found: Array = (table @ rows.transpose()) / divisors
        return found.reshape(*self.points, *kept).astype(np.float32)

    def _fill(self, products: Array, values: Array) -> None:
        table = np.array(self.table) / np.array(self.divisors)[:, None]
        points, taps = table.shape
        rows, results = values.reshape(-1, taps), products.reshape(points, -1)
        for start in range(0, len(rows), SLAB * SLABS):
            part = rows[start: start + SLAB * SLABS]
            found = results[:, start: start + len(part)]
            whole = len(part) // SLAB * SLAB
            np.matmul(table, part[:whole].reshape(-1, SLAB, taps).transpose(0, 2, 1),
                      out=found[:, :whole].reshape(points, -1, SLAB).transpose(1, 0, 2),
                      casting="same_kind")
            found[:, whole:] = table @ part[whole:].T.astype(np.float64)

    def facts(self) -> list[Any]:
        """All fields, as JSON can represent them."""
        return [self.taps, self.points, self.table, self.divisors]

    @staticmethod
    def read(facts: Sequence[Any]) -> FilterAtPoints:
        """The inverse of `facts`."""
        taps, points, table, divisors = facts
        return FilterAtPoints(tuple(map(int, taps)), tuple(map(int, points)),
                              tuple(tuple(map(float, row)) for row in table),
                              tuple(map(float, divisors)))
