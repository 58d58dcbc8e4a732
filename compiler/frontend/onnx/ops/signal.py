"""Fourier transforms, as products with matrices of sines and cosines, and mel filters.

A transform of length n takes n*n multiplications. That is fast enough for the frames of audio
models, but slow for much longer transforms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.elements import constant_of
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.ops.run_sizes import element
from compiler.frontend.values import Value
from dialects.graph.elementwise import PowOp
from dialects.graph.exponential import Log10Op
from dialects.graph.reduce import ReduceProdOp
from dialects.graph.shape import FramesOp
from dialects.strata import types as t
from dialects.strata.types import Array
from dialects.symbolic.expr import Expr, Size, maximum, minimum
from dialects.symbolic.size_products import product

MAX_POINTS = 4096
"""The maximum length: the matrices of longer transforms would take hundreds of megabytes."""


@onnx_op("DFT")
def dft_by_attribute(n: Node, x: Value, length: Value | None = None) -> Value:
    return _dft(n, x, length, n.integer("axis", 1))


@onnx_op("DFT", since=20)
def dft(n: Node, x: Value, length: Value | None = None, axis: Value | None = None) -> Value:
    if axis is None:
        return _dft(n, x, length, -2)
    given = element(n, axis, "axis")
    known = constant_of(given)
    return _dft_along(n, x, length, axis) if known is None else _dft(n, x, length, known)


def _dft_along(n: Node, x: Value, length: Value | None, axis: Value) -> Value:
    """The transform along an axis that only a run knows.

    x [before, size, after, 1 or 2] is transformed along its second dim; its sizes are computed.
    """
    outer = list(x.shape[:-1])
    sizes, each = n.of_sizes(outer), n.range(len(outer))
    given = axis.cast(t.i64).reshape([])
    place = f.where(given < 0, given + x.rank, given)
    n.require(0, place, len(outer))  # the last dim holds parts of numbers
    parts = [n(ReduceProdOp, f.where(chosen, sizes, 1), axes=[0], keepdims=False)
             for chosen in (each < place, f.equal(each, place), each > place)]
    shape = [n.known_sizes(part, "sizes")[0] for part in parts]
    n.build.assume(product(shape), "==", product(outer))
    found = _dft(n, x.reshape([*shape, x.shape[-1]]), length, 1)
    if found.shape[1] != shape[1]:
        wanted = f.where(f.equal(each, place), n.of_size(found.shape[1]), sizes)
        outer = n.known_sizes(wanted, "sizes")
        n.build.assume(product(outer), "==", product(found.shape[:-1]))
    return found.reshape([*outer, found.shape[-1]])


def _dft(n: Node, x: Value, length: Value | None, given: int) -> Value:
    """The transform of x [..., 1 or 2], whose last dim holds real and imaginary parts."""
    axis = n.axis(given, x.rank)
    if axis == x.rank - 1:
        raise Fault("the last dim holds the parts of complex numbers; it cannot be transformed")
    size, inverse, onesided = x.shape[axis], n.flag("inverse"), n.flag("onesided")
    default = (size - 1) * 2 if inverse and onesided else size
    points = default if length is None else n.known_size(length, "length")
    return transform(n, x, axis, points, inverse, onesided)


def transform(
    n: Node, x: Value, axis: int, points: Size, inverse: bool, onesided: bool
) -> Value:
    """Multiply x by a matrix of sines and cosines along an axis.

    The last dim of x and of the result holds real and imaginary parts. `points`: the length of the
    transform.
    """
    points = Expr.of(points)
    used = minimum(x.shape[axis], points // 2 + 1 if inverse and onesided else points)
    x = x.part(axis, 0, used)
    others = [k for k in range(x.rank - 1) if k != axis]
    moved = x.transpose([*others, axis, x.rank - 1])
    result = _product(n, moved, points, inverse, onesided)
    back = [*others, axis].index
    return result.transpose([*map(back, range(x.rank - 1)), x.rank - 1])


def _product(
    n: Node, x: Value, points: Size, inverse: bool, onesided: bool, window: Value | None = None
) -> Value:
    """Transform x [..., size, parts], weighted by a window, along the last dim but one."""
    size, [parts] = x.shape[-2], n.known_ints(n.of_sizes(x.shape[-1:]), "parts")
    matrix = _weights(n, x, parts, Expr.of(points), inverse, onesided)
    results, bins = matrix.shape[2:]
    weights = matrix.reshape([size * parts, results * bins])
    if window is not None:  # weighting the matrix is less work than weighting all frames
        each = window.cast(x.element).reshape([size, 1]).broadcast(x.shape[-2:])
        weights = weights * each.reshape([size * parts, 1])
    outer = list(x.shape[:-2])
    product = x.reshape([*outer, size * parts]) @ weights
    split = product.reshape([*outer, results, bins])
    return split.transpose([*range(len(outer)), len(outer) + 1, len(outer)])


def _weights(
    n: Node, x: Value, parts: int, points: Expr, inverse: bool, onesided: bool
) -> Value:
    """The matrix [size, parts of x, parts of the result, size of the result].

    It is a constant, unless only a run knows how large it is.
    """
    size = x.shape[-2]
    if (points.constant or 0) > MAX_POINTS:
        raise Fault(f"a transform of {points} points is not supported; there may be "
                    f"{MAX_POINTS} at most")
    known = points.constant is not None and size.constant is not None
    matrix = _matrix(points.constant or 0, inverse, onesided)[:size.constant] if known else None
    if parts > 2 or (matrix is not None and size.constant != len(matrix)):
        raise Fault(f"a transform of {points} points takes at most that many numbers, of 1 or 2 "
                    f"parts each, not {size} of {parts}")
    if matrix is not None:
        return n.constant(matrix[:, :parts].astype(x.type.dtype))
    n.build.assume(points, "<=", MAX_POINTS)
    return _matrix_at_run(n, size, parts, points, inverse, onesided).cast(x.element)


def _matrix_at_run(
    n: Node, size: Expr, parts: int, points: Expr, inverse: bool, onesided: bool
) -> Value:
    """What `_matrix` computes, of the first rows and parts."""
    rows = n.range(size).reshape([size, 1])
    columns = points // 2 + 1 if onesided and not inverse else points
    length = n.of_size(points)
    turns = (rows * n.range(columns)) % length
    angle = turns.cast(t.f64) * (2 * np.pi) / length.cast(t.f64)
    cosine, sine = f.cos(angle), -f.sin(angle)
    if inverse:
        cosine, sine = cosine / length.cast(t.f64), -sine / length.cast(t.f64)
    if inverse and onesided:  # as in `_matrices`
        once = f.equal(rows, 0) | f.equal(rows * 2, length)
        times = f.where(once, 1.0, n.scalar(2.0, cosine))
        entries = [[cosine * times], [-sine * times]]
    else:
        entries = [[cosine, sine], [-sine, cosine]]
    return f.concat([f.concat([e.reshape([size, 1, 1, columns]) for e in row], 2)
                     for row in entries[:parts]], 1)


def _matrix(points: int, inverse: bool, onesided: bool) -> Array:
    """[size of x, part of x, part of the result, size of the result]."""
    rows = _matrices(points, inverse, onesided)
    return np.stack([np.stack(row, axis=1) for row in rows], axis=1)


def _matrices(points: int, inverse: bool, onesided: bool) -> Sequence[Sequence[Array]]:
    """matrices[part of x][part of the result]: [size of x, size of the result]."""
    half = points // 2 + 1
    if inverse and onesided:  # half a spectrum, of which the other half is the mirror image
        angle = 2 * np.pi * np.outer(np.arange(half), np.arange(points)) / points
        twice = np.full((half, 1), 2.0)
        twice[0] = 1.0
        if points % 2 == 0:
            twice[-1] = 1.0
        return [[twice * np.cos(angle) / points], [-twice * np.sin(angle) / points]]
    count = half if onesided else points
    angle = 2 * np.pi * np.outer(np.arange(points), np.arange(count)) / points
    cosine, sine = np.cos(angle), -np.sin(angle)
    if inverse:
        cosine, sine = cosine / points, -sine / points
    return [[cosine, sine], [-sine, cosine]]


@onnx_op("STFT")
def stft(
    n: Node, x: Value, step: Value, window: Value | None = None, length: Value | None = None
) -> Value:
    """Transforms of frames of x [n, samples, 1 or 2]: [n, frames, bins, 2].

    A frame starts every `step` samples. A real x may lack its last dim, since some exporters omit
    it.
    """
    if x.rank == 2:
        x = x.reshape([*x.shape, 1])
    stride = n.known_size(step, "frame step")
    if length is not None:
        size = n.known_size(length, "frame length")
    else:
        size = x.shape[1] if window is None else window.shape[0]
    if window is not None:
        n.build.assume(window.shape[0], "==", size)
    frames = _frames(n, x, size, stride)
    return _product(n, frames, size, False, n.flag("onesided", True), window)


def _frames(n: Node, x: Value, size: Expr, step: Expr) -> Value:
    """Parts [n, frames, size, parts] of x [n, samples, parts], one every `step` samples."""
    if size.constant is not None and step.constant is not None:
        return n(FramesOp, x, axis=1, size=size.constant, step=step.constant)
    n.build.assume(1, "<=", step)
    n.build.assume(size, "<=", x.shape[1])
    count = (x.shape[1] - size) // maximum(step, 1) + 1
    starts = n.range(count).reshape([count, 1]) * n.of_size(step)
    return f.gather(x, starts + n.range(size), 1)


# ---------------------------------------------------------------------- mel filters
@onnx_op("MelWeightMatrix")
def mel_weight_matrix(
    n: Node, bins: Value, length: Value, rate: Value, low: Value, high: Value
) -> Value:
    """Triangular filters over the bins of a spectrum, evenly spaced on the mel scale."""
    element = n.element("output_datatype", t.f32)
    arrays = [v.array for v in (bins, length, rate, low, high)]
    if any(a is None for a in arrays):
        return _mel_weights_at_run(n, bins, length, rate, low, high).cast(element)
    numbers = [a.reshape(-1)[0] for a in arrays if a is not None]
    matrix = _mel_weights(*map(int, numbers[:3]), *map(float, numbers[3:]))
    return n.constant(matrix).cast(element)


def _mel_weights(bins: int, length: int, rate: int, low: float, high: float) -> Array:
    """The weights [length // 2 + 1, bins], by ONNX's formula.

    It divides the range of frequencies into bins + 2 steps.
    """
    first, last = (2595 * np.log10(1 + edge / 700) for edge in (low, high))
    mels = np.arange(bins + 2) * ((last - first) / (bins + 2)) + first
    hertz = 700 * (10 ** (mels / 2595) - 1)
    points: Array = ((length + 1) * hertz // rate).astype(np.int64)
    left, center, right = points[:-2], points[1:-1], points[2:]
    place: Array = np.arange(length // 2 + 1)[:, None]
    rising: Array = (place - left) / np.maximum(center - left, 1)
    falling: Array = (right - place) / np.maximum(right - center, 1)
    inside: Array = np.where(place < right, falling, place == center)
    inside = np.where(place < center, rising, inside)
    return np.where(place < left, 0.0, inside)


def _mel_weights_at_run(
    n: Node, bins: Value, length: Value, rate: Value, low: Value, high: Value
) -> Value:
    """What `_mel_weights` computes."""
    count, size = n.known_size(bins, "number of bins"), n.known_size(length, "length")
    first, last = (n(Log10Op, v.cast(t.f64).reshape([]) / 700 + 1) * 2595 for v in (low, high))
    steps = n.of_size(count + 2).cast(t.f64)
    mels = n.range(count + 2).cast(t.f64) * ((last - first) / steps) + first
    hertz = (n(PowOp, n.scalar(10, mels), mels / 2595) - 1) * 700
    scaled = hertz * n.of_size(size + 1).cast(t.f64) / rate.cast(t.f64).reshape([])
    points = f.floor(scaled).cast(t.i64)
    left, center, right = (points.part(0, k, count) for k in range(3))
    place = n.range(size // 2 + 1).reshape([size // 2 + 1, 1])

    def share(part: Value, whole: Value) -> Value:
        return part.cast(t.f64) / f.maximum(whole, 1).cast(t.f64)

    top = f.equal(place, center).cast(t.f64)
    falling = f.where(place < right, share(right - place, right - center), top)
    inside = f.where(place < center, share(place - left, center - left), falling)
    return f.where(place < left, 0, inside)
