"""Chains from contraction to contraction that are no attention: every level computes them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from xdsl.parser import Parser

from dialects.loop import KernelOp
from passes.contract import Rules
from passes.loop.join_online import OnlineChain
from passes.loop.joining.join_recomputed import RecomputedChain
from passes.reasons import FASTER_APART
from targets.base import TargetOptions, find_target
from targets.cpu.scheduled import CpuScheduling
from tests.lowering import check_levels, lower

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


ATTENTION = """
strata.func @main(%q: f32[2, 40, 16], %k: f32[2, 16, 40], %v: f32[2, 40, 16])
    -> (f32[2, 40, 16]) inputs ["q", "k", "v"] outputs ["y"] {
  %s = graph.matmul %q, %k : f32[2, 40, 40]
  %p = graph.softmax %s {axis = 2} : f32[2, 40, 40]
  %y = graph.matmul %p, %v : f32[2, 40, 16]
  strata.return %y
}"""

PRODUCTS = """
strata.func @main(%x: f32[64, 8], %a: f32[8, 256], %b: f32[256, 8])
    -> (f32[64, 8]) inputs ["x", "a", "b"] outputs ["y"] {
  %s = graph.matmul %x, %a : f32[64, 256]
  %r = graph.relu %s : f32[64, 256]
  %y = graph.matmul %r, %b : f32[64, 8]
  strata.return %y
}"""


class _Never(CpuScheduling):
    """The CPU's rules without those that join what they are asked about."""

    joins_online = Rules.joins_online
    joins_recomputed = Rules.joins_recomputed


class _Asked(CpuScheduling):
    """Rules that answer the same when they are asked."""

    def joins_online(self, kernel: KernelOp) -> bool:
        return False

    def joins_recomputed(self, kernel: KernelOp) -> bool:
        return False


@pytest.mark.parametrize(("question", "text", "chain"), [
    ("joins_online", ATTENTION, OnlineChain), ("joins_recomputed", PRODUCTS, RecomputedChain)])
def test_a_kernel_is_built_only_for_targets_that_may_want_it(
    question: str, text: str, chain: type[OnlineChain], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said of it is the same."""
    built, build = list[type](), chain.kernel

    def kernel(self: OnlineChain, *, exact: bool) -> KernelOp:
        built.append(type(self))
        return build(self, exact=exact)

    monkeypatch.setattr(chain, "kernel", kernel)
    remarks: list[list[str]] = []
    for rules in (_Asked, _Never):
        context = find_target("cpu").bind(TargetOptions()).context()
        context.rules = rules("cpu", (), TargetOptions())
        context.facts = replace(context.facts, row_memory=0)  # nothing is joined by rows first
        for _ in lower(Parser(context, text).parse_module(), context):
            pass
        remarks.append([r.text for r in context.remarks if FASTER_APART.text in r.text])
        assert context.rules.never(question) is (rules is _Never)
        assert built.count(chain) == (1 if rules is _Asked else 0)
        built.clear()
    assert remarks[0] == remarks[1] and remarks[0]
