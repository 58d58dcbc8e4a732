"""Fourier transforms, as products with matrices of sines and cosines, and mel filters.

A transform of length n takes n*n multiplications. That is fast enough for the frames of audio
models, but slow for much longer transforms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value
from dialects.graph.shape import FramesOp
from dialects.strata import types as t
from dialects.strata.types import Array
from dialects.symbolic.expr import Expr, Size, minimum

MAX_POINTS = 4096
"""The maximum length: the matrices of longer transforms would take hundreds of megabytes."""


@onnx_op("DFT")
def dft_by_attribute(n: Node, x: Value, length: Value | None = None) -> Value:
    return _dft(n, x, length, n.integer("axis", 1))


@onnx_op("DFT", since=20)
def dft(n: Node, x: Value, length: Value | None = None, axis: Value | None = None) -> Value:
    return _dft(n, x, length, -2 if axis is None else n.known_ints(axis, "axes")[0])


def _dft(n: Node, x: Value, length: Value | None, given: int) -> Value:
    """The transform of x [..., 1 or 2], whose last dim holds real and imaginary parts."""
    axis = n.axis(given, x.rank)
    if axis == x.rank - 1:
        raise Fault("the last dim holds the parts of complex numbers; it cannot be transformed")
    size, inverse, onesided = x.shape[axis], n.flag("inverse"), n.flag("onesided")
    default = (size - 1) * 2 if inverse and onesided else size
    points = default if length is None else n.known_sizes(length, "lengths")[0]
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
    [stride] = n.known_ints(step, "frame steps")
    if length is not None:
        [size] = n.known_ints(length, "frame lengths")
    else:
        source = x.shape[1] if window is None else window.shape[0]
        [size] = n.known_ints(n.of_sizes([source]), "frame lengths")
    frames = n(FramesOp, x, axis=1, size=size, step=stride)
    return _product(n, frames, size, False, n.flag("onesided", True), window)


@onnx_op("MelWeightMatrix")
def mel_weight_matrix(
    n: Node, bins: Value, length: Value, rate: Value, low: Value, high: Value
) -> Value:
    """Triangular filters over the bins of a spectrum, evenly spaced on the mel scale."""
    counts = [n.known_ints(v, "sizes")[0] for v in (bins, length, rate)]
    edges = [float(n.known_numbers(v, "edges").reshape(-1)[0]) for v in (low, high)]
    matrix = _mel_weights(*counts, *edges)
    return n.constant(matrix).cast(n.element("output_datatype", t.f32))


def _mel_weights(bins: int, length: int, rate: int, low: float, high: float) -> Array:
    """The weights [length // 2 + 1, bins], by ONNX's formula.

    It divides the range of frequencies into bins + 2 steps.
    """
    first, last = (2595 * np.log10(1 + edge / 700) for edge in (low, high))
    mels = np.arange(bins + 2) * ((last - first) / (bins + 2)) + first
    hertz = 700 * (10 ** (mels / 2595) - 1)
    points = ((length + 1) * hertz // rate).astype(np.int64)
    weights = np.zeros((length // 2 + 1, bins))
    for k in range(bins):
        left, center, right = map(int, points[k:k + 3])
        rising = np.arange(left, center + 1)
        weights[rising, k] = (rising - left) / (center - left) if center > left else 1.0
        falling = np.arange(center, right)
        weights[falling, k] = (right - falling) / max(right - center, 1)
    return weights
