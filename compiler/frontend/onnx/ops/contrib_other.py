"""com.microsoft: operators of many kinds, most of them older forms of standard ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops.contrib import SOME, contrib_op, fixed, positive
from compiler.frontend.onnx.ops.gather import gather, gather_nd
from compiler.frontend.onnx.ops.linear_algebra import order_of
from compiler.frontend.onnx.ops.sampling import (
    Tap,
    around,
    clamped,
    grid_sample,
    linear_taps,
    size_of,
)
from compiler.frontend.onnx.ops.shape import range_, trilu
from compiler.frontend.onnx.ops.signal import transform
from compiler.frontend.onnx.ops.slicing import pad
from compiler.frontend.values import Value
from dialects.graph.elementwise import AddOp, SubOp
from dialects.graph.ordering import ArgMaxOp
from dialects.graph.unary import IsinfOp, IsnanOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr


# ---------------------------------------------------------------------- as the standard operators
@contrib_op("SampleOp")
def sample(n: Node, x: Value) -> Value:
    return x


@contrib_op("Trilu")
def contrib_trilu(n: Node, x: Value, k: Value | None = None) -> Value:
    return trilu(n, x, k)


@contrib_op("GatherND")
def contrib_gather_nd(n: Node, x: Value, indices: Value) -> Value:
    return gather_nd(n, x, indices)


@contrib_op("TorchEmbedding")
def torch_embedding(
    n: Node, table: Value, indices: Value, padding: Value | None = None,
    by_frequency: Value | None = None,
) -> Value:
    """Rows of the table; the other inputs matter in training only."""
    return gather(n, table, indices)


@contrib_op("GridSample")
def contrib_grid_sample(n: Node, x: Value, grid: Value) -> Value:
    return grid_sample(n, x, grid)


@contrib_op("Range")
def contrib_range(n: Node, start: Value, limit: Value, delta: Value | None = None) -> Value:
    return range_(n, start, limit, n.scalar(1, start) if delta is None else delta)


@contrib_op("Pad")
def contrib_pad(n: Node, x: Value, pads: Value, value: Value | None = None) -> Value:
    return pad(n, x, pads, value)


@contrib_op("ExpandDims")
def expand_dims(n: Node, x: Value, axis: Value) -> Value:
    place = n.axis(fixed(n, n.known_size(axis, "axis"), "axis"), x.rank + 1)
    return x.reshape([*x.shape[:place], 1, *x.shape[place:]])


@contrib_op("UnfoldTensor")
def unfold_tensor(n: Node, x: Value) -> Value:
    """All slices of `size` entries of a dim that start every `step` entries.

    The entries of a slice become the last dim.
    """
    dim, size = n.axis(n.integer("dim", -1), x.rank), positive(n, "size")
    step = n.integer("step", 1)
    if step < 1:
        raise Fault(f"step is {step}; it must be positive")
    starts = n.range((x.shape[dim] - size) // step + 1, step=step)
    inside = n.range(size)
    places = starts.reshape([starts.shape[0], 1]) + inside
    found = f.gather(x, places, axis=dim)
    return found.transpose([*range(dim + 1), *range(dim + 2, x.rank + 1), dim + 1])


@contrib_op("IsAllFinite")
def is_all_finite(n: Node, *xs: Value) -> Value:
    """Whether no input has infinite or NaN elements.

    `isinf_only` and `isnan_only` restrict the test to one of the two.
    """
    tests = [IsnanOp] if n.flag("isnan_only") else [IsinfOp] if n.flag("isinf_only") else [
        IsnanOp, IsinfOp]
    found = [f.reduce_max(n(test, x), axes=list(range(x.rank))) for x in xs
             for test in tests]
    return ~f.any_of(found)


# ---------------------------------------------------------------------- complex numbers
@contrib_op("Rfft", ranks=(SOME,))
def rfft(n: Node, x: Value) -> Value:
    """The Fourier transform of the last dim: [..., n] -> [..., n // 2 + 1, 2]."""
    _check_transform(n)
    size = fixed(n, x.shape[-1], "sizes")
    return transform(n, x.reshape([*x.shape, 1]), x.rank - 1, size, False, True)


@contrib_op("Irfft", ranks=(range(2, 9),))
def irfft(n: Node, x: Value) -> Value:
    """The inverse of Rfft: [..., n // 2 + 1, 2] -> [..., n], n even."""
    _check_transform(n)
    size = 2 * (fixed(n, x.shape[-2], "sizes") - 1)
    if x.shape[-1].constant != 2:
        raise Fault(f"{x.type.short} does not hold complex numbers: its last dim must be 2")
    y = transform(n, x, x.rank - 2, size, True, True)
    return y.reshape(y.shape[:-1])


def _check_transform(n: Node) -> None:
    if n.integer("signal_ndim", 1) != 1 or n.flag("normalized") or not n.flag("onesided", True):
        raise Fault("only one-sided transforms of one dim, not normalized, are supported")


@contrib_op("ComplexMul", "ComplexMulConj", ranks=(SOME, SOME))
def complex_mul(n: Node, a: Value, b: Value) -> Value:
    """The product of complex numbers, whose parts are in the last dim.

    ComplexMulConj multiplies by the conjugate of b.
    """
    (a_real, a_imag), (b_real, b_imag) = ([x.part(x.rank - 1, k, 1) for k in (0, 1)]
                                          for x in (a, b))
    conjugate = n.op_type == "ComplexMulConj"
    first, second = (AddOp, SubOp) if conjugate else (SubOp, AddOp)
    real = n(first, a_real * b_real, a_imag * b_imag)
    imag = n(second, a_imag * b_real, a_real * b_imag)
    return f.concat([real, imag], axis=real.rank - 1)


# ---------------------------------------------------------------------- linear algebra
@contrib_op("CDist", ranks=(2, 2))
def cdist(n: Node, a: Value, b: Value) -> Value:
    """The distances between the rows of a [m, d] and those of b [k, d]: [m, k]."""
    metric = n.text("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        raise Fault(f"its metric '{metric}' is neither euclidean nor sqeuclidean")
    difference = a.reshape([a.shape[0], 1, a.shape[1]]) - b
    square = f.reduce_sum(difference * difference, axes=[2])
    return f.sqrt(square) if metric == "euclidean" else square


@contrib_op("Inverse")
def inverse(n: Node, x: Value) -> Value:
    """The inverse, by Gauss-Jordan elimination of [x | 1] with partial pivoting, in f32 at least.
    """
    order = order_of(x, "inverses")
    wide = x.cast(t.f32) if t.byte_width(x.element) == 2 else x
    batch = x.type.count // (order * order)
    one = n.constant(np.eye(order, dtype=wide.type.dtype)[None])
    both = f.concat([wide.reshape([batch, order, order]), one.broadcast([batch, order, order])],
                    axis=2)
    for k in range(order):
        both = _cleared(n, both, k, order)
    return both.part(2, order, order).reshape(x.shape).cast(x.element)


def _cleared(n: Node, x: Value, k: int, order: int) -> Value:
    """One elimination step on [b, order, 2*order]: column k becomes that of the unit matrix."""
    batch, rows = x.shape[0], n.constant(np.arange(order)[:, None])
    column = abs(x.part(2, k, 1))
    open_ = f.where(rows < n.constant(np.array(k)), -1, column)
    which = n(ArgMaxOp, open_, axis=1, keepdims=True, last=False)  # [b, 1, 1]
    pivot = f.gather_nd(x, which.reshape([batch, 1]), batch_dims=1)
    pivot = pivot.reshape([batch, 1, 2 * order])
    swapped = f.where(f.equal(rows, which), x.part(1, k, 1), x)
    line = pivot / pivot.part(2, k, 1)
    rest = swapped - swapped.part(2, k, 1) * line
    return f.where(f.equal(rows, n.constant(np.array(k))), line, rest)


# ---------------------------------------------------------------------- CropAndResize
class _Line(NamedTuple):
    """Coordinates along one dim, [rois, size], and which of them lie inside."""

    values: Value
    inside: Value


@contrib_op("CropAndResize", ranks=(4, 2, 1, 1))
def crop_and_resize(n: Node, x: Value, rois: Value, items: Value, size: Value) -> Value:
    """Resample each region: [rois, c, height, width].

    The corners of a region are at the first and the last element of the result.
    """
    mode = n.text("mode", "bilinear")
    if mode not in ("bilinear", "nearest"):
        raise Fault(f"its mode '{mode}' is neither bilinear nor nearest")
    sizes = n.known_ints(size, "crop sizes")
    if len(sizes) != 2 or min(sizes) < 1 or rois.shape[1].constant not in (4, None):
        raise Fault(f"rois must be [regions, 4], not {rois.type.short}, and crop_size two positive "
                    f"sizes, not {sizes}")
    count = rois.shape[0]
    lines = [_line(n, x, rois, dim, sizes[dim]) for dim in (0, 1)]
    rows, across = lines
    shape, flat = [count, *map(Expr.of, sizes)], [count, Expr.of(sizes[0] * sizes[1])]
    apart = ([count, sizes[0], 1], [count, 1, sizes[1]])
    grid = [line.values.reshape(where).broadcast(shape).reshape(flat)
            for line, where in zip(lines, apart, strict=True)]
    n.require(0, items, x.shape[0])
    value = _mixed(n, x, items.cast(t.i64), grid, mode).reshape([*shape, x.shape[1]])
    inside = (rows.inside.reshape([count, sizes[0], 1, 1])
              & across.inside.reshape([count, 1, sizes[1], 1]))
    outside = n.scalar(n.real("extrapolation_value"), value)
    return f.where(inside, value, outside).transpose([0, 3, 1, 2])


def _line(n: Node, x: Value, rois: Value, dim: int, size: int) -> _Line:
    """start + (end - start) * k / (size - 1), or the middle if the size is 1."""
    start, end = (rois.part(1, k, 1) for k in (dim, dim + 2))
    steps = np.arange(size) / (size - 1) if size > 1 else np.array([0.5])
    spots = start + (end - start) * n.constant(steps.astype(rois.type.dtype))
    last = size_of(n, x, dim + 2, spots, 1.0)
    pixels = spots * last
    inside = (pixels >= 0) & (pixels <= last)
    return _Line(clamped(pixels, 0.0, last), inside)


def _mixed(n: Node, x: Value, items: Value, grid: Sequence[Value], mode: str) -> Value:
    def nearest(c: Value) -> list[Tap]:  # halves up
        return [(f.floor(c + 0.5), None)]

    taps = [linear_taps(c) if mode == "bilinear" else nearest(c) for c in grid]

    def inside(index: Value, dim: int) -> tuple[Value, Value | None]:
        return clamped(index, 0.0, size_of(n, x, dim + 2, index, 1.0)), None

    return f.total(around(x, items, taps, inside))
