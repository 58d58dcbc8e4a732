"""Fourier transforms of a length that only a call knows, by Bluestein's algorithm.

    j k = (j^2 + k^2 - (j - k)^2) / 2     sums of n numbers are a convolution with a chirp
    a convolution                         is a product of transforms of m >= 2n - 1 numbers, where m
                                          is a power of two that is computed from n

A transform of m numbers is a loop over log2(m) stages, each of which reads and writes them in the
same order: pairs that are m / 2 apart become neighbours. Its results are in bit-reversed order,
which a product does not mind, and the transform back begins with it. Angles are those of whole
numbers below 2n and m, computed in f64.
Source: C. Van Loan, Computational Frameworks for the Fast Fourier Transform, 1.8 and 4.2; M. Pease,
An Adaptation of the Fast Fourier Transform for Parallel Processing.
"""

from __future__ import annotations

import math

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.fourier import Spectrum
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.node import NodeBase
from compiler.frontend.peeling import repeat
from compiler.frontend.values import Value, scalar
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product

_LOG_MOST = 40
"""Lengths of transforms are below two to the power of this."""


@dataclass(frozen=True)
class Length:
    """The power of two for a length: 2 `half` = 2 ** `stages`."""

    half: Expr
    stages: Expr


def transform(n: NodeBase, x: Spectrum, axis: int, count: Expr, forward: bool) -> Spectrum:
    """The sums of x_j e^(-+2 pi i j k / count) over j along an axis of this length, not scaled."""
    order = [*(k for k in range(x.re.rank) if k != axis), axis]
    re, im = (v.transpose(order) for v in (x.re, x.im))
    batch = product(re.shape[:-1])
    packed = f.concat([v.reshape([batch, 1, count]) for v in (re, im)], axis=1)
    found = _chirped(n, packed, count, forward)
    back = [order.index(k) for k in range(len(order))]
    return Spectrum(*(found.part(1, k, 1).reshape(re.shape).transpose(back) for k in (0, 1)))


def of_reals(n: NodeBase, x: Value, axis: int, count: Expr) -> Spectrum:
    """The first count // 2 + 1 numbers of the transform of real numbers, forward."""
    found = transform(n, Spectrum(x, x * 0.0), axis, count, True)
    return Spectrum(*(v.part(axis, 0, count // 2 + 1) for v in (found.re, found.im)))


def mirror(n: NodeBase, x: Spectrum, axis: int, count: Expr) -> Spectrum:
    """All numbers of a transform of real numbers, of which x has the first count // 2 + 1."""
    places = n.range(count)
    is_there = places <= n.of_size(count // 2)
    taken = f.where(is_there, places, n.of_size(count) - places)
    re, im = (f.gather(v, taken, axis=axis) for v in (x.re, x.im))
    column = is_there.reshape([count, *[1] * (re.rank - 1 - axis)])
    return Spectrum(re, f.where(column, im, -im))


def to_reals(n: NodeBase, x: Spectrum, axis: int, count: Expr) -> Value:
    """The real numbers of which x is the first half of the transform, backward, not scaled."""
    places = n.range(count // 2 + 1)
    is_real = f.equal(places, 0) | f.equal(places * 2, n.of_size(count))
    column = is_real.reshape([count // 2 + 1, *[1] * (x.re.rank - 1 - axis)])
    whole = mirror(n, Spectrum(x.re, f.where(column, 0, x.im)), axis, count)
    return transform(n, whole, axis, count, False).re


# ---------------------------------------------------------------------- Bluestein
def _chirped(n: NodeBase, x: Value, count: Expr, forward: bool) -> Value:
    """The transform of x [batch, 2, count]: real parts, then imaginary parts."""
    length = _length(n, count)
    whole, batch = length.half * 2, x.shape[0]
    chirp = _chirp(n, n.range(count), count, forward, x)
    places = n.range(whole)
    from_end = n.of_size(whole) - places
    distance = f.minimum(places, from_end)
    around = _chirp(n, distance, count, not forward, x)
    around = f.where(distance < n.of_size(count), around, 0)
    zeros = scalar(n.build, 0, x.element).broadcast([batch, 2, whole - count])
    padded = f.concat([_times(x, chirp), zeros], axis=2)
    both = _forward(n, f.concat([padded, around.reshape([1, 2, whole])], axis=0), length)
    filter_ = both.part(0, batch, 1).reshape([2, whole])
    found = _backward(n, _times(both.part(0, 0, batch), filter_), length)
    scale = (1.0 / n.of_size(whole).cast(t.f64)).cast(x.element)
    return _times(found.part(2, 0, count), chirp) * scale


def _length(n: NodeBase, count: Expr) -> Length:
    """The least power of two that is at least 2 count - 1, and at least 2."""
    least = f.maximum(n.of_size(count * 2 - 1), 2)
    powers = n.constant(2 ** np.arange(_LOG_MOST))
    below = powers < least
    stages = f.reduce_sum(below.cast(t.i64), [0], keepdims=True)
    half = f.reduce_max(f.where(below, powers, 1), [0], keepdims=True)
    sizes = n.build.bind(f.concat([half, stages], axis=0), "length")
    if sizes is None:
        raise Fault("its length cannot be a size")
    found = [Expr.of(size) for size in sizes]
    return Length(found[0], found[1])


def _chirp(n: NodeBase, places: Value, count: Expr, forward: bool, like: Value) -> Value:
    """e^(-+i pi k^2 / count) for places k: [2, ...]."""
    number = n.of_size(count)
    angles = (places * places % (number * 2)).cast(t.f64) * (
        math.pi / number.cast(t.f64))
    return _roots(angles, forward, like)


def _roots(angles: Value, forward: bool, like: Value) -> Value:
    """Real and imaginary parts of e^(-+i angle)."""
    sine = f.sin(angles)
    parts = [f.cos(angles), -sine if forward else sine]
    return f.concat([v.reshape([1, *v.shape]) for v in parts], axis=0).cast(like.element)


def _times(x: Value, by: Value) -> Value:
    """x [batch, 2, k] times complex numbers [2, k]."""
    re, im = (x.part(1, k, 1) for k in (0, 1))
    cosine, sine = (by.part(0, k, 1) for k in (0, 1))
    return f.concat([re * cosine - im * sine, re * sine + im * cosine], axis=1)


# ---------------------------------------------------------------------- powers of two
def _table(n: NodeBase, length: Length, forward: bool, like: Value) -> Value:
    """e^(-+2 pi i k / m) for k up to m / 2: [2, m / 2]."""
    angles = n.range(length.half).cast(t.f64) * (math.pi / n.of_size(length.half).cast(t.f64))
    return _roots(angles, forward, like)


def _turned(n: NodeBase, x: Value, table: Value, stride: Value) -> Value:
    """x times the roots of a stage: those of the pairs' numbers, rounded down to a multiple of the
    stride."""
    pairs = n.range(table.shape[1])
    return _times(x, f.gather(table, pairs & -stride, axis=1))


def _forward(n: NodeBase, x: Value, length: Length) -> Value:
    """The transform of x [batch, 2, m], in bit-reversed order."""
    table = _table(n, length, True, x)

    def stage(number: Expr, carried: list[Value]) -> Turn:
        x, stride = carried
        a, b = (x.part(2, k * length.half, length.half) for k in (0, 1))
        pairs = [a + b, _turned(n, a - b, table, stride)]
        made = f.concat([v.reshape([*v.shape, 1]) for v in pairs], axis=3).reshape(x.shape)
        return Turn(None, [made, stride * 2], [])

    one = scalar(n.build, 1, t.i64)
    loop = Loop(f"{n.name}_stage", length.stages, None, [x, one])
    return repeat(n.build, loop, stage)[0][0]


def _backward(n: NodeBase, x: Value, length: Length) -> Value:
    """m times the inverse of `_forward`: its stages from the last to the first."""
    table = _table(n, length, False, x)

    def stage(number: Expr, carried: list[Value]) -> Turn:
        x, stride = carried
        pairs = x.reshape([*x.shape[:2], length.half, 2])
        a, b = (pairs.part(3, k, 1).reshape([*x.shape[:2], length.half]) for k in (0, 1))
        b = _turned(n, b, table, stride)
        return Turn(None, [f.concat([a + b, a - b], axis=2), stride / 2], [])

    loop = Loop(f"{n.name}_stage_back", length.stages, None, [x, n.of_size(length.half)])
    return repeat(n.build, loop, stage)[0][0]
