"""docs/ring.md says for each pass what it keeps in the ring, and samples bear it out."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from compiler.diagnostics import StrataError
from compiler.instrument.preserved import BLURS, blur_of
from compiler.instrument.ring import mantissa_of
from compiler.instrument.ring_weights import RingWeights
from compiler.pipeline.steps import PIPELINE
from dialects.graph import SearchSortedOp
from dialects.semantics.ring import Ring
from dialects.strata.types import element_of, is_float
from targets.base import TargetOptions, find_target
from targets.reference.interpret import interpret
from tests.lowering import lower
from tests.op_samples.graph_samples import SAMPLES, Sample, build_module
from tests.op_samples.pipeline_samples import PIPELINE_SAMPLES

PAGE = (Path(__file__).parents[2] / "docs" / "ring.md").read_text(encoding="utf-8")
ROWS = [tuple(cell.strip() for cell in line.strip("|").split(" | "))
        for line in PAGE.splitlines() if re.match(r"\| (graph|loop|host|block)-", line)]
PASSES = list(dict.fromkeys(step.name for step in PIPELINE))
ALL = [*SAMPLES, *PIPELINE_SAMPLES]


def test_the_page_lists_all_passes_in_order() -> None:
    assert list(dict.fromkeys(row[0] for row in ROWS)) == PASSES
    assert all(len(row) == 4 and row[2] in ("yes", "no") and row[3] for row in ROWS)


def test_the_page_and_the_table_agree() -> None:
    blurs = {(name, b.rewrite, b.reason) for name, bs in BLURS.items() for b in bs}
    assert {(name, rewrite, why) for name, rewrite, kept, why in ROWS if kept == "no"} == blurs
    kept = [name for name in PASSES if name not in BLURS]
    assert f"this is {len(kept)} of {len(PASSES)} passes" in " ".join(PAGE.split())


def ring_of(sample: Sample) -> tuple[Ring, list[np.ndarray]] | None:
    """The ring for a sample's floats, and its inputs; None for floats without room for residues."""
    module, arrays, _ = build_module(sample, False)
    try:
        ring, random = Ring(mantissa_of(module)), np.random.default_rng(1)
    except StrataError:
        return None
    made = [ring.random(a, random) if is_float(element_of(a.dtype)) else a for a in arrays]
    if sample.op is SearchSortedOp:  # the definition needs it
        made[0] = np.sort(made[0])
    return ring, made


def check(sample: Sample) -> None:
    """Each pass but those that may blur keeps every bit of a sample, at every level."""
    found = ring_of(sample)
    if found is None:
        pytest.skip("floats without room for residues")
    ring, inputs = found
    module, _, context = build_module(sample, False)
    weights, context.weights.history = RingWeights(ring), {}

    def run() -> list[np.ndarray]:
        known = weights.of(module, context.weights)
        outputs = interpret(module, known, [x.copy() for x in inputs], ring)
        return [np.asarray(ring.wrap(np.asarray(o))) for o in outputs]

    expected, text = run(), str(module)
    operations = {op.name for op in module.walk()}
    strata = find_target("cpu").bind(TargetOptions()).context(context.weights)
    for step in lower(module, strata):
        if (now := str(module)) == text:
            continue
        outputs, text = run(), now
        same = all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
                   for a, b in zip(outputs, expected, strict=True))
        assert same or blur_of(step.partition("{")[0], operations), f"after {step}"
        expected, operations = outputs, {op.name for op in module.walk()}


QUICK = ("matmul", "softmax", "conv", "layer_norm", "gelu", "avg_pool", "reduce_sum", "gather",
         "quantize_linear", "matmul_integer", "concat", "exp")


@pytest.mark.parametrize("name", QUICK)
def test_a_sample_keeps_its_bits(name: str) -> None:
    check(next(s for s in SAMPLES if s.op == name or s.label.startswith(name)))


@pytest.mark.slow
@pytest.mark.parametrize("sample", ALL, ids=[f"{k}-{s.label}" for k, s in enumerate(ALL)])
def test_all_samples_keep_their_bits(sample: Sample) -> None:
    check(sample)
