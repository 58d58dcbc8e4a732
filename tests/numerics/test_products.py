"""Sums of products: integers come out as plain integer arithmetic has them, at the limits too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from dialects import graph as g
from dialects.semantics.products import EXACT, PIECE, matmul, sum_of_products
from dialects.semantics.views import distinct, each, stretch, strided
from dialects.strata.types import Array, i32
from targets.base import TargetOptions, find_target
from targets.reference.interpret import interpret
from tests.lowering import check_levels
from tests.op_samples.sample import S, Sample, build_module

CPU = find_target("cpu")
I32 = np.dtype(np.int32)
LIMITS = [(np.int8, -128), (np.int8, 127), (np.uint8, 255), (np.int16, -(2**15)),
          (np.int32, 2**31 - 1), (np.int32, -(2**31))]


def plain(a: Array, b: Array, dtype: np.dtype[Any]) -> Array:
    """The matrix product in Python's integers, wrapped around."""
    total = np.asarray(a.astype(object) @ b.astype(object))
    wrapped = np.asarray([int(n) % 2 ** (8 * dtype.itemsize) for n in total.reshape(-1)], object)
    return wrapped.astype(f"u{dtype.itemsize}").view(dtype).reshape(total.shape)


def ends(dtype: Any, shape: Sequence[int], seed: int = 0) -> Array:
    """Numbers of the whole range of a type, its ends among them."""
    info = np.iinfo(dtype)
    x = np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)
    x.reshape(-1)[::5], x.reshape(-1)[1::7] = info.min, info.max
    return x


# ---------------------------------------------------------------------- matrices
@pytest.mark.parametrize("depth", [1, 3, 257, 1031])
@pytest.mark.parametrize(("kind", "number"), LIMITS)
@pytest.mark.parametrize("other", [-128, 127, 255])
def test_limits(kind: Any, number: int, other: int, depth: int) -> None:
    """The largest sums that types allow; those of i32 wrap around."""
    a = np.full((2, depth), number, kind)
    b = np.full((depth, 3), other, np.int16)
    assert np.array_equal(matmul(a, b, I32), plain(a, b, I32))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
@pytest.mark.parametrize("kinds", [(np.int8, np.int8), (np.uint8, np.int8), (np.int16, np.int16),
                                   (np.int32, np.int32), (np.int64, np.int64)])
@pytest.mark.parametrize("shapes", [((5, 7), (7, 3)), ((2, 1, 5, 7), (3, 7, 2)), ((7,), (7, 4)),
                                    ((4, 7), (7,)), ((7,), (7,)), ((0, 7), (7, 3)),
                                    ((5, 0), (0, 3))])
def test_matmul(kinds: Any, shapes: Any, dtype: Any) -> None:
    a, b = (ends(kind, shape) for kind, shape in zip(kinds, shapes, strict=True))
    got = matmul(a, b, np.dtype(dtype))
    assert got.dtype == dtype and np.array_equal(got, plain(a, b, np.dtype(dtype)))


@pytest.mark.parametrize(("carrier", "limit"), EXACT)
def test_last_exact_sum(carrier: np.dtype[Any], limit: int) -> None:
    """Around the bound of a float type odd sums must not be rounded."""
    root = 1 << (limit.bit_length() // 2 - 1)
    for more in (-1, 0, 1, 3):
        a = np.asarray([[root, root, 1]], np.int64)
        b = np.asarray([[root], [limit // root - root], [more]], np.int64)
        assert matmul(a, b, np.dtype(np.int64)).item() == limit + more


# ---------------------------------------------------------------------- any dims
@pytest.mark.parametrize(("a", "b", "summed"), [
    ((5, 1, 7), (1, 4, 7), {2: 7}),
    ((5, 3, 1, 7), (1, 3, 4, 7), {3: 7}),  # dim 1 is both factors'
    ((3, 5, 1, 7), (1, 1, 4, 7), {0: 3, 3: 7}),  # dim 0 is the first's alone
    ((5, 1, 1), (1, 4, 1), {2: 6}),  # dim 2 is nobody's
    ((1, 1), (1, 1), {0: 3, 1: 2}),
    ((0, 1, 7), (1, 4, 7), {2: 7}),
    ((600, 1, 2, 33), (1, 9, 2, 33), {2: 2, 3: 33}),
])
@pytest.mark.parametrize("kind", [np.int8, np.int32, np.float64])
def test_sum_of_products(
    a: tuple[int, ...], b: tuple[int, ...], summed: Mapping[int, int], kind: Any
) -> None:
    dtype = np.dtype(kind if kind is np.float64 else np.int32)
    x, y = ((ends(np.int8, shape, seed).astype(kind) for seed, shape in enumerate((a, b))))
    pairs = enumerate(zip(a, b, strict=True))
    full = [summed.get(d, max(m, n) if m and n else 0) for d, (m, n) in pairs]
    wide = np.broadcast_to(x.astype(np.int64), full) * np.broadcast_to(y.astype(np.int64), full)
    want = wide.sum(tuple(summed)).astype(dtype)
    for left, right in ((x, y), (y, x)):
        got = sum_of_products(left, right, summed, dtype)
        assert got.dtype == dtype and np.array_equal(got, want)


def test_pieces_and_strides() -> None:
    """Factors larger than a piece, in any order in memory."""
    x = ends(np.uint8, (23, 64, 411))
    assert x.size > PIECE
    y = ends(np.int8, (64, 5))
    want = np.einsum("nck,co->nko", x.astype(np.int64), y.astype(np.int64)).astype(np.int32)
    for order in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
        moved = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
        got = sum_of_products(moved[..., None], y[None, :, None, :], {1: 64}, I32)
        assert np.array_equal(got, want)


# ---------------------------------------------------------------------- convolutions
def plain_conv(x: Array, w: Array, group: int, stride: int, dilation: int, pad: int) -> Array:
    """A convolution of two spatial dims as four loops over Python's own integers."""
    x = np.pad(x.astype(np.int64), [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    reach = [dilation * (k - 1) + 1 for k in w.shape[2:]]
    counts = [(n - r) // stride + 1 for n, r in zip(x.shape[2:], reach, strict=True)]
    y = np.zeros((len(x), len(w), *counts), np.int64)
    each_co, each_c = len(w) // group, w.shape[1]
    for o, i, j in np.ndindex(*y.shape[1:]):
        first = o // each_co * each_c
        part = x[:, first:first + each_c, i * stride:i * stride + reach[0]:dilation,
                 j * stride:j * stride + reach[1]:dilation]
        y[:, o, i, j] = (part * w[o].astype(np.int64)).sum((1, 2, 3))
    return y.astype(np.int32)


@pytest.mark.parametrize(("group", "stride", "dilation", "pad", "kernel"), [
    (1, 1, 1, 0, (1, 1)), (1, 1, 1, 1, (3, 3)), (2, 2, 1, 2, (3, 5)), (6, 1, 2, 3, (3, 3)),
    (3, 3, 2, 0, (2, 1)),
])
@pytest.mark.parametrize(("x_kind", "zero", "w_kind", "w_zero"), [
    (np.uint8, 255, np.int8, -128), (np.uint8, 0, np.uint8, 255), (np.int8, -128, np.int8, 127)])
def test_conv_integer(
    group: int, stride: int, dilation: int, pad: int, kernel: tuple[int, int], x_kind: Any,
    zero: int, w_kind: Any, w_zero: int,
) -> None:
    x, w = ends(x_kind, (2, 6, 11, 13)), ends(w_kind, (12, 6 // group, *kernel), 1)
    want = plain_conv(x.astype(np.int64) - zero, w.astype(np.int64) - w_zero, group, stride,
                      dilation, pad)
    check(S(g.ConvIntegerOp, x, w, np.asarray(zero, x_kind), np.asarray(w_zero, w_kind),
            strides=[stride] * 2, dilations=[dilation] * 2, pads=[pad] * 4, group=group), want)


def test_conv_that_wraps_around() -> None:
    x = np.full((1, 300, 3, 3), 2**15 - 1, np.int16)
    w = np.full((1, 300, 3, 3), -(2**15), np.int16)
    total = 300 * 9 * (2**15 - 1) * -(2**15)
    want = np.asarray((total + 2**31) % 2**32 - 2**31, np.int32).reshape(1, 1, 1, 1)
    check(S(g.ConvOp, x, w, to=i32), want)


def test_conv_of_no_samples() -> None:
    x, w = ends(np.uint8, (0, 6, 5, 5)), ends(np.int8, (4, 6, 3, 3))
    check(S(g.ConvOp, x, w, to=i32), np.zeros((0, 4, 3, 3), np.int32))


@pytest.mark.parametrize("shapes", [((33, 65), (65, 17)), ((2, 1, 7), (7, 3)), ((5, 0), (0, 3))])
def test_matmul_integer(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = ends(np.uint8, shapes[0]), ends(np.int8, shapes[1], 1)
    want = plain(a.astype(np.int32) - 255, b.astype(np.int32) + 128, I32)
    check(S(g.MatmulIntegerOp, a, b, np.asarray(255, np.uint8), np.asarray(-128, np.int8)), want)


def check(sample: Sample, want: Array) -> None:
    """What the operation computes, and what every level below makes of it."""
    module, inputs, context = build_module(sample, symbolic=False)
    [got] = interpret(module, context.weights, inputs)
    assert got.dtype == want.dtype and np.array_equal(got, want)
    lowering = CPU.bind(TargetOptions(threads=1)).context(context.weights)
    check_levels(module, lowering, inputs, [want], 0.0, set())


# ---------------------------------------------------------------------- views
def test_each_number_is_computed_once() -> None:
    x = np.arange(40, dtype=np.int16)
    windows = strided(x, (32, 9), (2, 2))
    seen: list[int] = []

    def double(numbers: Array) -> Array:
        seen.append(numbers.size)
        return numbers * np.float64(2)

    assert np.array_equal(each(double, windows), windows * 2.0) and seen == [40]
    assert np.array_equal(distinct(windows), x)


def test_views_that_hold_no_number_twice() -> None:
    """These are computed as they are, and so is what runs backwards."""
    x = np.arange(40, dtype=np.int16)
    for view in (x[::2], x.reshape(5, 8).T, x[::-1], x[:0]):
        assert stretch(view) is None
        assert np.array_equal(each(np.negative, view), -view)
