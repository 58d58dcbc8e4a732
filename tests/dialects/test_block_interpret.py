"""Kernels written by hand at the block level, against plain NumPy: tiles, memory, errors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.dialects.block_kernels import ADD, RANDOM, convolution, copy_kernel, randoms, run, unlike


# ---------------------------------------------------------------------- elementwise
@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000])
def test_elementwise_with_a_tail(n: int) -> None:
    x, y = randoms(n), unlike((n,))
    run(copy_kernel("f32", "f32"), x, y, n=n)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize(("element", "tile", "dtype"), [
    ("f16", "f16", np.float16), ("bf16", "bf16", ml_dtypes.bfloat16), ("f64", "f64", np.float64),
    ("i1", "i1", np.bool_), ("i8", "i8", np.int8), ("ui8", "i8", np.uint8),
    ("ui32", "i32", np.uint32), ("i64", "i64", np.int64),
])
def test_every_element_type_is_copied(element: str, tile: str, dtype: Any) -> None:
    x = RANDOM.integers(0, 200, 100).astype(dtype)
    y = np.zeros(100, dtype)
    run(copy_kernel(element, tile), x, y, n=100)
    np.testing.assert_array_equal(y, x)


def test_an_empty_grid_runs_nothing() -> None:
    run(copy_kernel("f32", "f32"), randoms(0), randoms(0), n=0)


def test_bfloat16_is_computed_in_f32_where_the_body_says_so() -> None:
    x, y = randoms(64).astype(ml_dtypes.bfloat16), np.zeros(64, ml_dtypes.bfloat16)
    run("""block.kernel @k(%x: bf16[64], %y: bf16[64]) grid() sizes() {
      %a = block.load %x[t0] : tile<64xbf16>
      %b = block.map (%a[0]) : tile<64xbf16> {
      ^bb0(%v: bf16):
        %w = arith.extf %v : bf16 to f32
        %c = arith.constant 1.5 : f32
        %s = arith.mulf %w, %c : f32
        %r = arith.truncf %s : f32 to bf16
        block.yield %r
      }
      block.store %b, %y[t0]
      block.yield
    }""", x, y)
    np.testing.assert_array_equal(
        y, (x.astype(np.float32) * np.float32(1.5)).astype(ml_dtypes.bfloat16))


def test_a_map_broadcasts_transposes_and_reads_index_values() -> None:
    x, v, y = randoms(3, 4), randoms(4), unlike((8, 4, 3))
    run("""block.kernel @k(%x: f32[3, 4], %v: f32[4], %y: f32[8, 4, 3]) grid(%p: 8) sizes() {
      %a = block.load %x[t0, t1] : tile<3x4xf32>
      %b = block.load %v[t0] : tile<4xf32>
      %m = block.map (%a[1, 0], %b[0], %p[]) : tile<4x3xf32> {
      ^bb0(%s: f32, %t: f32, %i: index):
        %j = arith.index_cast %i : index to i32
        %f = arith.sitofp %j : i32 to f32
        %u = arith.mulf %s, %t : f32
        %r = arith.addf %u, %f : f32
        block.yield %r
      }
      block.store %m, %y[%p, t0, t1]
      block.yield
    }""", x, v, y)
    np.testing.assert_allclose(y, x.T * v[:, None] + np.arange(8)[:, None, None], rtol=1e-6)


# ---------------------------------------------------------------------- rows
SOFTMAX = """
block.kernel @softmax(%x: f32[rows, cols], %y: f32[rows, cols]) grid(%r: rows) sizes(rows, cols) {
  %low = block.full -inf : tile<[64]xf32>
  %part = block.for %c = 0 to cols step 64 (%m = %low) {
    %a = block.load %x[%r, %c + t0] check [1] pad -inf : tile<[64]xf32>
    %n = block.map (%m[0], %a[0]) : tile<[64]xf32> {
    ^bb0(%p: f32, %q: f32):
      %s = arith.maximumf %p, %q : f32
      block.yield %s
    }
    block.yield %n
  }
  %max = block.reduce max %part dim 0 : tile<f32>
  %zero = block.full 0.0 : tile<[64]xf32>
  %sums = block.for %c = 0 to cols step 64 (%s = %zero) {
    %a = block.load %x[%r, %c + t0] check [1] pad -inf : tile<[64]xf32>
    %e = block.map (%a[0], %max[]) : tile<[64]xf32> {
    ^bb0(%p: f32, %q: f32):
      %d = arith.subf %p, %q : f32
      %f = math.exp %d : f32
      block.yield %f
    }
    block.store %e, %y[%r, %c + t0] check [1]
    %n = block.map (%s[0], %e[0]) : tile<[64]xf32> """ + ADD + """
    block.yield %n
  }
  %sum = block.reduce add %sums dim 0 : tile<f32>
  block.for %c = 0 to cols step 64 {
    %e = block.load %y[%r, %c + t0] check [1] : tile<[64]xf32>
    %o = block.map (%e[0], %sum[]) : tile<[64]xf32> {
    ^bb0(%p: f32, %q: f32):
      %d = arith.divf %p, %q : f32
      block.yield %d
    }
    block.store %o, %y[%r, %c + t0] check [1]
    block.yield
  }
  block.yield
}"""


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (5, 64), (7, 150)])
def test_softmax_of_rows(rows: int, cols: int) -> None:
    x, y = randoms(rows, cols), unlike((rows, cols))
    run(SOFTMAX, x, y, rows=rows, cols=cols)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(("kind", "function"), [
    ("add", np.sum), ("mul", np.prod), ("max", np.max), ("min", np.min),
])
@pytest.mark.parametrize("dim", [0, 1])
def test_reductions_of_numbers(kind: str, function: Any, dim: int) -> None:
    text = f"""block.kernel @k(%x: E[5, 6], %y: E[{(6, 5)[dim]}]) grid() sizes() {{
      %a = block.load %x[t0, t1] : tile<5x6xE>
      %r = block.reduce {kind} %a dim {dim} : tile<{(6, 5)[dim]}xE>
      block.store %r, %y[t0]
      block.yield
    }}"""
    for element, dtype in (("f32", np.float32), ("i8", np.int8), ("f16", np.float16)):
        x = RANDOM.integers(-9, 9, (5, 6)).astype(dtype)
        y = np.zeros((6, 5)[dim], dtype)
        run(text.replace("E", element), x, y)
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(y, function(x, axis=dim).astype(dtype), rtol=1e-3)


@pytest.mark.parametrize(("kind", "function"), [("and", np.all), ("or", np.any)])
def test_reductions_of_truth_values(kind: str, function: Any) -> None:
    x, y = RANDOM.random((9, 2)) < 0.5, np.zeros(9, bool)
    run(f"""block.kernel @k(%x: i1[9, 2], %y: i1[9]) grid(%r: 9) sizes() {{
      %a = block.load %x[%r, t0] : tile<2xi1>
      %b = block.reduce {kind} %a dim 0 : tile<i1>
      block.store %b, %y[%r]
      block.yield
    }}""", x, y)
    np.testing.assert_array_equal(y, function(x, axis=1))


def test_a_reduction_counts_what_does_not_vary() -> None:
    y = unlike((2,))
    run("""block.kernel @k(%y: f32[2]) grid(%r: 2) sizes() {
      %a = block.full 2.0 : tile<8xf32>
      %s = block.reduce add %a dim 0 : tile<f32>
      block.store %s, %y[%r]
      block.yield
    }""", y)
    np.testing.assert_array_equal(y, [16, 16])


# ---------------------------------------------------------------------- memory
def test_gather_of_rows() -> None:
    table, ids, y = randoms(50, 40), RANDOM.integers(0, 50, 9), unlike((9, 40))
    run("""
    block.kernel @embed(%T: f32[50, 40], %ids: i64[9], %Y: f32[9, 40]) grid(%r: 9) sizes() {
      %id = block.load %ids[%r] : tile<i64>
      block.for %c = 0 to 40 step 16 parallel {
        %v = block.load %T[%id, %c + t0] check [1] : tile<[16]xf32>
        block.store %v, %Y[%r, %c + t0] check [1]
        block.yield
      }
      block.yield
    }""", table, ids, y)
    np.testing.assert_array_equal(y, table[ids])


def test_gather_with_a_tile_of_indices_in_another_order() -> None:
    table, ids, y = randoms(50, 5), RANDOM.integers(-3, 53, (4, 8)), unlike((5, 8, 4))
    run("""
    block.kernel @k(%T: f32[50, 5], %ids: i64[4, 8], %Y: f32[5, 8, 4]) grid() sizes() {
      %i = block.load %ids[t0, t1] : tile<4x8xi64>
      %v = block.load %T[%i, t0] with %i[2, 1] check [0] pad 9.0 : tile<5x8x4xf32>
      block.store %v, %Y[t0, t1, t2]
      block.yield
    }""", table, ids, y)
    inside = (ids >= 0) & (ids < 50)
    expected = np.where(inside[..., None], table[ids.clip(0, 49)], np.float32(9)).T
    np.testing.assert_array_equal(y, expected)


def test_reversed_strided_and_repeated_reads() -> None:
    x, y = randoms(4, 10), unlike((4, 10))
    run("""
    block.kernel @k(%x: f32[4, 10], %y: f32[4, 10]) grid(%r: 4) sizes() {
      %a = block.load %x[3 - %r, 9 - t0] : tile<[10]xf32>
      %b = block.load %x[t0 floordiv 4, 0] : tile<[10]xf32>
      %s = block.map (%a[0], %b[0]) : tile<[10]xf32> """ + ADD + """
      block.store %s, %y[%r, t0]
      block.yield
    }""", x, y)
    np.testing.assert_array_equal(y, x[::-1, ::-1] + x[np.arange(10) // 4, 0])


def test_a_masked_store_leaves_the_rest() -> None:
    x, y = randoms(3, 8), unlike((3, 8))
    run("""
    block.kernel @k(%x: f32[3, 8], %y: f32[3, 8]) grid(%r: 3) sizes() {
      %a = block.load %x[%r, t0] : tile<[8]xf32>
      block.store %a, %y[%r, t0 + 2*%r - 2] check [1]
      block.yield
    }""", x, y)
    expected = np.full((3, 8), 77, np.float32)
    expected[0, :6], expected[1], expected[2, 2:] = x[0, 2:], x[1], x[2, :6]
    np.testing.assert_array_equal(y, expected)


def test_scratch_is_private_to_a_program() -> None:
    x, y = randoms(5, 8, 3), unlike((5, 3, 8))
    run("""
    block.kernel @transpose(%x: f32[5, 8, 3], %y: f32[5, 3, 8]) grid(%r: 5) sizes() {
      %s = block.scratch : f32[3, 8]
      block.for %i = 0 to 8 step 1 parallel {
        %a = block.load %x[%r, %i, t0] : tile<3xf32>
        block.store %a, %s[t0, %i]
        block.yield
      }
      block.for %j = 0 to 3 step 1 {
        %b = block.load %s[%j, t0] : tile<[8]xf32>
        block.store %b, %y[%r, %j, t0]
        block.yield
      }
      block.yield
    }""", x, y)
    np.testing.assert_array_equal(y, x.transpose(0, 2, 1))


def test_a_value_read_before_a_write_stays() -> None:
    y = np.arange(4, dtype=np.float32)
    run("""
    block.kernel @k(%y: f32[4]) grid(%r: 4) sizes() {
      %a = block.load %y[%r] : tile<f32>
      %two = block.full 2.0 : tile<f32>
      block.store %two, %y[%r]
      %b = block.load %y[%r] : tile<f32>
      %s = block.map (%a[], %b[]) : tile<f32> """ + ADD + """
      block.store %s, %y[%r]
      block.yield
    }""", y)
    np.testing.assert_array_equal(y, np.arange(4) + 2)


def test_valid_and_convert() -> None:
    y = unlike((4, 8))
    run("""
    block.kernel @k(%y: f32[4, 8]) grid(%r: 4) sizes(n) {
      %v = block.valid 2*%r + t0 < n : tile<[8]xi1>
      %w = block.convert %v : tile<8xi1>
      %f = block.map (%w[0]) : tile<8xf32> {
      ^bb0(%p: i1):
        %u = arith.uitofp %p : i1 to f32
        block.yield %u
      }
      block.store %f, %y[%r, t0]
      block.yield
    }""", y, n=7)
    np.testing.assert_array_equal(y, (2 * np.arange(4)[:, None] + np.arange(8)) < 7)


def test_implicit_gemm_with_index_tiles() -> None:
    x, w, y = randoms(2, 6, 6, 4), randoms(36, 16), unlike((72, 16))
    run("""
    block.kernel @conv(%X: f32[2, 6, 6, 4], %W: f32[36, 16], %Y: f32[72, 16])
        grid(%m: 72 ceildiv 32) sizes() {
      %pix = block.index 32*%m + t0 : tile<32xindex>
      %z = block.full 0.0 : tile<32x16xf32>
      %acc = block.for %k = 0 to 36 step 4 (%c = %z) {
        %x = block.load %X[%pix floordiv 36,
            (%pix mod 36) floordiv 6 + (%k + t1) floordiv 12 - 1,
            %pix mod 6 + ((%k + t1) mod 12) floordiv 4 - 1,
            (%k + t1) mod 4] with %pix[0] check [0, 1, 2] pad 0.0 : tile<32x4xf32>
        %w = block.load %W[%k + t0, t1] : tile<4x16xf32>
        %d = block.dot %x, %w, %c ieee : tile<32x16xf32>
        block.yield %d
      }
      block.store %acc, %Y[%pix, t1] with %pix[0] check [0]
      block.yield
    }""", x, w, y)
    expected = convolution(x, w.reshape(3, 3, 4, 16), 1, 1).reshape(72, 16)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------- errors
def test_an_unchecked_access_that_leaves_its_buffer_is_an_error() -> None:
    text = copy_kernel("f32", "f32").replace("] check [0] :", "] :")
    with pytest.raises(IndexError, match=r"block.load of %x in kernel @copy leaves dim 0"):
        run(text, randoms(65), randoms(65), n=65)
    run(text, randoms(64), randoms(64), n=64)


def test_a_buffer_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"@copy takes %y as a contiguous f32\[n\]"):
        run(copy_kernel("f32", "f32"), randoms(64), randoms(63), n=64)
