"""Numbers about processors that were fitted by measuring, with their units and their origin.

A `Machine` holds what the hardware reports about itself. These numbers it does not report.
"""

from __future__ import annotations

from dialects.records import dataclass


@dataclass(frozen=True)
class WindowCosts:
    """When Winograd's convolution pays (`scheduling/windows.py`). The unit is the time of one
    multiply-add of one element in registers."""

    gain: float
    """The predicted cost must stay below this share of the direct convolution's cost."""
    transform: float
    """The cost of a multiply-add in a transform. It is above 1 because its sums are short."""
    move: tuple[tuple[int, float], ...]
    """Pairs of a size in bytes and the cost of writing or reading an element while the transformed
    data and products are at most that large, in increasing order."""
    far_move: float
    """The same beyond the last of these sizes, where data are in memory."""
    value: float
    """The cost of reading one more element of the filter. Other layers evict the filter between two
    calls, so it comes from memory."""


@dataclass(frozen=True)
class MatrixCosts:
    """When to use matrix registers (`scheduling/matrices.py`)."""

    gain: float
    """Matrix registers are used if they are predicted to be this many times as fast as vectors."""
    narrow: float
    """The time of a tile that is one matrix register wide, relative to one that is two wide. It is
    more than a half, because loads are hidden less well."""


@dataclass(frozen=True)
class CandidateCosts:
    """The rough cost model that orders the tuner's candidates (`scheduling/search.py`), in cycles.
    """

    load: float
    """One vector load."""
    product: float
    """One vector multiply-add."""
    latency: float
    """The latency between two additions to the same sum."""
    conflict: float
    """The share of the loads that delay multiply-adds."""


@dataclass(frozen=True)
class RecurrenceCosts:
    """How recurrences hide latency (`scheduling/recurrences.py`)."""

    states: int
    """The states that one loop carries. More of them leave no scalar registers for addresses."""
    rows: int
    """The rows of one program, if it walks several rows at the same time."""


@dataclass(frozen=True)
class Costs:
    """All of these numbers. `on` names the processors on which they were fitted."""

    on: str
    windows: WindowCosts
    matrices: MatrixCosts
    candidates: CandidateCosts
    recurrences: RecurrenceCosts


SERVERS = Costs(
    "Zen 4 and Emerald Rapids",
    WindowCosts(gain=0.9, transform=1.5, move=((8 << 20, 2), (32 << 20, 3)), far_move=16, value=16),
    MatrixCosts(gain=2, narrow=5 / 8),
    CandidateCosts(load=0.5, product=0.5, latency=4.0, conflict=0.2),
    RecurrenceCosts(states=16, rows=64))
"""`windows`: values between those measured on the two processors. `value` corresponds to memory at
10 to 25 GB/s. `matrices`: measured on Emerald Rapids; Zen 4 has no such registers. `candidates`:
both processors issue two loads and two multiply-adds per cycle."""
