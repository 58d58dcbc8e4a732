"""Chains from contraction to contraction that are no attention: every level computes them."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.parser import Parser

from targets.base import TargetOptions, find_target
from tests.lowering import check_levels

CLASSIFIER = """
strata.func @main(%x: {e}[{n}, 3, 6, 6], %f: {e}[8, 3, 3, 3], %w: {e}[8, 5], %b: {e}[5])
    -> ({e}[{n}, 5]) inputs ["x", "f", "w", "b"] outputs ["y"] {{
  %c = graph.conv %x, %f {{strides = [1, 1], dilations = [1, 1], pads = [1, 1, 1, 1], group = 1}}
      : {e}[{n}, 8, 6, 6]
  %r = graph.relu %c : {e}[{n}, 8, 6, 6]
  %m = graph.reduce_mean %r {{axes = [2, 3], keepdims = false}} : {e}[{n}, 8]
  %l = graph.matmul %m, %w : {e}[{n}, 5]
  %a = graph.add %l, %b : {e}[{n}, 5]
  %y = graph.softmax %a {{axis = 1}} : {e}[{n}, 5]
  strata.return %y
}}"""


@pytest.mark.parametrize("batch", ["n", 3])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_softmax_behind_two_contractions(target: str, batch: int | str) -> None:
    """What the chain yields is read by nobody in it."""
    options = TargetOptions(features="sm_90" if target == "cuda" else None)
    context = find_target(target).bind(options).context()
    module = Parser(context, CLASSIFIER.format(n=batch, e="f32")).parse_module()
    random = np.random.default_rng(0)
    x, f, w, b = (random.standard_normal(shape).astype(np.float32)
                  for shape in ((3, 3, 6, 6), (8, 3, 3, 3), (8, 5), (5,)))
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    means = np.maximum(np.einsum("nchwij,kcij->nkhw", windows, f), 0).mean((2, 3))
    scores = np.exp((means @ w + b).astype(np.float64))
    expected = (scores / scores.sum(1, keepdims=True)).astype(np.float32)
    check_levels(module, context, [x, f, w, b], [expected], 1e-5, set())
