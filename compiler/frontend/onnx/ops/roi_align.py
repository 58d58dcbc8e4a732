"""RoiAlign: the mean or the maximum of samples in each bin of regions of x.

With `sampling_ratio` 0, a bin has as many samples along a dim as elements, rounded up. The number
then differs between regions, and only a run knows it:

    %m = the largest number of any region;    strata.size _m = %m
    samples [r, bins, _m], of which a region counts the first ones of its own number
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.ops.sampling import (
    around,
    clamped,
    linear_taps,
    require_few,
    size_of,
    within,
)
from compiler.frontend.values import Value
from dialects.graph.constant import RangeOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr


class _Line(NamedTuple):
    """The samples of each region along one dim.

    `places` [r, bins*most]: their coordinates. `counts` [r]: how many of the `most` samples of a
    bin a region has; None stands for all.
    """

    places: Value
    bins: int
    most: Expr
    counts: Value | None = None


@onnx_op("RoiAlign")
def roi_align(n: Node, x: Value, rois: Value, items: Value) -> Value:
    """The pooled regions [r, c, height, width]."""
    default = "half_pixel" if n.version >= 16 else "output_half_pixel"
    centered = n.text("coordinate_transformation_mode", default) == "half_pixel"
    if n.integer("sampling_ratio") < 0:
        raise Fault(f"its sampling_ratio is {n.integer('sampling_ratio')}; it must be at least 0")
    wide = rois if t.byte_width(rois.element) > 2 else rois.cast(t.f32)
    scaled = wide * n.real("spatial_scale", 1.0)
    if centered:
        scaled = scaled - 0.5
    edges = [scaled.part(1, k, 1) for k in range(4)]  # x, y, then x, y of the other end
    lines = [_line(n, edges[1 - d], edges[3 - d], n.integer(f"output_{name}", 1), centered)
             for d, name in enumerate(("height", "width"))]
    n.require(0, items, x.shape[0])
    values = _values(n, x, items.cast(t.i64), [line.places for line in _grid(lines)])
    mean = n.text("mode", "avg") == "avg"
    value = f.total(values) if mean else reduce(f.maximum, values)
    rows, columns = lines
    parts = value.reshape([rois.shape[0], rows.bins, rows.most, columns.bins, columns.most,
                           x.shape[1]])
    return _pooled(parts, lines, mean).transpose([0, 3, 1, 2])


# ---------------------------------------------------------------------- samples
def _line(n: Node, start: Value, end: Value, bins: int, centered: bool) -> _Line:
    """The samples along one dim, of regions from `start` [r, 1] to `end` [r, 1]."""
    length, count = end - start, n.integer("sampling_ratio")
    if not centered:
        length = f.maximum(length, 1)
    if not count:
        return _line_by_lengths(n, start, length, bins)
    require_few(bins * count)
    steps = (np.arange(bins * count) + 0.5) / (bins * count)
    places = start + length * n.constant(steps.astype(start.type.dtype))
    return _Line(places, bins, Expr.of(count))


def _line_by_lengths(n: Node, start: Value, length: Value, bins: int) -> _Line:
    """As many samples in a bin as there are elements, rounded up; none in one of no length."""
    regions = start.shape[0]
    width = (length / float(bins)).reshape([regions])
    counts = f.ceil(width).cast(t.i64)
    largest = f.maximum(f.reduce_max(counts, [0]), 1)
    [most] = n.known_sizes(largest, "samples")
    bin_, sample = n.range(bins, start.element), n.range(most, start.element)
    own = f.maximum(counts, 1).cast(start.element).reshape([regions, 1, 1])
    inside = bin_.reshape([1, bins, 1]) + (sample.reshape([1, 1, most]) + 0.5) / own
    places = start.reshape([regions, 1, 1]) + inside * width.reshape([regions, 1, 1])
    return _Line(places.reshape([regions, most * bins]), bins, most, counts)


def _grid(lines: Sequence[_Line]) -> list[_Line]:
    """The lines with a place for every sample of both dims: [r, rows*columns]."""
    regions = lines[0].places.shape[0]
    rows, columns = (line.places.shape[1] for line in lines)
    shapes = ([rows, 1], [1, columns])
    return [_Line(line.places.reshape([regions, *apart]).broadcast([regions, rows, columns])
                  .reshape([regions, rows * columns]), line.bins, line.most)
            for line, apart in zip(lines, shapes, strict=True)]


def _values(n: Node, x: Value, items: Value, grid: Sequence[Value]) -> list[Value]:
    """The weighted neighbours of each sample; 0 if the sample lies more than 1 outside of x."""
    counts = [within(c, -1.0, size_of(n, x, dim + 2, c)) for dim, c in enumerate(grid)]
    taps = [linear_taps(clamped(c, 0.0, size_of(n, x, dim + 2, c, 1.0)))
            for dim, c in enumerate(grid)]

    def inside(index: Value, dim: int) -> tuple[Value, Value | None]:
        return clamped(index, 0.0, size_of(n, x, dim + 2, index, 1.0)), counts[dim]

    return around(x, items, taps, inside)


# ---------------------------------------------------------------------- bins
def _pooled(parts: Value, lines: Sequence[_Line], mean: bool) -> Value:
    """The samples [r, bins, samples, bins, samples, c] of each bin as one: [r, bins, bins, c].

    A bin without samples is 0.
    """
    counts = [line.counts for line in lines if line.counts is not None]
    if not counts:
        return f.reduce_mean(parts, [2, 4]) if mean else f.reduce_max(parts, [2, 4])
    there = [_counted(line, 2 + 2 * d) for d, line in enumerate(lines)]
    number = f.product(f.maximum(c, 0) for c in counts).reshape([parts.shape[0], 1, 1, 1])
    some = number > 0
    if mean:
        total = f.reduce_sum(f.where(f.all_of(there), parts, 0), [2, 4])
        return f.where(some, total / f.maximum(number, 1).cast(parts.element), 0)
    found = f.reduce_max(f.where(f.all_of(there), parts, float("-inf")), [2, 4])
    return f.where(some, found, 0)


def _counted(line: _Line, axis: int) -> Value:
    """Which samples a region has, in a shape that broadcasts to [r, bins, most, bins, most, c]."""
    assert line.counts is not None
    regions = line.counts.shape[0]
    numbers = line.counts.build(RangeOp, start=0, step=1, count=line.most, to=t.i64)
    tests = numbers.reshape([1, line.most]) < line.counts.reshape([regions, 1])
    return tests.reshape([regions, *(line.most if d == axis else 1 for d in range(1, 6))])
