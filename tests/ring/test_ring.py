"""The laws of the ring, on arrays of residues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialects.semantics import numerics
from dialects.semantics.carriers import Carrier
from dialects.semantics.products import matmul, sum_of_products
from dialects.semantics.residues import SCRAMBLERS
from dialects.semantics.ring import Ring, RingError

RING = Ring()
SHAPES = st.tuples(st.integers(0, 5), st.integers(1, 7))


def residues(shape: tuple[int, ...], seed: int, ring: Ring = RING) -> np.ndarray:
    return ring.random(np.zeros(shape, np.float32), np.random.default_rng(seed))


def number(value: float, dtype: object = np.float32) -> np.ndarray:
    return RING.wrap(np.asarray(value, dtype))


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(np.asarray(RING.wrap(np.asarray(a))),
                          np.asarray(RING.wrap(np.asarray(b))), equal_nan=True)


@pytest.mark.parametrize(("bits", "primes"), [(24, (4073, 8147)), (11, (41, 83)), (8, (11, 23))])
def test_the_primes(bits: int, primes: tuple[int, int]) -> None:
    ring = Ring(bits)
    p, q = ring.primes
    assert (p, q) == primes and (q - 1) % p == 0 and ring.modulus // 2 <= 2**bits
    assert len({Ring(bits, seed).primes for seed in range(4)}) > 1


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SHAPES, st.integers(0, 99))
def test_laws(shape: tuple[int, int], seed: int) -> None:
    x, y, z = (residues(shape, 3 * seed + k) for k in range(3))
    assert same(x + y, y + x) and same((x + y) + z, x + (y + z)) and same((x * y) * z, x * (y * z))
    assert same(x * (y + z), x * y + x * z) and same(x - x, np.zeros(shape))
    assert same(np.exp(x + y), np.exp(x) * np.exp(y)) and same(np.exp(x - y) * np.exp(y), np.exp(x))
    assert same(np.square(x), x * x) and same(-x, 0 - x) and same(x / 3 * 3, x)
    assert same(x * 0.1 + y * 0.1, (x + y) * 0.1) and same(np.power(x, 2), x * x)
    assert same(np.power(x, 0.5), np.sqrt(x)) and same(np.abs(x), np.maximum(x, -x))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(SHAPES, st.integers(0, 99))
def test_reductions_in_any_order(shape: tuple[int, int], seed: int) -> None:
    x, order = residues(shape, seed), np.random.default_rng(seed).permutation(shape[1])
    for merge in (np.add, np.multiply, np.maximum):
        assert same(merge.reduce(x, axis=1), merge.reduce(x[:, order], axis=1))
    assert same(x.sum(1), np.cumsum(x, 1)[:, -1])
    assert same(np.multiply.accumulate(x, 1)[:, -1], np.multiply.reduce(x, axis=1))


@pytest.mark.parametrize("depth", [1, 7, 3000])
def test_products_are_exact(depth: int) -> None:
    a, b = residues((5, depth), 1), residues((depth, 4), 2)
    plain = np.asarray(a).astype(np.int64).astype(object) @ np.asarray(b).astype(
        np.int64).astype(object)
    want = np.vectorize(lambda n: n % RING.modulus)(plain).astype(np.int64)
    got = np.asarray(matmul(a, b, np.dtype(np.float32))).astype(np.int64) % RING.modulus
    assert np.array_equal(got, want)
    split = a[:, :depth // 2] @ b[:depth // 2] + a[:, depth // 2:] @ b[depth // 2:]
    assert same(a @ b, split)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False),
       st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_numbers_stand_for_residues(x: float, y: float) -> None:
    exact = number(x * y, np.float64)  # f64 holds the product of two f32, but for underflow
    if x * y == 0 or abs(x * y) > 2.0**-900:
        assert same(number(x) * number(y), exact)
    assert same(number(x) + number(x), number(2 * x, np.float64))
    assert same(number(x), number(x, np.float64))


def test_halves_make_one() -> None:
    assert same(number(0.5) + number(0.5), number(1)) and same(number(0.25) * 4, number(1))


@pytest.mark.parametrize("name", [*SCRAMBLERS, "erf"])
def test_other_functions_are_bijections(name: str) -> None:
    ring = Ring(8)
    every = np.arange(-(ring.modulus // 2), ring.modulus // 2 + 1, dtype=np.float32)
    x = every.view(ring.array)
    found = numerics.erf(x) if name == "erf" else getattr(np, name)(x)
    assert set(np.asarray(found).tolist()) == set(every.tolist())
    assert name == "log2" or not np.array_equal(np.asarray(found), every)


def test_infinities_and_nan() -> None:
    x = RING.wrap(np.array([-np.inf, np.inf, np.nan, 3], np.float32))
    assert np.asarray(np.exp(x))[0] == 0
    assert np.array_equal(np.asarray(x + 1)[:3], [-np.inf, np.inf, np.nan], equal_nan=True)
    assert same(np.exp(x - np.inf)[3:], np.zeros(1))


def test_conversions() -> None:
    x = residues((9,), 4)
    assert same(x.astype(np.float64).astype(np.float32), x)
    whole = np.array([-129, -1, 0, 5, 127, 300], np.int32)
    floats = whole.view(RING.array).astype(np.float32)
    assert np.array_equal(numerics.to_integer(floats, np.dtype(np.int32)), whole)
    assert isinstance(floats, Carrier)


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(RingError, match="no meaning in the ring"):
        np.einsum("ij,jk", residues((2, 3), 0), residues((3, 2), 1))
    with pytest.raises(RingError, match="no meaning in the ring"):
        np.hypot(residues((2,), 0), residues((2,), 1))


@pytest.mark.parametrize("shapes", [((4, 64), (1, 1)), ((1, 1), (4, 64)), ((4, 64), (1, 64)),
                                    ((4, 1), (1, 64)), ((4, 64), (4, 64))])
@pytest.mark.parametrize("plain", [0, 1])
def test_sums_of_products_with_a_literal_stay_in_the_ring(
    shapes: tuple[tuple[int, int], ...], plain: int
) -> None:
    """Whichever factor is a literal, which is no array of the ring: the sum over both dims, one
    after the other, is a residue. A literal times 64 residues is no number of f32."""
    ring = Ring()
    random = np.random.default_rng(0)
    factors: list[Any] = [ring.random(np.empty(s, np.float32), random) for s in shapes]
    exact = [np.asarray(x).view(np.ndarray).astype(np.int64).astype(object) for x in factors]
    factors[plain] = factors[plain].view(np.ndarray)
    size = [max(pair) for pair in zip(*shapes, strict=True)]
    found = sum_of_products(*factors, {1: size[1]}, np.dtype(np.float32))
    assert isinstance(found, Carrier)
    total = np.asarray(found.sum(0)).view(np.ndarray)
    want = (exact[0] * exact[1]) * np.ones(size, object)
    assert int(total) == ring.centered(np.array([want.sum() % ring.modulus], np.int64))[0]


@pytest.mark.parametrize("depth", [16, 1 << 10, 1 << 14])
def test_sums_of_products_of_integers_are_no_residues(depth: int) -> None:
    """Also where floats multiply integers and sums exceed the modulus, as in quantized products."""
    ring, random = Ring(24, 0), np.random.default_rng(3)
    a, b = random.integers(0, 256, (2, 3, depth)).astype(np.int32)
    expected = a.astype(np.int64) @ b.T.astype(np.int64)
    assert depth == 16 or expected.max() > ring.modulus // 2
    int32 = np.dtype(np.int32)
    products = matmul(ring.wrap(a), ring.wrap(b.T), int32)
    sums = sum_of_products(ring.wrap(a[:, None]), ring.wrap(b[None]), {2: depth}, int32)
    for found in (products, sums):
        assert isinstance(found, Carrier) and found.dtype == int32
        assert np.array_equal(np.asarray(found), expected)
