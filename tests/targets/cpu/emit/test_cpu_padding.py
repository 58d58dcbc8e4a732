"""Loads of the CPU target some of whose lanes lie outside, which are padded.

Every buffer lies against a guard page, so an access outside it ends the test run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from targets.cpu.emit import emit_kernel
from targets.cpu.machine import machine_of
from tests.targets.cpu.cpu_kernels import (
    check,
    each_element,
    each_machine,
    parse,
    randoms,
    unlike,
)


@each_machine
def test_padding_of_a_window(features: str) -> None:
    """Checks on dims that are not in lanes: the same for all lanes of a register."""
    text = """
    block.kernel @window(%X: f32[h, w, 24], %Y: f32[h, w, 24]) grid(%y: h) sizes(h, w) {
      block.for %x = 0 to w step 4 {
        %z = block.full 0.0 : tile<4x[24]xf32>
        %s = block.for %i = 0 to 9 step 1 (%c = %z) {
          %a = block.load %X[%y + %i floordiv 3 - 1, %x + t0 + %i mod 3 - 1, t1] check [0, 1]
              pad 0.5 : tile<4x[24]xf32>
          %n = block.map (%a[0, 1], %c[0, 1]) : tile<4x[24]xf32> {
          ^bb0(%p: f32, %q: f32):
            %r = arith.addf %p, %q : f32
            block.yield %r
          }
          block.yield %n
        }
        block.store %s, %Y[%y, %x + t0, t1] check [1]
        block.yield
      }
      block.yield
    }"""
    for h, w in ((1, 1), (3, 5), (4, 8)):
        check(text, randoms(h, w, 24), unlike(h, w, 24), features=features, tolerance=1e-5,
              h=h, w=w)


@each_machine
@pytest.mark.parametrize("step", [-1, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("lanes", [20, 13, 2])
@pytest.mark.parametrize("rows", ["%y", "%y + t0 - 2"])
def test_padding_in_lanes(features: str, step: int, lanes: int, rows: str) -> None:
    """Lanes outside on both sides; in some registers all of them, by the dim of rows, too."""
    first = -2 if step > 0 else 19
    guard = "check [1]" if rows == "%y" else "check [0, 1]"
    text = f"""
    block.kernel @line(%X: f32[3, w], %Y: f32[3, 5, {lanes}]) grid(%y: 3) sizes(w) {{
      %a = block.load %X[{rows}, {step}*t1 + t0 + {first}] {guard} pad -inf : tile<5x[{lanes}]xf32>
      block.store %a, %Y[%y, t0, t1]
      block.yield
    }}"""
    for w in (1, 19, 22, 100):
        check(text, randoms(3, w), unlike(3, 5, lanes), features=features, w=w)


@each_machine
@each_element
def test_padding_of_strided_lanes(features: str, element: str, tile: str, dtype: Any) -> None:
    """Vectors of the span are masked and shuffled, whatever the type: nothing is gathered."""
    pad = "true" if element == "i1" else "7" if np.dtype(dtype).kind in "iu" else "7.0"
    for step, lanes in ((2, 13), (3, 40), (4, 16)):
        text = f"""
        block.kernel @line(%X: {element}[w], %Y: {element}[{lanes}]) grid() sizes(w) {{
          %a = block.load %X[{step}*t0 - 3] check [0] pad {pad} : tile<[{lanes}]x{tile}>
          block.store %a, %Y[t0]
          block.yield
        }}"""
        assert "gather" not in emit_kernel(parse(text), machine_of(features))
        for w in (0, 1, 30, 57, 200):
            check(text, randoms(w, dtype=dtype), unlike(lanes, dtype=dtype), features=features, w=w)
