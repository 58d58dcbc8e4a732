"""Winograd on a CPU: for which windows of a convolution `loop-winograd` pays.

Costs are in multiply-adds of one element, at the speed of products in registers. Fewer products
require transforms of the data and of the sums. The transformed tensors are larger than the
originals, and so is the filter. The constants are facts of the processor (`targets/cpu/facts.py`).

Transforms lose digits. Sums with few nonzero products, as after a ReLU, have about one rounding
when they are computed directly, so that the whole loss of the transforms shows. The loss is
limited to MAX_LOSS, which allows six points in one window, together with four in another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from math import inf, prod
from typing import NamedTuple

from dialects.loop import NestOp, extents_of
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.windows import FEW_POINTS, Window
from targets.cpu.facts import WindowCosts

MAX_BYTES = 64 << 20
"""The most memory for the transformed data and products of a convolution with two windows."""
MAX_LOSS = 3.0
"""The largest accepted rounding error relative to that of direct sums, by `Window.loss`."""
OPEN_SIZE = 64
"""The assumed size of images known only at run time; other unknown sizes (samples) count as 1."""


def shorten(
    nest: NestOp, data: int, windows: Sequence[Window], costs: WindowCosts,
    most: float = MAX_LOSS,
) -> Sequence[Window]:
    """The windows, innermost first, along which fewer products pay. `most`: the largest accepted
    rounding error, by `Window.loss`.
    """
    work = _Work.of(nest, data, windows, costs)
    best = min(_choices(windows, most), key=work.cost, default=())
    return best if work.cost(best) < costs.gain * work.products else ()


def _choices(windows: Sequence[Window], most: float) -> Iterator[tuple[Window, ...]]:
    """One window or two; the innermost is transformed first, while the data is smallest."""
    inner = sorted(windows, key=lambda w: -w.dim)
    for count in (1, 2):
        for chosen in combinations(inner, count):
            for sized in product(*map(_sizes, chosen)):
                if prod(w.loss for w in sized) <= most:
                    yield sized


def _sizes(window: Window) -> list[Window]:
    """The window with six points, and also with four if that saves products."""
    fewer = replace(window, points=FEW_POINTS)
    return [window, fewer] if fewer.outputs > 1 else [window]


class _Work(NamedTuple):
    """The work of a convolution: its products, and the elements of its tensors."""

    extents: dict[Symbol, int]
    products: int
    data: int
    result: int
    filter: int
    costs: WindowCosts

    @staticmethod
    def of(nest: NestOp, data: int, windows: Sequence[Window], costs: WindowCosts) -> _Work:
        lengths, tensor = extents_of(nest.axes), nest.inputs[data].type
        assert isinstance(tensor, TensorType)
        images = {s for w in windows for s in lengths[w.axis].symbols}

        def guess(size: Expr) -> int:
            known = size.substitute({s: OPEN_SIZE if s in images else 1 for s in size.symbols})
            return max(1, known.constant or 1)

        extents = {name: guess(size) for name, size in lengths.items()}
        names = {s for e in nest.input_maps[1 - data] for s in e.symbols}
        return _Work(
            extents, prod(extents.values()), prod(map(guess, tensor.shape)),
            prod(extents[a.name] for a in nest.parallel_axes),
            prod(extents[n] for n in names & extents.keys()), costs)

    def cost(self, windows: Sequence[Window]) -> float:
        """The cost with these windows transformed; infinite if that needs too much memory."""
        if not windows:
            return self.products
        data, result = float(self.data), float(self.result)
        products, values, steps = float(self.products), float(self.filter), 0.0
        moves = 0.0
        for window in windows:
            extent = self.extents[window.axis]
            longer = window.points * (window.tiles(Expr.of(extent)).constant or 0) / extent
            products *= longer / window.count
            values *= window.points / window.count
            steps += result * window.points
            data, result = data * longer, result * longer
            steps += data * window.points
            moves += 2 * (data + result)
        size = 4 * (data + result)
        if len(windows) > 1 and size > MAX_BYTES:
            return inf
        costs = self.costs
        move = next((cost for most, cost in costs.move if size <= most), costs.far_move)
        return (products + costs.transform * steps + move * moves
                + costs.value * (values - self.filter))

