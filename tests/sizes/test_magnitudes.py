"""Sizes whose products do not fit 64 bits end a run by name: no buffer is as small as they wrap to.

An array without elements has dims of any size, so none of this takes memory.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import compiler
from dialects.host import host_function
from dialects.strata.assumptions import LARGEST_NUMBER, MAX_SIZE, SizeError
from dialects.strata.binding import EvaluationError, bind_sizes
from dialects.strata.sizes import assumptions_of
from tests.bounds.test_bounds import checked
from tests.dialects.test_graph_errors import type_of

HUGE = 2**32
OUTER = """
  host.func @main(%x: f32[n, 0], %y: f32[1]) inputs ["x"] outputs ["y"] sizes(n) arena(0) {
    host.launch @k(%x, %y) sizes(n) loc("some/node")
    host.return
  }
  block.kernel @k(%x: f32[n, 0], %y: f32[1]) grid(%p: min(n*n, 1)) sizes(n) {
    %v = block.full 1.0 : tile<f32> loc("some/node")
    block.store %v, %y[%p] loc("some/node")
    block.yield
  }
"""
"""n*n programs, but one at most: 2**32 squared wraps around to 0."""
CALLED = """
  host.func @main(%x: f32[n, 0], %c: i1[], %y: f32[1]) inputs ["x", "c"] outputs ["y"] sizes(n)
      arena(0) {
    %z = strata.if %c then @body else @body (%x) buffers f32[1]
    host.copy %z, %y
    host.free %z
    host.return
  }
  host.func @body(%x: f32[n, 0]) inputs ["x"] outputs ["z": f32[1]] sizes(n)
      arena(256*((4*n*n + 255) floordiv 256)) {
    %h = host.alloc offset 0 : f32[n, n]
    %z = host.alloc : f32[1]
    host.launch @k(%h, %z) sizes(n) loc("some/node")
    host.return %z
  }
  block.kernel @k(%h: f32[n, n], %z: f32[1]) grid(%p: n) sizes(n) {
    %v = block.full 1.0 : tile<f32> loc("some/node")
    block.store %v, %h[%p, %p] loc("some/node")
    block.store %v, %z[0] loc("some/node")
    block.yield
  }
"""
"""A called function whose buffer of 4*n*n bytes wraps around to 0 bytes."""
COMPUTED = """
  host.func @main(%x: f32[n], %c: i64[2], %y: f32[1]) inputs ["x", "c"] outputs ["y"] sizes(n)
      arena(0) {
    strata.size m, k = %c loc("some/node")
    strata.assume m*k == n loc("some/node")
    %v = host.view %x : f32[m, k]
    host.launch @k(%v, %y) sizes(m, k) loc("some/node")
    host.return
  }
  block.kernel @k(%v: f32[m, k], %y: f32[1]) grid(%p: min(m, 1)) sizes(m, k) {
    %v0 = block.load %v[m - 1, k - 1] check [1] : tile<f32> loc("some/node")
    block.store %v0, %y[0] loc("some/node")
    block.yield
  }
"""
"""Sizes of data whose product wraps around to the 0 elements that are there."""
SUMS = """
  host.func @main(%x: f32[a, b, c, 0], %y: f32[1]) inputs ["x"] outputs ["y"] sizes(a, b, c)
      arena(0) {
    host.launch @k(%x, %y) sizes(a, b, c) loc("some/node")
    host.return
  }
  block.kernel @k(%x: f32[a, b, c, 0], %y: f32[1])
      grid(%p: a + b + c, %q: a + 2*b + c, %r: a + b + 3*c) sizes(a, b, c) {
    %v = block.full 1.0 : tile<f32> loc("some/node")
    block.store %v, %y[0] loc("some/node")
    block.yield
  }
"""
"""Multiplied out, the number of programs has 27 terms."""


def load(text: str, folder: Path, **options: object) -> compiler.Executable:
    path = folder / "model.mlir"
    path.write_text(f"// strata: level=block\nbuiltin.module {{{text}}}\n")
    return compiler.compile(path, cache="off", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"check": True}], ids=["proven", "checked"])
def test_products_that_wrap_around(tmp_path: Path, options: dict[str, object]) -> None:
    few, huge = np.empty((3, 0), np.float32), np.empty((HUGE, 0), np.float32)
    for text in (OUTER, CALLED):
        model = load(text, tmp_path, **options)
        flag = [np.array(True)] if text is CALLED else []
        assert model.run([few, *flag])[0].tolist() == [1]
        with pytest.raises(ValueError, match=f"too large .* n = {HUGE}"):
            model.run([huge, *flag])


def test_computed_sizes_that_wrap_around(tmp_path: Path) -> None:
    model = load(COMPUTED, tmp_path)
    x = np.arange(6, dtype=np.float32)
    assert model.run([x, np.array([2, 3])])[0].tolist() == [5]
    with pytest.raises(SizeError, match="too large at node 'some/node'"):
        model.run([x[:0], np.array([HUGE, HUGE])])


def test_products_of_sums_are_not_multiplied_out(tmp_path: Path) -> None:
    module, _ = checked(SUMS)
    [limit] = assumptions_of(host_function(module))
    assert limit.is_limit and str(limit.left).count("*") < 20
    sizes = {symbol: 5 for symbol in limit.left.symbols}
    assert 15 * 20 * 25 <= limit.left.evaluate(sizes) < 3 * 15 * 20 * 25
    model = load(SUMS, tmp_path)
    assert model.run([np.empty((2, 3, 1, 0), np.float32)])[0].tolist() == [1]
    with pytest.raises(ValueError, match=r"too large .* a = "):
        model.run([np.empty((2**22, 1, 1, 0), np.float32)])


@pytest.mark.parametrize(("text", "wanted"), [
    (OUTER, ["max(1, n)*max(1, n)"]), (CALLED, []), (COMPUTED, ["max(1, k)*max(1, m)"])],
    ids=["outer", "called", "computed"])
def test_limits_are_assumptions(text: str, wanted: list[str]) -> None:
    module, _ = checked(text)
    limits = [a for a in assumptions_of(host_function(module)) if a.is_limit]
    assert len(limits) == len(wanted)
    assert all(part in str(a.left) for a, part in zip(limits, wanted, strict=True))
    assert ("max(1, n)*max(1, n)" in str(module)) == (text is not COMPUTED)


def test_a_row_needs_no_limit() -> None:
    """What is small for all sizes that there may be is not assumed."""
    assert 8 * 100 * MAX_SIZE < LARGEST_NUMBER
    module, _ = checked(OUTER.replace("min(n*n, 1)", "min(n, 1)"))
    assert assumptions_of(host_function(module)) == []


def test_what_is_divided_and_cut_off_counts_as_that() -> None:
    """A limit is near what is computed: it must refuse no sizes that fit."""
    arena = "256*((1024*min(1000000000, n) + 255) floordiv 256)"
    module, _ = checked(OUTER.replace("arena(0)", f"arena({arena})").replace("n*n", "4096*n"))
    limits = [a for a in assumptions_of(host_function(module)) if a.is_limit]
    assert all(int(a.left.evaluate({s: 2**40 for s in a.symbols})) < 2**60 for a in limits)


@pytest.mark.parametrize(("type_", "shape", "message"), [
    ("f32[n + 3]", (1,), "is 1, which n . 3 is for no size n: that would be -2"),
    ("f32[5 - n]", (7,), "for no size n: that would be -2"),
    ("f32[n, 0]", (2**49, 0), "no size may be more than"),
    ("f32[2*n, 0]", (2**50, 0), f"so that n is {2**49}; no size may be more than"),
])
def test_sizes_that_no_array_has(type_: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        bind_sizes([type_of(type_)], [np.empty(shape, np.float32)])
