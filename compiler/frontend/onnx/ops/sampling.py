"""Operators that read x between its elements: GridSample, AffineGrid, RoiAlign, DeformConv.

Each computes coordinates, one tensor per spatial dim, and mixes the elements around them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import reduce
from math import prod

import numpy as np

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value
from dialects.graph.constant import RangeOp
from dialects.graph.contraction import MatmulOp
from dialects.graph.elementwise import AddOp, DivOp, MaxOp, MinOp, MulOp, SubOp
from dialects.graph.gather import GatherNdOp
from dialects.graph.logic import AndOp, EqualOp, GreaterEqualOp, LessEqualOp, WhereOp
from dialects.graph.reduce import ReduceMaxOp, ReduceMeanOp
from dialects.graph.shape import ConcatOp
from dialects.graph.unary import AbsOp, FloorOp, RoundOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product

Tap = tuple[Value, "Value | None"]
"""An index as a float, and its weight; None for 1."""
MOST_POINTS = 1 << 26
"""Points whose coordinates a file may have computed while it is read."""


# ---------------------------------------------------------------------- elements around coordinates
def around(
    n: Node, x: Value, batch: Value, taps: Sequence[Sequence[Tap]],
    inside: Callable[[Value, int], tuple[Value, Value | None]],
) -> list[Value]:
    """The weighted elements [r, q, c] of x [n, c, s...], one for each choice of a tap per dim.

    `batch` [r] is the item of x that is read, taps are [r, q]; `inside` gives an index that lies
    in its dim, and where it counts (None: everywhere).
    """
    moved = n.transpose(x, [0, *range(2, x.rank), 1])
    shape = taps[0][0][0].shape
    item = n.broadcast(n.reshape(batch, [shape[0], 1]), shape)
    found: list[Value] = []
    for choice in itertools.product(*taps):
        weights = [w for _, w in choice if w is not None]
        places = [item]
        for dim, (index, _) in enumerate(choice):
            place, counts = inside(index, dim)
            places.append(n.cast(place, t.i64))
            if counts is not None:
                weights.append(n.cast(counts, weights[0].element if weights else x.element))
        indices = n(ConcatOp, *[n.reshape(p, [*shape, 1]) for p in places], axis=2)
        value = n(GatherNdOp, moved, indices, batch_dims=0)
        if weights:
            weight = reduce(lambda a, b: n(MulOp, a, b), weights)
            value = n(MulOp, value, n.reshape(n.cast(weight, x.element), [*shape, 1]))
        found.append(value)
    return found


def total(n: Node, values: Sequence[Value]) -> Value:
    return reduce(lambda a, b: n(AddOp, a, b), values)


def linear_taps(n: Node, c: Value) -> list[Tap]:
    low = n(FloorOp, c)
    high = n(SubOp, c, low)
    one = n.scalar(1, c)
    return [(low, n(SubOp, one, high)), (n(AddOp, low, one), high)]


def _cubic_taps(n: Node, c: Value) -> list[Tap]:
    """Keys' cubic with a = -0.75, at the four neighbours."""
    low = n(FloorOp, c)
    fraction = n(SubOp, c, low)
    return [(n(AddOp, low, n.scalar(step, c)),
             _cubic(n, n(AbsOp, n(SubOp, fraction, n.scalar(step, c))), step in (0, 1)))
            for step in (-1, 0, 1, 2)]


def _cubic(n: Node, d: Value, near: bool) -> Value:
    a = -0.75
    factors = (a + 2, -(a + 3), 0.0, 1.0) if near else (a, -5 * a, 8 * a, -4 * a)
    value = n.scalar(factors[0], d)
    for factor in factors[1:]:
        value = n(AddOp, n(MulOp, value, d), n.scalar(factor, d))
    return value


def clamped(n: Node, x: Value, low: float, high: Value) -> Value:
    return n(MinOp, n(MaxOp, x, n.scalar(low, x)), high)


def size_of(n: Node, x: Value, dim: int, like: Value, less: float = 0.0) -> Value:
    """A size of x, less something, as a number like `like`."""
    size = n.cast(n.of_size(x.shape[dim]), like.element)
    return n(SubOp, size, n.scalar(less, like))


# ---------------------------------------------------------------------- GridSample
_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@onnx_op("GridSample")
def grid_sample(n: Node, x: Value, grid: Value) -> Value:
    """Coordinates from -1 to 1, the last spatial dim first."""
    rank, mode = x.rank - 2, n.text("mode", "linear")
    mode, padding = _MODES.get(mode, mode), n.text("padding_mode", "zeros")
    taps = {"nearest": _nearest_taps, "linear": linear_taps, "cubic": _cubic_taps}.get(mode)
    if taps is None or padding not in ("zeros", "border", "reflection"):
        raise Fault(f"mode '{mode}' with padding_mode '{padding}' is not supported")
    if rank < 1 or grid.rank != x.rank or grid.shape[-1].constant not in (rank, None):
        raise Fault(f"{grid.type.short} is no grid of coordinates into {x.type.short}")
    places = grid.shape[1:-1]
    flat = n.reshape(grid, [grid.shape[0], product(places), rank])
    coordinates = [_pixel(n, x, n.part(flat, 2, rank - 1 - dim, 1), dim + 2, padding, mode)
                   for dim in range(rank)]

    def inside(index: Value, dim: int) -> tuple[Value, Value | None]:
        last = size_of(n, x, dim + 2, index, 1.0)
        if padding == "reflection":
            index = _reflected(n, x, index, dim + 2)
        counts = _within(n, index, 0.0, last) if padding == "zeros" else None
        return clamped(n, index, 0.0, last), counts

    batch = n(RangeOp, start=0, step=1, count=x.shape[0], to=t.i64)
    values = around(n, x, batch, [taps(n, c) for c in coordinates], inside)
    result = n.transpose(total(n, values), [0, 2, 1])
    return n.reshape(result, [x.shape[0], x.shape[1], *places])


def _nearest_taps(n: Node, c: Value) -> list[Tap]:
    return [(c, None)]


def _within(n: Node, x: Value, low: float, high: Value) -> Value:
    return n(AndOp, n(GreaterEqualOp, x, n.scalar(low, x)), n(LessEqualOp, x, high))


def _pixel(n: Node, x: Value, c: Value, dim: int, padding: str, mode: str) -> Value:
    """A coordinate from -1 to 1 as one in elements, brought inside where the padding says so.

    Mode cubic mixes elements around the place outside, as PyTorch does: each is brought inside.
    """
    c = n.reshape(c, c.shape[:2])
    wide = c if t.byte_width(c.element) > 2 else n.cast(c, t.f32)
    one, half = n.scalar(1, wide), n.scalar(0.5, wide)
    size = size_of(n, x, dim, wide)
    moved = n(AddOp, wide, one)
    if n.flag("align_corners"):
        pixel = n(MulOp, n(MulOp, moved, half), n(SubOp, size, one))
    else:
        pixel = n(MulOp, n(SubOp, n(MulOp, moved, size), one), half)
    if mode == "nearest":
        pixel = n(RoundOp, pixel)
    if mode == "cubic":
        return pixel
    if padding == "border":
        return clamped(n, pixel, 0.0, n(SubOp, size, one))
    return _reflected(n, x, pixel, dim) if padding == "reflection" else pixel


def _reflected(n: Node, x: Value, c: Value, dim: int) -> Value:
    """Reflected at both borders, as often as it takes to get between them."""
    corners = n.flag("align_corners")
    low = 0.0 if corners else -0.5
    span = size_of(n, x, dim, c, 1.0 if corners else 0.0)
    span = n(MaxOp, span, n.scalar(1e-6, c))
    distance = n(AbsOp, n(SubOp, c, n.scalar(low, c)))
    turns = n(FloorOp, n(DivOp, distance, span))
    rest = n(SubOp, distance, n(MulOp, turns, span))
    half = n(MulOp, turns, n.scalar(0.5, c))
    even = n(EqualOp, n(FloorOp, half), half)
    return n(AddOp, n(WhereOp, even, rest, n(SubOp, span, rest)), n.scalar(low, c))


@onnx_op("AffineGrid")
def affine_grid(n: Node, theta: Value, size: Value) -> Value:
    """theta times (x, y, (z,) 1) of the centers or, with align_corners, corners of all elements."""
    sizes = n.known_ints(size, "size")[2:]
    _require_few(prod(sizes))
    axes = [_centers(s, n.flag("align_corners")) for s in sizes]
    grids = np.meshgrid(*axes, indexing="ij")
    points = np.stack([*grids[::-1], np.ones(sizes)], axis=-1).reshape(-1, len(sizes) + 1)
    result = n(MatmulOp, n.constant(points.astype(theta.type.dtype)), n.transpose(theta, [0, 2, 1]))
    return n.reshape(result, [theta.shape[0], *sizes, len(sizes)])


def _centers(size: int, corners: bool) -> np.ndarray:
    if corners:
        return np.linspace(-1.0, 1.0, size) if size > 1 else np.array([-1.0])
    return (2 * np.arange(size) + 1) / size - 1


def _require_few(points: int) -> None:
    """A file may ask for any number of points, which become a constant of the model."""
    if not 0 <= points <= MOST_POINTS:
        raise Fault(f"{points} points to sample at are more than the {MOST_POINTS} that one node "
                    "may have", "see its sizes: the file may be damaged")


# ---------------------------------------------------------------------- RoiAlign
@onnx_op("RoiAlign")
def roi_align(n: Node, x: Value, rois: Value, items: Value) -> Value:
    """The mean or maximum of samples in each bin of each region."""
    default = "half_pixel" if n.version >= 16 else "output_half_pixel"
    centered = n.text("coordinate_transformation_mode", default) == "half_pixel"
    count, bins = n.integer("sampling_ratio"), [n.integer(f"output_{d}", 1)
                                                for d in ("height", "width")]
    if count < 1:
        raise Fault("its sampling_ratio is 0: the number of samples then depends on the regions",
                    "export the model with a positive sampling_ratio")
    scaled = n(MulOp, rois, n.scalar(n.real("spatial_scale", 1.0), rois))
    if centered:
        scaled = n(SubOp, scaled, n.scalar(0.5, rois))
    edges = [n.part(scaled, 1, k, 1) for k in range(4)]  # x, y, then x, y of the other end
    lines = [_samples(n, edges[1 - d], edges[3 - d], bins[d], count, centered) for d in (0, 1)]
    rows, columns = (Expr.of(b * count) for b in bins)
    shape = [rois.shape[0], rows, columns]
    flat = [rois.shape[0], rows * columns]
    grid = [n.reshape(n.broadcast(n.reshape(line, [rois.shape[0], *apart]), shape), flat)
            for line, apart in zip(lines, ([rows, 1], [1, columns]), strict=True)]
    n.require(0, items, x.shape[0])
    values = _roi_values(n, x, n.cast(items, t.i64), grid)
    mean = n.text("mode", "avg") == "avg"
    value = total(n, values) if mean else reduce(lambda a, b: n(MaxOp, a, b), values)
    parts = n.reshape(value, [rois.shape[0], bins[0], count, bins[1], count, x.shape[1]])
    pooled = n(ReduceMeanOp if mean else ReduceMaxOp, parts, axes=[2, 4], keepdims=False)
    return n.transpose(pooled, [0, 3, 1, 2])


def _samples(
    n: Node, start: Value, end: Value, bins: int, count: int, centered: bool
) -> Value:
    """The coordinates along one dim: `count` in each of the bins, [r, bins*count]."""
    length = n(SubOp, end, start)
    if not centered:
        length = n(MaxOp, length, n.scalar(1, length))
    _require_few(bins * count)
    steps = (np.arange(bins * count) + 0.5) / (bins * count)
    return n(AddOp, start, n(MulOp, length, n.constant(steps.astype(start.type.dtype))))


def _roi_values(n: Node, x: Value, items: Value, grid: Sequence[Value]) -> list[Value]:
    """The weighted neighbours; 0 where a sample lies more than 1 outside of x."""
    taps: list[list[Tap]] = []
    for dim, c in enumerate(grid):
        counts = n.cast(_within(n, c, -1.0, size_of(n, x, dim + 2, c)), c.element)
        pixel = clamped(n, c, 0.0, size_of(n, x, dim + 2, c, 1.0))
        taps.append([(i, n(MulOp, counts, w)) for i, w in linear_taps(n, pixel) if w is not None])

    def inside(index: Value, dim: int) -> tuple[Value, Value | None]:
        return clamped(n, index, 0.0, size_of(n, x, dim + 2, index, 1.0)), None

    return around(n, x, items, taps, inside)


# ---------------------------------------------------------------------- DeformConv
@onnx_op("DeformConv")
def deform_conv(
    n: Node, x: Value, w: Value, offset: Value, b: Value | None = None, mask: Value | None = None
) -> Value:
    """A convolution whose kernel positions are moved by offsets; x is 0 outside."""
    kernel = n.known_ints(n.of_sizes(w.shape[2:]), "filter sizes")
    rank, taps, groups = len(kernel), prod(kernel), n.integer("offset_group", 1)
    places = offset.shape[2:]
    count, (batch, channels) = product(places), x.shape[:2]
    apart = n.reshape(x, [batch * groups, channels // groups, *x.shape[2:]])
    moved = n.reshape(offset, [batch * groups, taps, rank, count])
    lines = [n.reshape(_moved_line(n, moved, d, kernel, places), [batch * groups, count * taps])
             for d in range(rank)]

    def inside(index: Value, dim: int) -> tuple[Value, Value | None]:
        last = size_of(n, x, dim + 2, index, 1.0)
        return clamped(n, index, 0.0, last), _within(n, index, 0.0, last)

    items = n(RangeOp, start=0, step=1, count=batch * groups, to=t.i64)
    values = total(n, around(n, apart, items, [linear_taps(n, c) for c in lines], inside))
    if mask is not None:
        values = n(MulOp, values, n.reshape(mask, [batch * groups, count * taps, 1]))
    columns = n.reshape(n.transpose(values, [0, 2, 1]), [batch, channels, taps, count])
    return _multiplied(n, columns, w, b, places)


def _moved_line(
    n: Node, moved: Value, dim: int, kernel: Sequence[int], places: Sequence[Expr]
) -> Value:
    """The coordinates along one dim: [batch * groups, taps, places]."""
    rank = len(kernel)
    strides, dilations = n.ints("strides", [1] * rank), n.ints("dilations", [1] * rank)
    low = n.ints("pads", [0] * (2 * rank))[dim]
    taps = np.indices(kernel)[dim].reshape(-1, 1) * dilations[dim] - low
    own = n(RangeOp, start=0, step=strides[dim], count=places[dim], to=t.i64)
    line = n.reshape(own, [places[dim], *[1] * (rank - 1 - dim)])
    line = n.reshape(n.broadcast(line, places), [1, product(places)])
    start = n.cast(n(AddOp, n.constant(taps), line), moved.element)
    own = n.part(moved, 2, dim, 1)
    return n(AddOp, n.reshape(own, [*moved.shape[:2], moved.shape[3]]), start)


def _multiplied(
    n: Node, columns: Value, w: Value, b: Value | None, places: Sequence[Expr]
) -> Value:
    """Columns [n, c, taps, places] times filters, per group."""
    group, (batch, channels, taps, count) = n.integer("group", 1), columns.shape
    inner = channels // group * taps
    parts = n.reshape(columns, [batch, group, inner, count])
    filters = n.reshape(w, [group, w.shape[0] // group, inner])
    result = n.reshape(n(MatmulOp, filters, parts), [batch, w.shape[0], *places])
    if b is None:
        return result
    return n(AddOp, result, n.reshape(b, [w.shape[0], *[1] * len(places)]))
