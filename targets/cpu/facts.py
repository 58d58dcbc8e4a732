"""Numbers of processors that were fitted by measuring: their units, and what they were fitted on.

A `Machine` has what the hardware tells of itself; these it does not tell.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WindowCosts:
    """What fewer products of a convolution cost besides (`scheduling/windows.py`), counted in
    multiply-adds of one element in registers."""

    gain: float
    """Part of the cost of all products that the cost of fewer must stay below."""
    transform: float
    """A multiply-add of a transform: its sums are short."""
    move: tuple[tuple[int, float], ...]
    """Bytes of transformed data and products, and what writing or reading an element costs up to
    there; in order."""
    far_move: float
    """Likewise where they are in memory."""
    value: float
    """Reading a further element of the filter: there are many filters between two runs, so that it
    comes from far away."""


@dataclass(frozen=True)
class MatrixCosts:
    """When matrix registers are used (`scheduling/matrices.py`)."""

    gain: float
    """How many times as fast as vectors they have to look."""
    narrow: float
    """The time of sums of one part along columns, in parts of that of two: loads wait."""


@dataclass(frozen=True)
class CandidateCosts:
    """The guess that orders candidates of tuning (`scheduling/search.py`), in cycles."""

    load: float
    """A load of a vector."""
    product: float
    """A vector of products."""
    latency: float
    """Between two steps of one sum."""
    conflict: float
    """Part of the loads that are in the way of products."""


@dataclass(frozen=True)
class Costs:
    """`on`: the processors that the numbers were fitted on."""

    on: str
    windows: WindowCosts
    matrices: MatrixCosts
    candidates: CandidateCosts


SERVERS = Costs(
    "Zen 4 and Emerald Rapids",
    WindowCosts(gain=0.9, transform=1.5, move=((8 << 20, 2), (32 << 20, 3)), far_move=16, value=16),
    MatrixCosts(gain=2, narrow=5 / 8),
    CandidateCosts(load=0.5, product=0.5, latency=4.0, conflict=0.2))
"""Windows: between what was measured on either; they decide little that does not pay twofold or not
at all on both. `value` stands for memory at 10 to 25 GB/s. Matrices: on Emerald Rapids, which alone
has such registers. Candidates: two loads and two products a cycle, as both issue them."""
