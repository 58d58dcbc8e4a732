"""Private memory is shared only by values of which the first is not read again.

A cheap value that several loops need is computed in each of them. What it reads is thus needed by
the last of these loops, wherever the value itself stands in the kernel.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text

TEXT = """
strata.func @main(%x: f32[7, {width}]) -> (f32[7, {width}], i32[7]) inputs ["x"]
    outputs ["y", "seen"] {{
  %t = graph.tanh %x : f32[7, {width}]
  %low = graph.constant {{value = literal[-0.25]}} : f32[]
  %none = graph.constant {{value = literal[-inf]}} : f32[]
  %small = graph.less %t, %low : i1[7, {width}]
  %s = graph.where %small, %none, %t : f32[7, {width}]
  %is_none = graph.equal %s, %none : i1[7, {width}]
  %whole = graph.cast %is_none {{to = i32}} : i32[7, {width}]
  %seen = graph.reduce_sum %whole {{axes = [1], keepdims = false}} : i32[7]
  %w = graph.softmax %s {{axis = 1}} : f32[7, {width}]
  %zero = graph.constant {{value = literal[0.0]}} : f32[]
  %y = graph.where %is_none, %zero, %w : f32[7, {width}]
  strata.return %y, %seen
}}
"""
"""`%s` is worth keeping, exp(s - max) is computed from it, and `%is_none` is cheap: the loop that
divides computes it from `%s` once more."""


def kept_scores(tmp_path: Path, width: int) -> Path:
    path = tmp_path / "scores.mlir"
    path.write_text(TEXT.format(width=width))
    return path


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_the_case_arises(tmp_path: Path, target: str) -> None:
    """One kernel has both values."""
    options = CompileOptions(target=target, cache="off", tuned="off")
    text = lower_to_text(Compiler(str(kept_scores(tmp_path, 37)), options), "loop", False)
    assert text.count("loop.kernel") == 1 and ("keep" in text) == (target == "cpu")


@pytest.mark.parametrize("width", [5, 16, 37, 160])
def test_rows_without_any_score(tmp_path: Path, width: int) -> None:
    x = np.random.default_rng(0).standard_normal((7, width)).astype(np.float32)
    x[[0, 3]] = -2
    t = np.tanh(x.astype(np.float64))
    e = np.where(t < -0.25, 0, np.exp(t))
    total = e.sum(1, keepdims=True)
    wanted = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    for target in ("cpu", "reference"):
        y, seen = compiler.compile(kept_scores(tmp_path, width), target=target, threads=1,
                                   cache="off", tuned="off")(x)
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(seen, (t < -0.25).sum(1))
