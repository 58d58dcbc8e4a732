"""Sizes that are sums of many: code multiplies the values of the sums, and never multiplies out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text

NAMES = [f"{name}{dim}" for dim in range(4) for name in "abcd"]
PADDED = f"""
strata.func @main(%x: f32[{", ".join(f"n{d}" for d in range(4))}], %pads: i64[16])
    -> (f32[{", ".join(f"n{d} + a{d} + b{d} + c{d} + d{d}" for d in range(4))}])
    inputs ["x", "pads"] outputs ["y"] {{
  strata.size {", ".join(NAMES)} = %pads
  %y = graph.pad %x {{low = [{", ".join(f"a{d} + b{d}" for d in range(4))}],
    high = [{", ".join(f"c{d} + d{d}" for d in range(4))}], mode = "constant", value = 7.0}}
    : f32[{", ".join(f"n{d} + a{d} + b{d} + c{d} + d{d}" for d in range(4))}]
  strata.return %y
}}
"""
"""Each dim of the result is a sum of five sizes; their product would have 625 terms."""


@pytest.fixture
def padded(tmp_path: Path) -> Path:
    path = tmp_path / "padded.mlir"
    path.write_text(PADDED)
    return path


@pytest.mark.parametrize(("target", "level", "most"), [("cpu", "llvm", 250),
                                                       ("cuda", "triton", 300)])
def test_code_stays_short(padded: Path, target: str, level: str, most: int) -> None:
    """The bounds are about twice what is there, in operators."""
    text = lower_to_text(Compiler(str(padded), CompileOptions(target=target)), level, False)
    operators = text.count(" mul ") + text.count(" add ") + text.count("*") + text.count(" + ")
    assert operators < most


def test_addresses_are_right(padded: Path) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    pads = np.array([0, 1, 2, 0, 1, 1, 0, 3, 0, 0, 2, 1, 3, 1, 0, 2], np.int64)
    low, high = pads.reshape(4, 2, 2).sum(2).T
    [y] = compiler.compile(padded, threads=1, cache="off")(x, pads)
    np.testing.assert_array_equal(
        y, np.pad(x, list(zip(low, high, strict=True)), constant_values=7))
