"""Every operator against onnxruntime, at several opsets, with constant and with open sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.frontend.onnx.ops import importers
from compiler.frontend.onnx.schema import contrib_schemas
from tests.frontend.onnx_models import Op, assert_close, model_of, run_import, run_reference
from tests.frontend.operators.onnx_more_samples import MORE_SAMPLES, WITHOUT_RUNTIME
from tests.frontend.operators.onnx_samples import SAMPLES

ALL = [*SAMPLES, *MORE_SAMPLES]
CASES = [pytest.param(sample, opset, id=f"{k}-{sample.op_type}-{opset}")
         for k, sample in enumerate(ALL) for opset in sample.opsets]


@pytest.mark.parametrize(("sample", "opset"), CASES)
def test_import_computes_what_onnxruntime_does(sample: Op, opset: int, tmp_path: Path):
    model, inputs = model_of(sample, opset, symbolic=False)
    expected = run_reference(model, inputs)
    assert_close(run_import(model, inputs, tmp_path), expected, sample.tolerance)
    if sample.symbolic:
        model, inputs = model_of(sample, opset, symbolic=True)
        assert_close(run_import(model, inputs, tmp_path), expected, sample.tolerance)


ELSEWHERE = {
    "Constant",
    *("If", "Loop", "Scan"),  # test_onnx_control.py
    *("NonZero", "Unique", "NonMaxSuppression"),  # test_onnx_data_sizes.py
    *("SequenceEmpty", "SequenceConstruct", "SequenceInsert", "SequenceErase", "SequenceAt",
      "SequenceLength", "SequenceMap", "ConcatFromSequence", "SplitToSequence",
      "Optional", "OptionalHasElement", "OptionalGetElement"),  # test_onnx_sequences.py
}
"""Operators that have tests of their own."""


def test_every_importer_has_a_sample():
    tested = {s.op_type for s in ALL} | ELSEWHERE
    standard = {op_type for domain, op_type in importers()
                if not domain and (domain, op_type) not in contrib_schemas()}
    assert standard - WITHOUT_RUNTIME <= tested
