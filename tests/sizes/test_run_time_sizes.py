"""Every operator at sizes that only a run knows; see `tests/sizes/sweep.py`."""

from __future__ import annotations

import pytest

import dialects.graph as g
from tests.op_samples.graph_samples import SAMPLES, Sample
from tests.sizes.sweep import check

READ_BY_SIZES = (g.TopKOp, g.ConcatOp, g.PadOp, g.FramesOp, g.ArgMaxOp, g.GroupedMatmulOp)
"""Operators that gave foreign memory, or what no size allows, before this test was there."""

FEW = [next(s for s in SAMPLES if s.op is op) for op in READ_BY_SIZES]


@pytest.mark.parametrize("sample", FEW, ids=lambda s: s.label)
def test_a_few_at_many_sizes(sample: Sample):
    assert check(sample, runs=4) == []


@pytest.mark.slow
@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.operands],
                         ids=[f"{k}-{s.label}" for k, s in enumerate(SAMPLES) if s.operands])
def test_all_at_many_sizes(sample: Sample):
    assert check(sample) == []
