"""The order in which contractions store their results, where the result's own order is slow.

A filter's gradient ends with the taps of a window, which are too few to fill vectors:

    %w[i1, i0, t] += %x[n, p + t, i0] * %g[n, p, i1]        ->    %t[t, i1, i0], copied to %w

With a factor's channels in lanes, each lane would be stored for itself, far from its neighbours.
Stored with the taps first, the gradient is a product of matrices for each tap. The copy then moves
squares of taps and channels through registers. The same holds for images with channels first whose
rows fill no vector.
"""

from __future__ import annotations

from collections.abc import Sequence

from dialects.loop import KernelOp, extents_of
from passes.analyses.loop.kinds import is_contraction
from passes.analyses.loop.runs import running_axis
from targets.cpu.machine import Machine
from targets.cpu.scheduling.rows import CHANNELS, tile_order, window_taps


def result_order(kernel: KernelOp, machine: Machine) -> Sequence[int] | None:
    """The dims of a result with the taps of its window first, and last the channels that fill
    vectors best; None for a kernel of another kind."""
    if len(kernel.nests) != 1 or not is_contraction(kernel.nests[0]):
        return None
    [nest] = kernel.nests
    taps, map_ = window_taps(nest), nest.output_maps[0]
    names = [name for e in map_ if (name := e.as_symbol) is not None]
    if not taps or nest.into or len(names) != len(map_):
        return None
    extents = extents_of(nest.axes)
    wide = {a for m in nest.input_maps for a in running_axis(m, nest.axes)}
    wide = {a for a in wide if (extents[a].constant or 0) >= CHANNELS} | {tile_order(nest)[-1]}
    rest = [d for d, name in enumerate(names) if name not in taps]

    def waste(d: int) -> float:
        size = extents[names[d]].constant or CHANNELS
        return -(-size // machine.lanes) / size

    lanes = min((d for d in reversed(rest) if names[d] in wide), key=waste)
    first = [d for d, name in enumerate(names) if name in taps]
    return (*first, *(d for d in rest if d != lanes), lanes)
