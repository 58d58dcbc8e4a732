"""The phases of a transposed convolution: its results by their remainder of the stride.

    stride 2, 3 taps, low = 1:   y[2*u]     = x[u] * w[1]
                                 y[2*u + 1] = x[u + 1] * w[0] + x[u] * w[2]

Results of one phase are an ordinary convolution of stride 1 with some of the taps, whose order is
reversed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from math import gcd
from typing import NamedTuple

from dialects.records import dataclass
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import is_at_most


class Spatial(NamedTuple):
    """One spatial dim: the source at i adds to the result at stride*i + dilation*tap - low.

    `size`: of the results; `sources`: of the data; `kernel`: the number of taps.
    """

    size: Expr
    sources: Expr
    kernel: int
    stride: int
    dilation: int
    low: int

    def apart(self) -> list[Phases]:
        """Every phase by itself, with no tap but those that meet a source."""
        return [phases for first in range(self.stride) if (
            phases := self._phase(first)).places.constant != 0]

    def joined(self) -> list[Phases] | None:
        """All phases as one, with as many taps as the longest has; None if they differ in length,
        or in the order of their sources."""
        if self.stride == 1:
            return self.apart()
        if self.dilation != 1 or (self.size % self.stride).terms:
            return None
        taps = -(-self.kernel // self.stride)
        return [Phases(self, 0, self.stride, self.size // self.stride, taps)]

    def _phase(self, first: int) -> Phases:
        places = (self.size + (self.stride - 1 - first)) // self.stride
        tap, step = self.first_tap(first), self.step
        taps = 0 if tap is None else max(0, -(-(self.kernel - tap) // step))
        return Phases(self, first, 1, places, taps)

    @property
    def step(self) -> int:
        """The distance between the taps of a phase."""
        return self.stride // gcd(self.stride, self.dilation)

    def first_tap(self, phase: int) -> int | None:
        """The first tap that may meet a source; None if none does."""
        return next((k for k in range(self.step)
                     if (phase + self.low - k * self.dilation) % self.stride == 0), None)


@dataclass(frozen=True)
class Phases:
    """`count` neighbouring phases from `first` on, each of `places` results and `taps` terms.

    Expressions are of a place among the results of a phase, a phase counted from `first`, and the
    number of a term. Places and terms are counted from `start` and `skipped`.
    """

    dim: Spatial
    first: int
    count: int
    places: Expr
    taps: int
    start: int = 0
    skipped: int = 0

    @property
    def products(self) -> Expr:
        """How many products a channel of the results has."""
        return self.places * (self.count * self.taps)

    @property
    def ends_early(self) -> bool:
        """Whether some of the phases have fewer taps."""
        return self.count > 1 and self.dim.kernel % self.dim.stride != 0

    def result(self, place: Expr, phase: Expr) -> Expr:
        return (place + self.start) * self.dim.stride + phase + self.first

    def tap(self, phase: Expr, term: Expr) -> Expr:
        """Which tap a term has; beyond the last one in phases that end early."""
        if self.count > 1:  # of dilation 1
            return (phase + self.dim.low) % self.dim.stride + term * self.dim.stride
        return (term + self.skipped) * self.dim.step + (self.dim.first_tap(self.first) or 0)

    def source(self, place: Expr, phase: Expr, term: Expr) -> Expr:
        """Which source a term has; outside of the data in terms beyond the last tap."""
        dim = self.dim
        if self.count == 1:
            first = dim.first_tap(self.first) or 0
            ahead = (self.first + dim.low - first * dim.dilation) // dim.stride
            return place + self.start + ahead - (term + self.skipped) * (
                dim.dilation * dim.step // dim.stride)
        source = place + (phase + dim.low) // dim.stride - term
        if not self.ends_early:
            return source
        return source + (dim.sources + self.taps) * (self.tap(phase, term) // dim.kernel)

    @property
    def is_inside(self) -> bool:
        """Whether every source exists, whatever the sizes."""
        zero, dim = Expr.of(0), self.dim
        lowest = self.source(zero, zero, Expr.of(self.taps - 1)).constant
        highest = self.source(self.places - 1, Expr.of(self.count - 1), zero)
        return not self.ends_early and lowest is not None and lowest >= 0 and is_at_most(
            highest, dim.sources - 1)

    def parted(self) -> list[Phases] | None:
        """The places of a phase in parts that read no term outside of the data; parts of none are
        left out. None if sizes are open."""
        places, sources = self.places.constant, self.dim.sources.constant
        if places is None or sources is None:
            return None

        def terms(place: int) -> list[int]:
            found = (self.source(Expr.of(place), Expr.of(0), Expr.of(k)) for k in range(self.taps))
            return [k for k, at in enumerate(found) if 0 <= (at.constant or 0) < sources]

        runs = [(kept, [*run]) for kept, run in groupby(range(places), terms)]
        return [replace(self, places=Expr.of(len(run)), taps=len(kept), start=run[0],
                        skipped=kept[0]) for kept, run in runs if kept]


def products_of(phases: Sequence[Phases]) -> Expr:
    """How many products a channel of the results has, over all dims."""
    total = Expr.of(1)
    for part in phases:
        total = total * part.products
    return total
