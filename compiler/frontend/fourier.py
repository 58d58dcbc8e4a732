"""Fourier transforms of a constant length, as products with small constant matrices.

    n = r m, r up to 16 or prime   sums of r numbers, m at a time: Stockham's algorithm, by radix
    others (Bluestein)             a convolution with a chirp, of a power of two at least 2n - 1
    real numbers, n even           a transform of n/2 complex numbers, and a step

A stage of radix r multiplies [2r, 2r] by [2r, n/r], real and imaginary parts one below the other,
and turns the result by roots of unity while it is stored transposed. So a transform of 4096 numbers
has three products. Roots are computed in f64 and rounded once; products of more than 16 numbers are
computed in f64, since their rounding would show.

Source: C. Van Loan, Computational Frameworks for the Fast Fourier Transform, 1.7, 4.2 and 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.values import Value, constant
from dialects.strata import types as t
from dialects.strata.types import Array
from dialects.symbolic.size_products import product

RADIX, LARGEST_PRIME = 16, 61
"""The largest radix, and the largest that is a prime."""


_PARTS: tuple[Callable[[Array], Array], ...] = (np.real, np.imag)


@dataclass(frozen=True)
class Spectrum:
    """Complex numbers: two values of one shape and one element type of floats."""

    re: Value
    im: Value


def transform(x: Spectrum, axis: int, count: int, forward: bool) -> Spectrum:
    """The sums of x_j e^(-+2 pi i j k / count) over j along an axis of this length, not scaled."""
    if count == 1:
        return x
    outer = [k for k in range(x.re.rank) if k != axis]
    order = [*outer, axis]
    re, im = (v.transpose(order) for v in (x.re, x.im))
    batch = product(re.shape[:-1])
    packed = f.concat([v.reshape([batch, 1, count]) for v in (re, im)], axis=1)
    made = _packed(packed, count, forward)
    back = [order.index(k) for k in range(len(order))]
    parts = [made.part(1, k, 1).reshape(re.shape).transpose(back) for k in (0, 1)]
    return Spectrum(*parts)


def of_reals(x: Value, axis: int, count: int) -> Spectrum:
    """The first count // 2 + 1 numbers of the transform of real numbers, forward."""
    half = count // 2
    if count % 2 or count <= RADIX:
        found = _direct_of_reals(x, axis, count) if count <= RADIX else transform(
            Spectrum(x, x * 0.0), axis, count, True)
        return Spectrum(*(v.part(axis, 0, half + 1) for v in (found.re, found.im)))
    pairs = Spectrum(x.part(axis, 0, half, 2), x.part(axis, 1, half, 2))
    found = _around(transform(pairs, axis, half, True), axis, half)
    mirrored = Spectrum(_reversed(found.re, axis), _reversed(found.im, axis))
    turn = _roots(np.arange(half + 1), count, True)
    shape = [half + 1, *[1] * (x.rank - 1 - axis)]
    cosine, sine = (_like(x, part(turn).reshape(shape)) for part in _PARTS)
    even = Spectrum((found.re + mirrored.re) * 0.5, (found.im - mirrored.im) * 0.5)
    odd = Spectrum((found.im + mirrored.im) * 0.5, (mirrored.re - found.re) * 0.5)
    return Spectrum(even.re + odd.re * cosine - odd.im * sine,
                    even.im + odd.re * sine + odd.im * cosine)


def to_reals(x: Spectrum, axis: int, count: int) -> Value:
    """The real numbers of which x is the first half of the transform, backward, not scaled.

    The imaginary parts of the first number, and of the middle one, do not count.
    """
    half = count // 2
    if count <= RADIX:
        return _direct_to_reals(x, axis, count)
    if count % 2:
        whole = mirror(x, axis, count)
        return transform(whole, axis, count, False).re
    first, rest = x.im.part(axis, 0, 1) * 0.0, x.im.part(axis, 1, half - 1)
    im = f.concat([first, rest, x.im.part(axis, half, 1) * 0.0], axis=axis)
    low = Spectrum(x.re.part(axis, 0, half), im.part(axis, 0, half))
    high = Spectrum(*(_reversed(v, axis).part(axis, 0, half) for v in (x.re, im)))
    turn = _roots(np.arange(half), count, False)
    shape = [half, *[1] * (x.re.rank - 1 - axis)]
    cosine, sine = (_like(x.re, part(turn).reshape(shape)) for part in _PARTS)
    even = Spectrum(low.re + high.re, low.im - high.im)
    gap = Spectrum(low.re - high.re, low.im + high.im)
    odd = Spectrum(gap.re * cosine - gap.im * sine, gap.re * sine + gap.im * cosine)
    pairs = transform(Spectrum(even.re - odd.im, even.im + odd.re), axis, half, False)
    columns = [[*v.shape[:axis + 1], 1, *v.shape[axis + 1:]] for v in (pairs.re, pairs.im)]
    both = f.concat([v.reshape(s) for v, s in zip((pairs.re, pairs.im), columns, strict=True)],
                    axis=axis + 1)
    return both.reshape([*x.re.shape[:axis], count, *x.re.shape[axis + 1:]])


def mirror(x: Spectrum, axis: int, count: int) -> Spectrum:
    """All numbers of a transform of real numbers, of which x has the first count // 2 + 1."""
    last = (count - 1) // 2
    re, im = (_reversed(v.part(axis, 1, last), axis) for v in (x.re, x.im))
    return Spectrum(f.concat([x.re, re], axis=axis), f.concat([x.im, -im], axis=axis))


# ---------------------------------------------------------------------- complex numbers, packed
def _packed(x: Value, count: int, forward: bool) -> Value:
    """The transform of x [batch, 2, count]: real parts, then imaginary parts."""
    radices = _radices(count)
    if radices is None:
        return _chirped(x, count, forward)
    batch, left, done = x.shape[0], count, 1
    for radix in radices:
        left //= radix
        columns = left * done
        matrix = _rows(_roots(np.outer(np.arange(radix), np.arange(radix)), radix, forward))
        rows = x.reshape([batch, 2 * radix, columns])
        rows = rows.cast(t.f64) if radix > RADIX else rows
        sums = (_like(rows, matrix) @ rows).cast(x.element)
        sums = sums.reshape([batch, 2, radix, left, done])
        if left > 1:
            angles = np.outer(np.arange(radix), np.arange(left))
            sums = _turned(sums, _roots(angles, radix * left, forward)[..., None])
        x = sums.transpose([0, 1, 3, 2, 4]).reshape([batch, 2, count])
        done *= radix
    return x


def _radices(count: int) -> list[int] | None:
    """Factors of a length, each a power of two up to RADIX or a prime; None if one is too large."""
    if count <= RADIX:
        return [count]
    twos = (count & -count).bit_length() - 1
    odd, found = count >> twos, list[int]()
    for prime in range(3, LARGEST_PRIME + 1, 2):
        while odd % prime == 0:
            odd //= prime
            found.append(prime)
    if odd > 1:
        return None
    most = RADIX.bit_length() - 1
    stages = -(-twos // most)
    powers = [(twos + k) // stages for k in range(stages)]
    return [*(1 << power for power in powers), *_joined(found)]


def _joined(primes: list[int]) -> list[int]:
    """Prime factors, multiplied while the product is a small radix."""
    found: list[int] = []
    for prime in primes:
        if found and found[-1] * prime <= RADIX:
            found[-1] *= prime
        else:
            found.append(prime)
    return found


def _chirped(x: Value, count: int, forward: bool) -> Value:
    """Bluestein's algorithm: j k = (j^2 + k^2 - (j - k)^2) / 2, so sums are a convolution."""
    length = 1 << (2 * count - 2).bit_length()
    batch, rest = x.shape[0], length - count
    squares = np.arange(count, dtype=object) ** 2 % (2 * count)
    chirp = _roots(squares.astype(np.int64), 2 * count, forward)
    around = np.zeros(length, np.complex128)
    around[:count] = np.conj(chirp)
    around[length - count + 1:] = np.conj(chirp[:0:-1])
    filter_ = np.fft.fft(around) / length
    turned = _turned(x, chirp)
    zeros = constant(x.build, np.zeros((), x.type.dtype), node=x.node).broadcast([batch, 2, rest])
    found = _packed(f.concat([turned, zeros], axis=2), length, True)
    found = _packed(_turned(found, filter_), length, False)
    return _turned(found.part(2, 0, count), chirp)


def _turned(x: Value, by: Array) -> Value:
    """x [batch, 2, ...] times complex constants [...]."""
    re, im = (x.part(1, k, 1) for k in (0, 1))
    cosine, sine = (_like(x, part(by)) for part in _PARTS)
    return f.concat([re * cosine - im * sine, re * sine + im * cosine], axis=1)


# ---------------------------------------------------------------------- short real transforms
def _direct_of_reals(x: Value, axis: int, count: int) -> Spectrum:
    """The product with the real and imaginary parts of all roots at once."""
    half = count // 2 + 1
    roots = _roots(np.outer(np.arange(count), np.arange(half)), count, True)
    made = _along(x, axis, np.concatenate([part(roots) for part in _PARTS], axis=1))
    return Spectrum(made.part(axis, 0, half), made.part(axis, half, half))


def _direct_to_reals(x: Spectrum, axis: int, count: int) -> Value:
    half = count // 2 + 1
    roots = _roots(np.outer(np.arange(half), np.arange(count)), count, False)
    twice = np.full((half, 1), 2.0)
    twice[0] = 1.0
    if count % 2 == 0:
        twice[-1] = 1.0
    roots = roots * twice
    cosine, sine = np.real(roots), -np.imag(roots)
    sine[0] = 0.0
    if count % 2 == 0:
        sine[-1] = 0.0
    return _along(f.concat([x.re, x.im], axis=axis), axis, np.concatenate([cosine, sine]))


def _along(x: Value, axis: int, matrix: Array) -> Value:
    """x times a matrix along an axis."""
    order = [*(k for k in range(x.rank) if k != axis), axis]
    made = x.transpose(order) @ _like(x, matrix)
    return made.transpose([order.index(k) for k in range(x.rank)])


# ---------------------------------------------------------------------- parts
def _around(x: Spectrum, axis: int, count: int) -> Spectrum:
    """The numbers 0, 1, ..., count - 1, 0."""
    return Spectrum(*(f.concat([v, v.part(axis, 0, 1)], axis=axis) for v in (x.re, x.im)))


def _reversed(x: Value, axis: int) -> Value:
    """The numbers from the last to the first."""
    size = x.shape[axis]
    return x.part(axis, size - 1, size, -1)


def _roots(exponents: Array, count: int, forward: bool) -> Array:
    """e^(-+2 pi i exponent / count), of exponents below count, so that few digits are lost. Those
    on an axis are exact: the imaginary part of a sum of reals is 0 there, not nearly so."""
    angles = 2 * np.pi * (exponents % count) / count
    found = np.cos(angles) + (-1j if forward else 1j) * np.sin(angles)
    return np.where(exponents * 4 % count == 0, np.round(found), found)


def _rows(roots: Array) -> Array:
    """The real matrix that multiplies real parts above imaginary parts by a complex one."""
    re, im = np.real(roots), np.imag(roots)
    return np.concatenate([np.concatenate([re, -im], 1), np.concatenate([im, re], 1)])


def _like(x: Value, numbers: Array) -> Value:
    return constant(x.build, np.ascontiguousarray(numbers).astype(x.type.dtype), node=x.node)
