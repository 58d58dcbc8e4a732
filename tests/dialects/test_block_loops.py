"""Loops at the block level, against plain NumPy: products in both orders, windows, bounds."""

from __future__ import annotations

import time

import numpy as np
import pytest

from dialects.block import interpret as interpreter
from tests.dialects.block_kernels import (
    ADD,
    CONV,
    FMA,
    RANDOM,
    convolution,
    gemm,
    packed,
    randoms,
    run,
    unlike,
)

BOTH_ORDERS = pytest.mark.parametrize("exact_order", [False, True])


# ---------------------------------------------------------------------- matrix products
@BOTH_ORDERS
def test_gemm_with_a_peeled_tail(exact_order: bool) -> None:
    a, b, bias, y = randoms(20, 37), randoms(37, 128), randoms(128), unlike((20, 128))
    run(gemm(20, 128, 37), a, packed(b), bias, y, exact_order=exact_order)
    np.testing.assert_allclose(y, a @ b + bias, rtol=1e-4, atol=1e-5)


@BOTH_ORDERS
def test_dot_with_masked_tiles_and_symbolic_sizes(exact_order: bool) -> None:
    m, n, k = 50, 20, 70
    a, b = randoms(m, k).astype(np.float16), randoms(k, n).astype(np.float16)
    y = unlike((m, n))
    run("""
    block.kernel @dot(%A: f16[m, k], %B: f16[k, n], %Y: f32[m, n])
        grid(%p: m ceildiv 16, %q: n ceildiv 32) sizes(m, n, k) {
      %z = block.full 0.0 : tile<16x32xf32>
      %acc = block.for %i = 0 to k step 16 (%c = %z) {
        %a = block.load %A[16*%p + t0, %i + t1] check [0, 1] pad 0.0 : tile<16x16xf16>
        %b = block.load %B[%i + t0, 32*%q + t1] check [0, 1] pad 0.0 : tile<16x32xf16>
        %d = block.dot %a, %b, %c ieee : tile<16x32xf32>
        block.yield %d
      }
      block.store %acc, %Y[16*%p + t0, 32*%q + t1] check [0, 1]
      block.yield
    }""", a, b, y, exact_order=exact_order, m=m, n=n, k=k)
    np.testing.assert_allclose(y, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("largest", [127, 2**31 - 1])
@BOTH_ORDERS
def test_integer_products_wrap_around(exact_order: bool, largest: int) -> None:
    a = RANDOM.integers(-largest, largest, (6, 40)).astype(np.int32)
    b = RANDOM.integers(-largest, largest, (40, 16)).astype(np.int32)
    y = np.zeros((6, 16), np.int32)
    run("""
    block.kernel @k(%A: i32[6, 40], %B: i32[40, 16], %Y: i32[6, 16]) grid() sizes() {
      %z = block.full 0 : tile<6x[16]xi32>
      %acc = block.for %k = 0 to 40 step 1 (%c = %z) {
        %a = block.load %A[t0, %k] : tile<6xi32>
        %b = block.load %B[%k, t0] : tile<[16]xi32>
        %n = block.map (%a[0], %b[1], %c[0, 1]) : tile<6x[16]xi32> {
        ^bb0(%p: i32, %q: i32, %r: i32):
          %product = arith.muli %p, %q : i32
          %sum = arith.addi %product, %r : i32
          block.yield %sum
        }
        block.yield %n
      }
      block.store %acc, %Y[t0, t1]
      block.yield
    }""", a, b, y, exact_order=exact_order)
    expected = (a.astype(object) @ b.astype(object) + 2**31) % 2**32 - 2**31
    np.testing.assert_array_equal(y, expected.astype(np.int32))


@BOTH_ORDERS
def test_factors_may_be_computed_and_need_not_vary(exact_order: bool) -> None:
    x, s, y = randoms(7, 30), randoms(30), unlike((7,))
    run("""
    block.kernel @k(%x: f32[7, 30], %s: f32[30], %y: f32[7]) grid(%r: 7) sizes() {
      %z = block.full 1.0 : tile<f32>
      %two = block.full 2.0 : tile<f32>
      %acc = block.for %k = 0 to 30 step 2 (%c = %z) {
        %a = block.load %x[%r, %k] : tile<f32>
        %b = block.load %s[%k] : tile<f32>
        %n = block.map (%a[], %b[], %c[]) : tile<f32> {
        ^bb0(%p: f32, %q: f32, %t: f32):
          %e = math.exp %p : f32
          %m = arith.mulf %e, %q : f32
          %u = arith.addf %t, %m : f32
          block.yield %u
        }
        block.yield %n
      }
      %all = block.for %k = 0 to 10 step 1 (%c = %acc) {
        %n = block.map (%two[], %two[], %c[]) : tile<f32> """ + FMA + """
        block.yield %n
      }
      block.store %all, %y[%r]
      block.yield
    }""", x, s, y, exact_order=exact_order)
    expected = 41 + (np.exp(x[:, ::2]) * s[::2]).sum(1)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------------- single values
MERGE = """
    block.kernel @k(%x: T[5, 6, 7, 8], %y: T[5, 8]) grid(%p: 5) sizes() {
      %z = block.load %y[%p, t0] : tile<[8]xT>
      %acc = block.for %i = 0 to 6 step 2 (%a = %z) {
        %mid = block.for %j = 1 to 7 step 1 (%b = %a) {
          %v = block.load %x[%p, %i, %j, t0] : tile<[8]xT>
          %n = block.map (%v[0], %b[0]) : tile<[8]xT> {
          ^bb0(%q: T, %c: T):
            %r = OP : T
            block.yield %r
          }
          block.yield %n
        }
        block.yield %mid
      }
      block.store %acc, %y[%p, t0]
      block.yield
    }"""


@BOTH_ORDERS
@pytest.mark.parametrize(("kind", "op", "merge"), [
    ("f32", "arith.maximumf %q, %c", np.maximum), ("f32", "arith.addf %c, %q", np.add),
    ("i32", "arith.minsi %c, %q", np.minimum), ("i32", "arith.addi %q, %c", np.add),
    ("i32", "arith.subi %c, %q", np.subtract), ("i32", "arith.subi %q, %c", None),
    ("i32", "arith.ori %q, %c", np.bitwise_or)])
def test_values_merged_over_nested_loops(
    kind: str, op: str, merge: np.ufunc | None, exact_order: bool
) -> None:
    """Differences depend on the order of the trips, and on that of the operands."""
    dtype = np.dtype({"f32": np.float32, "i32": np.int32}[kind])
    x, y = ((4e8 * randoms(*shape)).astype(dtype) for shape in ((5, 6, 7, 8), (5, 8)))
    if kind == "f32":
        x[1, 2, 3, 4] = np.nan
    want = y.copy()
    for i, j in np.ndindex(3, 6):
        part = x[:, 2 * i, j + 1]
        want = part - want if merge is None else merge(want, part)
    text = MERGE.replace("OP", op).replace("xT>", f"x{kind}>").replace("T[", f"{kind}[")
    run(text.replace(": T", f": {kind}"), x, y, exact_order=exact_order)
    np.testing.assert_allclose(y, want, rtol=0, atol=2e3 if kind == "f32" else 0)


# ---------------------------------------------------------------------- windows
@BOTH_ORDERS
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(3, 1, 1), (3, 2, 1), (1, 2, 0), (5, 3, 2)])
def test_convolution_with_padding_and_stride(
    kernel: int, stride: int, pad: int, exact_order: bool
) -> None:
    x, w = randoms(2, 11, 13, 4), randoms(kernel, kernel, 4, 32)
    out = [(n + 2 * pad - kernel) // stride + 1 for n in (11, 13)]
    y = unlike((2, *out, 32))
    run(CONV, x, w, y, exact_order=exact_order, H=11, W=13, C=4, K=kernel, S=stride, P=pad,
        OH=out[0], OW=out[1])
    np.testing.assert_allclose(y, convolution(x, w, stride, pad), rtol=1e-4, atol=1e-4)


@BOTH_ORDERS
def test_depthwise_convolution(exact_order: bool) -> None:
    x, w, y = randoms(1, 9, 10, 32), randoms(3, 3, 32), unlike((1, 9, 10, 32))
    run("""
    block.kernel @depthwise(%X: f32[1, 9, 10, 32], %W: f32[3, 3, 32], %Y: f32[1, 9, 10, 32])
        grid(%n: 1, %ho: 9, %c: 2) sizes() {
      %z = block.full 0.0 : tile<4x[16]xf32>
      block.for %wo = 0 to 10 step 4 parallel {
        %acc = block.for %kh = 0 to 3 step 1 (%c0 = %z) {
          %acc1 = block.for %kw = 0 to 3 step 1 (%s = %c0) {
            %x = block.load %X[%n, %ho + %kh - 1, %wo + t0 + %kw - 1, 16*%c + t1]
                check [1, 2] pad 0.0 : tile<4x[16]xf32>
            %w = block.load %W[%kh, %kw, 16*%c + t0] : tile<[16]xf32>
            %r = block.map (%x[0, 1], %w[1], %s[0, 1]) : tile<4x[16]xf32> """ + FMA + """
            block.yield %r
          }
          block.yield %acc1
        }
        block.store %acc, %Y[%n, %ho, %wo + t0, 16*%c + t1] check [2]
        block.yield
      }
      block.yield
    }""", x, w, y, exact_order=exact_order)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = sum(padded[:, i:i + 9, j:j + 10] * w[i, j] for i in range(3) for j in range(3))
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------- loops
@pytest.mark.parametrize("kind", ["", "parallel"])
def test_programs_may_differ_in_their_bounds(kind: str) -> None:
    y = np.zeros((6, 10), np.float32)
    run(f"""
    block.kernel @k(%y: f32[6, 10]) grid(%r: 6) sizes() {{
      %one = block.full 1.0 : tile<f32>
      block.for %c = %r to min(3*%r, 10) step 2 {kind} {{
        block.store %one, %y[%r, %c]
        block.yield
      }}
      block.yield
    }}""", y)
    expected = np.zeros((6, 10))
    for r in range(6):
        expected[r, r:min(3 * r, 10):2] = 1
    np.testing.assert_array_equal(y, expected)


def test_inner_bounds_may_depend_on_outer_counters() -> None:
    x, y = randoms(7), unlike((3, 7))
    run("""
    block.kernel @prefix(%x: f32[7], %y: f32[3, 7]) grid(%p: 3) sizes() {
      block.for %i = %p to 7 step 1 parallel {
        %z = block.full 0.0 : tile<f32>
        %sum = block.for %k = 0 to %i + 1 step 1 (%c = %z) {
          %a = block.load %x[%k] : tile<f32>
          %n = block.map (%a[], %c[]) : tile<f32> """ + ADD + """
          block.yield %n
        }
        block.store %sum, %y[%p, %i]
        block.yield
      }
      block.yield
    }""", x, y)
    for p in range(3):
        np.testing.assert_allclose(y[p, p:], np.cumsum(x)[p:], rtol=1e-5, atol=1e-5)
        assert (y[p, :p] == 77).all()


@BOTH_ORDERS
def test_products_of_programs_some_of_which_are_inactive(exact_order: bool) -> None:
    a, b, y = randoms(7, 9), randoms(9, 16), unlike((3, 7, 16))
    run("""
    block.kernel @k(%A: f32[7, 9], %B: f32[9, 16], %y: f32[3, 7, 16]) grid(%p: 3) sizes() {
      block.for %i = 2*%p to min(2*%p + 4, 7) step 1 parallel {
        %z = block.full 0.0 : tile<[16]xf32>
        %sum = block.for %k = %p to %p + 7 step 2 (%c = %z) {
          %l = block.load %A[%i, %k] : tile<f32>
          %r = block.load %B[%k, t0] : tile<[16]xf32>
          %n = block.map (%l[], %r[0], %c[0]) : tile<[16]xf32> """ + FMA + """
          block.yield %n
        }
        block.store %sum, %y[%p, %i, t0]
        block.yield
      }
      block.yield
    }""", a, b, y, exact_order=exact_order)
    for p in range(3):
        rows, depth = slice(2 * p, min(2 * p + 4, 7)), slice(p, p + 7, 2)
        expected = np.full((7, 16), 77, np.float32)
        expected[rows] = a[rows, depth] @ b[depth]
        np.testing.assert_allclose(y[p], expected, rtol=1e-4, atol=1e-5)


def test_a_loop_of_no_trips_returns_what_it_carried() -> None:
    y = unlike((2,))
    run("""
    block.kernel @k(%y: f32[2]) grid(%p: 2) sizes(n) {
      %z = block.full 5.0 : tile<f32>
      %r = block.for %i = 0 to n step 1 (%c = %z) {
        %s = block.map (%c[], %c[]) : tile<f32> """ + ADD + """
        block.yield %s
      }
      block.store %r, %y[%p]
      block.yield
    }""", y, n=0)
    np.testing.assert_array_equal(y, [5, 5])


@pytest.mark.parametrize("room", [1, 100, 1000])
def test_pieces_of_any_size_give_the_same(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "ROOM", room)
    test_gemm_with_a_peeled_tail(False)
    test_convolution_with_padding_and_stride(3, 2, 1, False)
    test_inner_bounds_may_depend_on_outer_counters()
    test_depthwise_convolution(False)


# ---------------------------------------------------------------------- speed
def test_a_large_gemm_is_fast() -> None:
    a, b, bias, y = randoms(128, 768), randoms(768, 3072), randoms(3072), unlike((128, 3072))
    for exact_order in (False, True):
        start = time.process_time()
        run(gemm(128, 3072, 768), a, packed(b), bias, y, exact_order=exact_order)
        assert time.process_time() - start < 2
        np.testing.assert_allclose(y, a @ b + bias, rtol=1e-3, atol=1e-3)


def test_a_convolution_as_in_resnet_is_fast() -> None:
    x, w = randoms(2, 56, 56, 64), randoms(3, 3, 64, 32)
    y = unlike((2, 56, 56, 32))
    start = time.process_time()
    run(CONV, x, w, y, H=56, W=56, C=64, K=3, S=1, P=1, OH=56, OW=56)
    assert time.process_time() - start < 2
    np.testing.assert_allclose(y, convolution(x, w, 1, 1), rtol=1e-3, atol=1e-3)
