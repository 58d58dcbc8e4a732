"""The enumeration of what a kernel reads and writes."""

from __future__ import annotations

from dialects.block.accesses import Access, accesses_of
from tests.dialects.block_kernels import parse


def shown(access: Access) -> str:
    """The index with its size, and the ranges of the symbols in it."""
    spans = [f"{s.first} <= {name} <= {s.last}" for name, s in access.ranges.items()
             if name in access.index.symbols]
    check = " checked" if access.is_checked else ""
    return ", ".join([f"{access.index} of {access.size}{check}", *spans])


def accesses(text: str) -> list[str]:
    return [shown(a) for a in accesses_of(parse(text))]


def test_programs_and_loops() -> None:
    assert accesses("""
    block.kernel @k(%x: f32[n, 30], %y: f32[n]) grid(%p: n) sizes(n) {
      block.for %k = 2 to 30 step 4 parallel {
        %v = block.load %x[%p, %k + t0] : tile<4xf32>
        block.for %j = %k to min(%k + 4, n) step 1 parallel {
          %w = block.load %y[%j] : tile<f32>
          block.yield
        }
        block.yield
      }
      block.yield
    }""") == [
        "%p0 of n, 0 <= %p0 <= n - 1",
        "4*%c1 + t0 + 2 of 30, 0 <= %c1 <= 6, 0 <= t0 <= 3",
        "4*%c1 + %c2 + 2 of n, 0 <= %c1 <= 6, "
        "0 <= %c2 <= -4*%c1 + min(4*%c1 + 6, n) - 3",
    ]


def test_indices_from_tiles() -> None:
    """Index tiles are expressions, whose dims are those of the load; values from data have no
    range, and are the same symbol where they are the same value."""
    assert accesses("""
    block.kernel @k(%i: i64[8], %x: f32[8, 8, 8], %y: f32[4, 2]) grid(%p: 2) sizes() {
      %at = block.index 2*%p + t0 : tile<2xindex>
      %to = block.load %i[4*%p + t0] : tile<4xi64>
      %v = block.load %x[%at, %to, %to] with %at[1], %to[0] : tile<4x2xf32>
      block.store %v, %y[t0, t1] check [1]
      block.yield
    }""") == [
        "4*%p0 + t0 of 8, 0 <= %p0 <= 1, 0 <= t0 <= 3",
        "2*%p0 + t1 of 8, 0 <= %p0 <= 1, 0 <= t1 <= 1",
        "%d1 of 8",
        "%d1 of 8",
        "t0 of 4, 0 <= t0 <= 3",
        "t1 of 2 checked, 0 <= t1 <= 1",
    ]
