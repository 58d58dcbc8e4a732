"""Loads and stores of the CPU target: every lane distance, masks, odd extents, element types.

Every buffer lies against a guard page, so an access outside it ends the test run.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.targets.cpu.cpu_kernels import (
    RANDOM,
    check,
    each_element,
    each_machine,
    randoms,
    unlike,
)


def copy(element: str, tile: str, lanes: int) -> str:
    return f"""
    block.kernel @copy(%x: {element}[n], %y: {element}[n]) grid(%p: n ceildiv {lanes}) sizes(n) {{
      %a = block.load %x[{lanes}*%p + t0] check [0] : tile<[{lanes}]x{tile}>
      block.store %a, %y[{lanes}*%p + t0] check [0]
      block.yield
    }}"""


@each_machine
@each_element
@pytest.mark.parametrize("n", [0, 1, 13, 64, 100])
def test_copy_with_masked_tail(
    features: str, element: str, tile: str, dtype: Any, n: int
) -> None:
    check(copy(element, tile, 64), randoms(n, dtype=dtype), unlike(n, dtype=dtype),
          features=features, n=n)


@each_machine
@each_element
@pytest.mark.parametrize("lanes", [1, 2, 8, 13, 50])
def test_odd_lane_extents(
    features: str, element: str, tile: str, dtype: Any, lanes: int
) -> None:
    text = f"""
    block.kernel @odd(%x: {element}[3, {lanes}], %y: {element}[3, {lanes}]) grid(%r: 3) sizes() {{
      %a = block.load %x[%r, t0] : tile<[{lanes}]x{tile}>
      block.store %a, %y[%r, t0]
      block.yield
    }}"""
    check(text, randoms(3, lanes, dtype=dtype), unlike(3, lanes, dtype=dtype), features=features)


@each_machine
@pytest.mark.parametrize("step", [-3, -2, -1, 0, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("lanes", [8, 13, 32])
@pytest.mark.parametrize("element", ["f32", "i8", "f64"])
def test_constant_distances(features: str, step: int, lanes: int, element: str) -> None:
    dtype = {"f32": np.float32, "i8": np.int8, "f64": np.float64}[element]
    span = abs(step) * (lanes - 1) + 1
    origin = span - 1 if step < 0 else 0
    text = f"""
    block.kernel @strided(%x: {element}[4, {span}], %y: {element}[4, {lanes}])
        grid(%r: 2) sizes() {{
      %a = block.load %x[2*%r + t0, {origin} + {step}*t1] : tile<2x[{lanes}]x{element}>
      block.store %a, %y[2*%r + t0, t1]
      block.yield
    }}"""
    check(text, randoms(4, span, dtype=dtype), unlike(4, lanes, dtype=dtype), features=features)


@each_machine
@pytest.mark.parametrize("step", [2**20 + 1, 2**28, 2**30, 2**31 - 1, 2**40, 2**55])
@pytest.mark.parametrize("sign", [1, -1])
def test_lanes_far_outside(features: str, step: int, sign: int) -> None:
    """All lanes but the first one lie outside, so far that 32 bits do not hold their distances."""
    text = f"""
    block.kernel @far(%x: f32[n], %y: f32[64]) grid() sizes(n) {{
      %a = block.load %x[n - 1 + {sign * step}*t0] check [0] pad 7.0 : tile<[64]xf32>
      block.store %a, %y[t0]
      block.yield
    }}"""
    check(text, randoms(3), unlike(64), features=features, n=3)


@each_machine
@pytest.mark.parametrize("step", [-2, 2, 3, 5])
def test_strided_stores(features: str, step: int) -> None:
    span = abs(step) * 15 + 1
    origin = span - 1 if step < 0 else 0
    text = f"""
    block.kernel @strided(%x: f32[16], %y: f32[{span}]) grid() sizes() {{
      %a = block.load %x[t0] : tile<[16]xf32>
      block.store %a, %y[{origin} + {step}*t0]
      block.yield
    }}"""
    check(text, randoms(16), unlike(span), features=features)


@each_machine
@pytest.mark.parametrize("checked", [False, True])
def test_lanes_in_an_outer_dim(features: str, checked: bool) -> None:
    guard = "check [0] pad -1.0" if checked else ""
    rows = 13 if checked else 16
    text = f"""
    block.kernel @transposed(%x: f32[m, n], %y: f32[n, 16]) grid(%c: n) sizes(m, n) {{
      %a = block.load %x[t0, %c] {guard} : tile<[16]xf32>
      block.store %a, %y[%c, t0]
      block.yield
    }}"""
    check(text, randoms(rows, 7), unlike(7, 16), features=features, m=rows, n=7)


@each_machine
@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (32, 16), (13, 16), (16, 13), (8, 8)])
@pytest.mark.parametrize("guard", ["", "check [0] pad 2.0", "check [0, 1] pad 2.0"])
def test_blocks_are_transposed_in_registers(
    features: str, rows: int, columns: int, guard: str
) -> None:
    """Lanes far apart, another tile dim next to each other: in the load and in the store."""
    tile = f"tile<{columns}x[{rows}]xf32>"
    text = f"""
    block.kernel @transposed(%x: f32[m, n], %y: f32[n, m], %z: f32[m, n]) grid() sizes(m, n) {{
      %a = block.load %x[t1, t0] {guard} : {tile}
      block.store %a, %y[t0, t1] check [0, 1]
      block.store %a, %z[t1, t0] check [0, 1]
      block.yield
    }}"""
    for fewer in (0, 3) if guard else (0,):
        m = rows - fewer
        n = columns - fewer if "1" in guard else columns
        check(text, randoms(m, n), unlike(n, m), unlike(m, n), features=features, m=m, n=n)


@each_machine
def test_scatter_into_an_outer_dim(features: str) -> None:
    text = """
    block.kernel @transposed(%x: f32[n, 20], %y: f32[m, n]) grid(%c: n) sizes(m, n) {
      %a = block.load %x[%c, t0] : tile<[20]xf32>
      block.store %a, %y[t0, %c] check [0]
      block.yield
    }"""
    check(text, randoms(5, 20), unlike(13, 5), features=features, m=13, n=5)


@each_machine
@each_element
def test_scalar_tiles_with_checks(
    features: str, element: str, tile: str, dtype: Any
) -> None:
    text = f"""
    block.kernel @scalars(%x: {element}[n], %y: {element}[n]) grid(%p: n ceildiv 4) sizes(n) {{
      %a = block.load %x[4*%p + t0 - 1] check [0] pad 1 : tile<4x{tile}>
      block.store %a, %y[4*%p + t0] check [0]
      block.yield
    }}"""
    for n in (0, 1, 7, 8):
        check(text, randoms(n, dtype=dtype), unlike(n, dtype=dtype), features=features, n=n)


@each_machine
@pytest.mark.parametrize("element", ["i64", "i32"])
def test_gather_of_rows(features: str, element: str) -> None:
    """A scalar index tile: rows of an embedding."""
    text = f"""
    block.kernel @rows(%ids: {element}[n], %x: f32[v, 30], %y: f32[n, 30])
        grid(%p: n) sizes(n, v) {{
      %i = block.load %ids[%p] : tile<{element}>
      %a = block.load %x[%i, t0] check [0] pad 0.0 : tile<[30]xf32>
      block.store %a, %y[%p, t0]
      block.yield
    }}"""
    ids = np.array([3, 0, -1, 9, 5, 100], {"i64": np.int64, "i32": np.int32}[element])
    check(text, ids, randoms(9, 30), unlike(6, 30), features=features, n=6, v=9)


@each_machine
@pytest.mark.parametrize("lanes", [16, 13])
def test_gather_of_elements(features: str, lanes: int) -> None:
    """An index tile in lanes, in a loop, with the index itself loaded under a mask."""
    text = f"""
    block.kernel @gather(%ids: i64[n], %x: f32[3, v], %y: f32[3, n])
        grid(%r: 3, %p: n ceildiv {lanes}) sizes(n, v) {{
      %i = block.load %ids[{lanes}*%p + t0] check [0] pad 0 : tile<[{lanes}]xi64>
      %a = block.load %x[%r, %i] with %i[0] check [1] pad 7.0 : tile<[{lanes}]xf32>
      block.store %a, %y[%r, {lanes}*%p + t0] check [1]
      block.yield
    }}"""
    ids = RANDOM.integers(-2, 12, 45)
    check(text, ids, randoms(3, 9), unlike(3, 45), features=features, n=45, v=9)


@each_machine
def test_gather_with_an_unrolled_index_tile(features: str) -> None:
    """Indices differ per row of the tile; the lanes are next to each other."""
    text = """
    block.kernel @gather(%ids: i64[4], %x: f32[v, 20], %y: f32[4, 20]) grid() sizes(v) {
      %i = block.load %ids[t0] : tile<[4]xi64>
      %a = block.load %x[%i, t1] with %i[0] : tile<4x[20]xf32>
      block.store %a, %y[t0, t1]
      block.yield
    }"""
    check(text, np.array([2, 0, 1, 2]), randoms(3, 20), unlike(4, 20), features=features, v=3)


@each_machine
def test_scatter_by_an_index_tile(features: str) -> None:
    text = """
    block.kernel @scatter(%ids: i64[20], %x: f32[20], %y: f32[v]) grid() sizes(v) {
      %i = block.load %ids[t0] : tile<[20]xi64>
      %a = block.load %x[t0] : tile<[20]xf32>
      block.store %a, %y[2*%i + 1] with %i[0] check [0]
      block.yield
    }"""
    check(text, RANDOM.permutation(20), randoms(20), unlike(31), features=features, v=31)


@each_machine
@pytest.mark.parametrize("lanes", [16, 13])
def test_rows_are_merged_one_after_another(features: str, lanes: int) -> None:
    """The place of a row is loaded; the elements that are there are read and written again."""
    text = f"""
    block.kernel @merge(%ids: i64[n], %x: f32[n, m], %y: f32[4, m])
        grid(%p: m ceildiv {lanes}) sizes(n, m) {{
      block.for %k = 0 to n step 1 {{
        %i = block.load %ids[%k] : tile<i64>
        %a = block.load %x[%k, {lanes}*%p + t0] check [1] pad 0.0 : tile<[{lanes}]xf32>
        %b = block.load %y[%i, {lanes}*%p + t0] check [1] pad 0.0 : tile<[{lanes}]xf32>
        %c = block.map (%a[0], %b[0]) : tile<[{lanes}]xf32> {{
        ^bb0(%q: f32, %r: f32):
          %s = arith.subf %q, %r : f32
          block.yield %s
        }}
        block.store %c, %y[%i, {lanes}*%p + t0] check [1]
        block.yield
      }}
      block.yield
    }}"""
    check(text, np.array([3, 0, 3, 3, 2, 0]), randoms(6, 41), randoms(4, 41), features=features,
          n=6, m=41)


@each_machine
def test_the_last_of_equal_places_wins(features: str) -> None:
    text = """
    block.kernel @put(%ids: i64[n], %x: f32[n], %y: f32[3]) grid() sizes(n) {
      block.for %k = 0 to n step 1 {
        %i = block.load %ids[%k] : tile<i64>
        %a = block.load %x[%k] : tile<f32>
        block.store %a, %y[%i]
        block.yield
      }
      block.yield
    }"""
    x = randoms(9)
    found = check(text, np.arange(9) % 3, x, unlike(3), features=features, n=9)
    np.testing.assert_array_equal(found[2], x[-3:])


@each_machine
def test_division_inside_an_index(features: str) -> None:
    """Not linear in the lane: addresses are computed lane by lane."""
    text = """
    block.kernel @split(%x: f32[6, 7], %y: f32[42]) grid(%p: 3) sizes() {
      %a = block.load %x[(16*%p + t0) floordiv 7, (16*%p + t0) mod 7] check [0] : tile<[16]xf32>
      block.store %a, %y[16*%p + t0] check [0]
      block.yield
    }"""
    check(text, randoms(6, 7), unlike(42), features=features)


@each_machine
@pytest.mark.parametrize("lanes", [8, 13, 32])
@pytest.mark.parametrize("element", ["f32", "i8", "f64", "i1"])
@pytest.mark.parametrize("place", [
    "t1 floordiv 2", "t1 floordiv 3", "(t1 + 1) floordiv 2", "2*(t1 floordiv 2)", "t1 mod 4",
    "t1 + t1 floordiv 4", "t1 + t1 floordiv 2", "3*t1 mod 7"])
def test_constant_patterns(features: str, place: str, element: str, lanes: int) -> None:
    """Vectors that cover the lanes end with the buffer."""
    dtype = {"f32": np.float32, "i8": np.int8, "f64": np.float64, "i1": np.bool_}[element]
    places = [eval(place.replace("floordiv", "//").replace("mod", "%"), {"t1": t})
              for t in range(lanes)]
    span = max(places) + 1
    text = f"""
    block.kernel @pattern(%x: {element}[4, {span}], %y: {element}[4, {lanes}])
        grid(%r: 2) sizes() {{
      %a = block.load %x[2*%r + t0, {place}] : tile<2x[{lanes}]x{element}>
      block.store %a, %y[2*%r + t0, t1]
      block.yield
    }}"""
    x = randoms(4, span, dtype=dtype)
    found = check(text, x, unlike(4, lanes, dtype=dtype), features=features)
    np.testing.assert_array_equal(found[1], x[:, places])


@each_machine
def test_index_tiles_and_valid(features: str) -> None:
    text = """
    block.kernel @pixels(%x: f32[n, 14, 14], %y: f32[196*n]) grid(%p: 196*n ceildiv 32) sizes(n) {
      %pix = block.index 32*%p + t0 : tile<[32]xindex>
      %v = block.load %x[%pix floordiv 196, (%pix mod 196) floordiv 14, %pix mod 14] with %pix[0]
          check [0] : tile<[32]xf32>
      %in = block.valid 32*%p + t0 < 200 : tile<[32]xi1>
      %r = block.map (%v[0], %in[0], %p[]) : tile<[32]xf32> {
      ^bb0(%a: f32, %b: i1, %i: index):
        %n = arith.negf %a : f32
        %s = arith.select %b, %a, %n : f32
        block.yield %s
      }
      block.store %r, %y[%pix] with %pix[0] check [0]
      block.yield
    }"""
    check(text, randoms(2, 14, 14), unlike(392), features=features, n=2)


@each_machine
@pytest.mark.parametrize("limit", ["n", "3*n - 40", "-5", "1000"])
def test_valid_counts_below_a_bound(features: str, limit: str) -> None:
    text = f"""
    block.kernel @valid(%y: i1[3, 50], %z: i1[3, 4]) grid(%p: 3) sizes(n) {{
      %v = block.valid 20*%p + 2*t0 - 3 < {limit} : tile<[50]xi1>
      block.store %v, %y[%p, t0]
      %w = block.valid 20*%p + 7*t0 < {limit} : tile<4xi1>
      block.store %w, %z[%p, t0]
      block.yield
    }}"""
    check(text, unlike(3, 50, dtype=np.bool_), unlike(3, 4, dtype=np.bool_), features=features,
          n=37)


@each_machine
def test_scratch_is_private_memory(features: str) -> None:
    text = """
    block.kernel @scratch(%x: f32[n, 40], %y: f32[n, 40]) grid(%p: n) sizes(n) {
      %s = block.scratch : f32[2, 40]
      %a = block.load %x[%p, t0] : tile<[40]xf32>
      block.store %a, %s[1, t0]
      block.for %i = 0 to 40 step 1 {
        %e = block.load %s[1, 39 - %i] : tile<f32>
        block.store %e, %s[0, %i]
        block.yield
      }
      %b = block.load %s[0, t0] : tile<[40]xf32>
      block.store %b, %y[%p, t0]
      block.yield
    }"""
    check(text, randoms(3, 40), unlike(3, 40), features=features, n=3)


@each_machine
@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (3, 4)])
def test_empty_grids(features: str, sizes: tuple[int, int]) -> None:
    text = """
    block.kernel @empty(%x: f32[m, n, 3], %y: f32[m, n, 3]) grid(%i: m, %j: n) sizes(m, n) {
      %a = block.load %x[%i, %j, t0] : tile<3xf32>
      block.store %a, %y[%i, %j, t0]
      block.yield
    }"""
    m, n = sizes
    check(text, randoms(m, n, 3), unlike(m, n, 3), features=features, m=m, n=n)


@each_machine
@pytest.mark.parametrize("element", ["f32", "bf16", "i1"])
@pytest.mark.parametrize("shape", [(16, 16), (8, 8), (16, 32), (5, 13), (20, 3)])
def test_layout_conversions(features: str, element: str, shape: tuple[int, int]) -> None:
    """Rows in lanes to columns in lanes to scalars and back."""
    dtype = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "i1": np.bool_}[element]
    m, n = shape
    text = f"""
    block.kernel @convert(%x: {element}[{m}, {n}], %y: {element}[{n}, {m}], %z: {element}[{m}, {n}])
        grid() sizes() {{
      %a = block.load %x[t0, t1] : tile<{m}x[{n}]x{element}>
      %b = block.convert %a : tile<[{m}]x{n}x{element}>
      block.store %b, %y[t1, t0]
      %c = block.convert %b : tile<{m}x{n}x{element}>
      %d = block.convert %c : tile<{m}x[{n}]x{element}>
      block.store %d, %z[t0, t1]
      block.yield
    }}"""
    check(text, randoms(m, n, dtype=dtype), unlike(n, m, dtype=dtype),
          unlike(m, n, dtype=dtype), features=features)
