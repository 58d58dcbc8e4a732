"""Windows: reductions of them, running sums, and what a selected element receives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.stablehlo.node import Node
from compiler.frontend.stablehlo.operations import Region
from compiler.frontend.stablehlo.ops import hlo_op
from compiler.frontend.stablehlo.ops.products import padded
from compiler.frontend.stablehlo.ops.reductions import REDUCTIONS, combined, combiner_of, kind_of
from compiler.frontend.stablehlo.ops.shapes import spread_apart
from compiler.frontend.values import Value
from dialects.graph.base import GraphOp
from dialects.graph.cumulative import CumulativeProdOp, CumulativeSumOp
from dialects.graph.ordering import ArgMaxOp, ArgMinOp
from dialects.graph.scatter import ScatterElementsOp
from dialects.graph.shape import FramesOp
from dialects.semantics.numerics import highest, lowest
from dialects.strata import types as t
from dialects.symbolic.size_products import product


@dataclass(frozen=True)
class Windows:
    """Along each axis: sizes, strides, gaps between the elements of a window, and pads."""

    sizes: Sequence[int]
    strides: Sequence[int]
    gaps: Sequence[int]
    pads: Sequence[tuple[int, int]]

    @staticmethod
    def of(n: Node, rank: int) -> Windows:
        given = n.op.attributes.get("padding")
        pads = np.zeros((rank, 2), np.int64) if given is None else np.asarray(given).reshape(
            rank, 2)
        return Windows(n.ints("window_dimensions", [1] * rank),
                       n.ints("window_strides", [1] * rank),
                       n.ints("window_dilations", [1] * rank),
                       [(int(low), int(high)) for low, high in pads])

    def is_plain(self, axis: int) -> bool:
        return self.sizes[axis] == self.strides[axis] == 1 and not any(self.pads[axis])

    def frames(self, n: Node, x: Value, axis: int, fill: float) -> Value:
        """x with a dim of windows in the place of an axis, and after it a dim of their elements.
        """
        low, high = ([max(p, 0) if k == axis else 0 for k in range(x.rank)]
                     for p in self.pads[axis])
        cut = [max(-p, 0) for p in self.pads[axis]]
        x = x.part(axis, cut[0], x.shape[axis] - cut[0] - cut[1])
        size, gap = self.sizes[axis], self.gaps[axis]
        found = n(FramesOp, padded(n, x, low, high, fill), axis=axis, size=(size - 1) * gap + 1,
                  step=self.strides[axis])
        return f.gather(found, n.range(size, step=gap), axis=axis + 1) if gap > 1 else found

    def all_frames(self, n: Node, x: Value, fill: float) -> Value:
        """[windows along each axis, ..., the elements of a window]"""
        rank = x.rank
        for axis in reversed(range(rank)):
            x = self.frames(n, x, axis, fill)
        apart = x.transpose([*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)])
        return apart.reshape([*apart.shape[:rank], product(apart.shape[rank:])])


@hlo_op("stablehlo.reduce_window")
def reduce_window(n: Node, *operands: Value) -> list[Value]:
    """Each axis with a window is cut into frames and reduced; running sums are recognized."""
    half, region = len(operands) // 2, n.op.regions[0]
    values, starts = list(operands[:half]), operands[half:]
    windows = Windows.of(n, values[0].rank)
    for axis, step in enumerate(n.ints("base_dilations", [1] * values[0].rank)):
        values = [spread_apart(v, s, axis, step - 1) if step > 1 else v
                  for v, s in zip(values, starts, strict=True)]
    firsts = [s.array for s in starts]
    if any(first is None for first in firsts):
        raise Fault("its start must be a constant")
    numbers = [first.reshape(-1)[0].item() for first in firsts if first is not None]
    kind = kind_of(region) if half == 1 else ""
    if kind:
        return [_reduced(n, values[0], windows, kind, numbers[0])]
    frames = [windows.all_frames(n, v, k) for v, k in zip(values, numbers, strict=True)]
    return combined(n, region, frames, starts, [values[0].rank])


def _reduced(n: Node, x: Value, windows: Windows, kind: str, first: float) -> Value:
    """Axis by axis. The start counts once: it is neutral, or is added at the end."""
    neutral = {"add": 0, "mul": 1, "max": lowest(x.type.dtype), "min": highest(x.type.dtype)}[kind]
    for axis in range(x.rank):
        if _is_running(windows, x, axis, kind):
            x = n(_RUNNING[kind], x, axis=axis, exclusive=False, reverse=False)
        elif not windows.is_plain(axis):
            frames = windows.frames(n, x, axis, neutral)
            wide = frames.cast(t.i32) if frames.element == t.i1 else frames
            x = n(REDUCTIONS[kind], wide, axes=[axis + 1], keepdims=False).cast(x.element)
    if first == neutral or (kind in ("max", "min") and first in (-np.inf, np.inf)):
        return x
    start = n.scalar(first, x)
    return {"add": lambda: x + start, "mul": lambda: x * start,
            "max": lambda: f.maximum(x, start), "min": lambda: f.minimum(x, start)}[kind]()


_RUNNING: dict[str, type[GraphOp]] = {"add": CumulativeSumOp, "mul": CumulativeProdOp}


def _is_running(windows: Windows, x: Value, axis: int, kind: str) -> bool:
    size, (low, high) = windows.sizes[axis], windows.pads[axis]
    return size == x.shape[axis].constant == low + 1 and kind in _RUNNING and high == 0 and (
        windows.strides[axis] == windows.gaps[axis] == 1) and size > 1


# ---------------------------------------------------------------------- selected elements
@hlo_op("stablehlo.select_and_scatter")
def select_and_scatter(n: Node, x: Value, updates: Value, start: Value) -> Value:
    """Each window gives its update to the element that it selects, its first or last extremum."""
    largest, last = _selection(n.op.regions[0])
    windows, count = Windows.of(n, x.rank), product(x.shape)
    worst = lowest(x.type.dtype) if largest else highest(x.type.dtype)
    frames = windows.all_frames(n, x, worst)
    places = windows.all_frames(n, n.range(count).reshape(x.shape), -1)
    rank = frames.rank - 1
    inside = f.where(places < 0, n.scalar(worst, x), frames)
    chosen = n(ArgMaxOp if largest else ArgMinOp, inside, axis=rank, keepdims=True, last=last)
    at = f.gather_nd(places, chosen, batch_dims=rank)
    base = start.reshape([]).broadcast([count + 1])
    at = f.where(at < 0, n.of_size(count), at)
    made = n(ScatterElementsOp, base, at.reshape([product(at.shape)]),
             updates.reshape([product(updates.shape)]), axis=0,
             combiner=combiner_of(n.op.regions[1]))
    return made.part(0, 0, count).reshape(x.shape)


def _selection(region: Region) -> tuple[bool, bool]:
    """Whether a region selects the largest element, and the last of equal ones."""
    inner = [op for op in region.operations if "return" not in op.name]
    words = [*inner[0].words, inner[0].attributes.get("comparison_direction")] if inner else []
    kind = next((w for w in ("GE", "GT", "LE", "LT") if w in words), "")
    if len(inner) != 1 or not kind or inner[0].operands != [n for n, _ in region.arguments]:
        raise Fault("it selects by more than one comparison")
    return kind[0] == "G", kind[1] == "T"
