"""Operators that sample x at fractional coordinates: GridSample, AffineGrid, DeformConv.

Each computes coordinates, one tensor per spatial dim, and interpolates between the elements around
them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value, scalar
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, maximum
from dialects.symbolic.size_products import product

Tap = tuple[Value, "Value | None"]
"""The index of an element, as a float, and the element's weight; None stands for the weight 1."""
MOST_POINTS = 1 << 26
"""The maximum number of points of a node. Their coordinates become a constant of the model."""


# ---------------------------------------------------------------------- elements around coordinates
def around(
    x: Value, batch: Value, taps: Sequence[Sequence[Tap]],
    inside: Callable[[Value, int], tuple[Value, Value | None]],
) -> list[Value]:
    """The weighted elements [r, q, c] of x [n, c, s...], one tensor for each combination of taps.

    `batch` [r] is the item of x that each row reads, and taps are [r, q]. `inside` moves an index
    into its dim, and says where the original index counts (None: everywhere). An element that does
    not count is replaced by 0, not multiplied by 0: otherwise an infinity in the element at the
    moved index, or in the weight, would give NaN.
    """
    moved = x.transpose([0, *range(2, x.rank), 1])
    shape = taps[0][0][0].shape
    item = batch.reshape([shape[0], 1]).broadcast(shape)
    found: list[Value] = []
    for choice in itertools.product(*taps):
        weights = [w for _, w in choice if w is not None]
        indices, counts = [item], list[Value]()
        for dim, (index, _) in enumerate(choice):
            place, there = inside(index, dim)
            indices.append(place.cast(t.i64))
            counts += [] if there is None else [there]
        value = f.gather_nd(moved, _vectors(indices), batch_dims=0)
        if weights:
            value = value * f.product(weights).cast(x.element).reshape([*shape, 1])
        if counts:
            value = f.where(f.all_of(counts).reshape([*shape, 1]), value, 0)
        found.append(value)
    return found


def _vectors(indices: Sequence[Value]) -> Value:
    """Indices [r, q] of each dim, as vectors [r, q, dims]."""
    return f.concat([i.reshape([*i.shape, 1]) for i in indices], axis=2)


def linear_taps(c: Value) -> list[Tap]:
    """The two neighbours of each coordinate, with the weights of linear interpolation."""
    low = f.floor(c)
    high = c - low
    one = scalar(c.build, 1, c.element)
    return [(low, one - high), (low + one, high)]


def _cubic_taps(c: Value) -> list[Tap]:
    """The four neighbours, with the weights of Keys' cubic interpolation, a = -0.75."""
    low = f.floor(c)
    fraction = c - low
    return [(low + step, _cubic(abs(fraction - step), step in (0, 1))) for step in (-1, 0, 1, 2)]


def _cubic(d: Value, near: bool) -> Value:
    a = -0.75
    factors = (a + 2, -(a + 3), 0.0, 1.0) if near else (a, -5 * a, 8 * a, -4 * a)
    value = scalar(d.build, factors[0], d.element)
    for factor in factors[1:]:
        value = value * d + factor
    return value


def clamped(x: Value, low: float, high: Value) -> Value:
    """x moved into [low, high]; NaN becomes `low`, so that each index is that of an element."""
    return f.minimum(f.where(x > low, x, low), high)


def size_of(n: Node, x: Value, dim: int, like: Value, less: float = 0.0) -> Value:
    """The size of a dim of x minus `less`, in the element type of `like`."""
    size = n.of_size(x.shape[dim]).cast(like.element)
    return size - less


# ---------------------------------------------------------------------- GridSample
_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@onnx_op("GridSample")
def grid_sample(n: Node, x: Value, grid: Value) -> Value:
    """Sample x at a grid [n, ..., rank] of coordinates from -1 to 1.

    The coordinate of the last spatial dim is the first one.
    """
    rank, mode = x.rank - 2, n.text("mode", "linear")
    mode, padding = _MODES.get(mode, mode), n.text("padding_mode", "zeros")
    taps = {"nearest": _nearest_taps, "linear": linear_taps, "cubic": _cubic_taps}.get(mode)
    if taps is None or padding not in ("zeros", "border", "reflection"):
        raise Fault(f"mode '{mode}' with padding_mode '{padding}' is not supported")
    if rank < 1 or grid.rank != x.rank or grid.shape[-1].constant not in (rank, None):
        raise Fault(f"{grid.type.short} is not a grid of coordinates into {x.type.short}")
    places = grid.shape[1:-1]
    flat = grid.reshape([grid.shape[0], product(places), rank])
    coordinates = [_pixel(n, x, flat.part(2, rank - 1 - dim, 1), dim + 2, padding, mode)
                   for dim in range(rank)]

    def inside(index: Value, dim: int) -> tuple[Value, Value | None]:
        last = size_of(n, x, dim + 2, index, 1.0)
        if padding == "reflection":
            index = _reflected(n, x, index, dim + 2)
        counts = within(index, 0.0, last) if padding == "zeros" else None
        return clamped(index, 0.0, last), counts

    batch = n.range(x.shape[0])
    values = around(x, batch, [taps(c) for c in coordinates], inside)
    result = f.total(values).transpose([0, 2, 1])
    return result.reshape([x.shape[0], x.shape[1], *places])


def _nearest_taps(c: Value) -> list[Tap]:
    return [(c, None)]


def within(x: Value, low: float, high: Value) -> Value:
    """Whether x is in [low, high]."""
    return (x >= low) & (x <= high)


def _pixel(n: Node, x: Value, c: Value, dim: int, padding: str, mode: str) -> Value:
    """Convert coordinates from -1 to 1 to positions among the elements, with padding applied.

    In mode cubic, positions may stay outside of x: as in PyTorch, each of the four neighbours is
    moved inside by itself.
    """
    c = c.reshape(c.shape[:2])
    wide = c if t.byte_width(c.element) > 2 else c.cast(t.f32)
    one, half = n.scalar(1, wide), n.scalar(0.5, wide)
    size = size_of(n, x, dim, wide)
    moved = wide + one
    if n.flag("align_corners"):
        pixel = moved * half * (size - one)
    else:
        pixel = (moved * size - one) * half
    if mode == "nearest":
        pixel = f.nearest(pixel)
    if mode == "cubic":
        return pixel
    if padding == "border":
        # Half an element outside, both neighbours are the element at the border.
        return clamped(pixel, -0.5, size - half)
    return _reflected(n, x, pixel, dim) if padding == "reflection" else pixel


def _reflected(n: Node, x: Value, c: Value, dim: int) -> Value:
    """Reflect coordinates at both borders until they lie between them."""
    corners = n.flag("align_corners")
    low = 0.0 if corners else -0.5
    span = size_of(n, x, dim, c, 1.0 if corners else 0.0)
    span = f.maximum(span, 1e-6)
    distance = abs(c - low)
    turns = f.floor(distance / span)
    rest = distance - turns * span
    half = turns * 0.5
    even = f.equal(f.floor(half), half)
    return f.where(even, rest, span - rest) + low


@onnx_op("AffineGrid")
def affine_grid(n: Node, theta: Value, size: Value) -> Value:
    """theta times (x, y, 1), or (x, y, z, 1), of the centers of all elements.

    With align_corners, the first and the last element along each dim are at -1 and 1.
    """
    dims = theta.shape[1].constant
    size = n.of_chosen_length(size, 4) if dims is None else n.counted(size, dims + 2)
    sizes = n.known_sizes(size, "size")[2:]
    known = [s.constant for s in sizes if s.constant is not None]
    require_few(prod(known))
    points = _grid_at_run(n, theta, sizes) if len(known) < len(sizes) else n.constant(
        _grid(known, n.flag("align_corners")).astype(theta.type.dtype))
    result = points @ theta.transpose([0, 2, 1])
    return result.reshape([theta.shape[0], *sizes, len(sizes)])


def _grid(sizes: Sequence[int], corners: bool) -> np.ndarray:
    """The homogeneous coordinates [points, dims + 1] of all elements, the last dim first."""
    grids = np.meshgrid(*(_centers(s, corners) for s in sizes), indexing="ij")
    return np.stack([*grids[::-1], np.ones(sizes)], axis=-1).reshape(-1, len(sizes) + 1)


def _grid_at_run(n: Node, theta: Value, sizes: Sequence[Expr]) -> Value:
    """The same for sizes that only a run knows."""
    dims = len(sizes)
    axes = [_centers_at_run(n, s).reshape([s, *[1] * (dims - 1 - k)]).broadcast(sizes)
            for k, s in enumerate(sizes)]
    ones = n.scalar(1.0, axes[0]).broadcast(sizes)
    columns = [a.reshape([product(sizes), 1]) for a in (*axes[::-1], ones)]
    return f.concat(columns, 1).cast(theta.element)


def _centers_at_run(n: Node, size: Expr) -> Value:
    """What `_centers` computes; a single corner is at -1."""
    place = n.range(size, t.i64).cast(t.f64) * 2
    if n.flag("align_corners"):
        return place / n.of_size(maximum(size - 1, 1)).cast(t.f64) - 1
    return (place + 1) / n.of_size(size).cast(t.f64) - 1


def _centers(size: int, corners: bool) -> np.ndarray:
    """The coordinates of the elements along one dim, from -1 to 1."""
    if corners:
        return np.linspace(-1.0, 1.0, size) if size > 1 else np.array([-1.0])
    return (2 * np.arange(size) + 1) / size - 1


def require_few(points: int) -> None:
    """Raise Fault if there are more points than a node may have."""
    if not 0 <= points <= MOST_POINTS:
        raise Fault(f"{points} points to sample at are more than the {MOST_POINTS} that one node "
                    "may have", "see its sizes: the file may be damaged")


# ---------------------------------------------------------------------- DeformConv
@onnx_op("DeformConv")
def deform_conv(
    n: Node, x: Value, w: Value, offset: Value, b: Value | None = None, mask: Value | None = None
) -> Value:
    """A convolution whose kernel positions are displaced by offsets. Outside of its borders, x is
    0.
    """
    kernel = n.known_ints(n.of_sizes(w.shape[2:]), "filter sizes")
    rank, taps, groups = len(kernel), prod(kernel), n.integer("offset_group", 1)
    places = offset.shape[2:]
    count, (batch, channels) = product(places), x.shape[:2]
    apart = x.reshape([batch * groups, channels // groups, *x.shape[2:]])
    moved = offset.reshape([batch * groups, taps, rank, count])
    lines = [_moved_line(n, moved, d, kernel, places).reshape([batch * groups, count * taps])
             for d in range(rank)]

    def inside(index: Value, dim: int) -> tuple[Value, Value | None]:
        last = size_of(n, x, dim + 2, index, 1.0)
        return clamped(index, 0.0, last), within(index, 0.0, last)

    items = n.range(batch * groups)
    values = f.total(around(apart, items, [linear_taps(c) for c in lines], inside))
    if mask is not None:
        values = values * mask.reshape([batch * groups, count * taps, 1])
    columns = values.transpose([0, 2, 1]).reshape([batch, channels, taps, count])
    return _multiplied(n, columns, w, b, places)


def _moved_line(
    n: Node, moved: Value, dim: int, kernel: Sequence[int], places: Sequence[Expr]
) -> Value:
    """The sampling coordinates along one dim: [batch * groups, taps, positions]."""
    rank = len(kernel)
    strides, dilations = n.ints("strides", [1] * rank), n.ints("dilations", [1] * rank)
    low = n.ints("pads", [0] * (2 * rank))[dim]
    taps = np.indices(kernel)[dim].reshape(-1, 1) * dilations[dim] - low
    own = n.range(places[dim], step=strides[dim])
    line = own.reshape([places[dim], *[1] * (rank - 1 - dim)])
    line = line.broadcast(places).reshape([1, product(places)])
    start = (n.constant(taps) + line).cast(moved.element)
    own = moved.part(2, dim, 1)
    return own.reshape([*moved.shape[:2], moved.shape[3]]) + start


def _multiplied(
    n: Node, columns: Value, w: Value, b: Value | None, places: Sequence[Expr]
) -> Value:
    """The matrix product of the filters and the columns [n, c, taps, positions], per group."""
    group, (batch, channels, taps, count) = n.integer("group", 1), columns.shape
    inner = channels // group * taps
    parts = columns.reshape([batch, group, inner, count])
    filters = w.reshape([group, w.shape[0] // group, inner])
    result = (filters @ parts).reshape([batch, w.shape[0], *places])
    if b is None:
        return result
    return result + b.reshape([w.shape[0], *[1] * len(places)])
