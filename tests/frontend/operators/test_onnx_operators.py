"""Every operator against onnxruntime, at several opsets, with constant and with open sizes.

Products of bytes are compared with their definition, and that with onnxruntime where it is exact.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from compiler.frontend.onnx.ops import importers
from compiler.frontend.onnx.schema import contrib_schemas
from tests import processes
from tests.frontend.onnx_models import (
    Op,
    assert_close,
    model_of,
    run_import,
    run_reference,
    with_seven_bits,
)
from tests.frontend.operators.onnx_byte_definitions import BYTE_DEFINITIONS, by_definition
from tests.frontend.operators.onnx_contrib_samples import SAMPLES as CONTRIB
from tests.frontend.operators.onnx_more_samples import MORE_SAMPLES, WITHOUT_RUNTIME
from tests.frontend.operators.onnx_samples import SAMPLES

ALL = [*SAMPLES, *MORE_SAMPLES]
CASES = [pytest.param(sample, opset, id=f"{k}-{sample.op_type}-{opset}")
         for k, sample in enumerate(ALL) for opset in sample.opsets]


@pytest.mark.parametrize(("sample", "opset"), CASES)
def test_import_computes_what_onnxruntime_does(sample: Op, opset: int, tmp_path: Path):
    model, inputs = model_of(sample, opset, symbolic=False)
    actual = run_import(model, inputs, tmp_path)
    expected = by_definition(BYTE_DEFINITIONS, sample, actual) if (
        sample.op_type in BYTE_DEFINITIONS) else run_reference(model, inputs)
    assert_close(actual, expected, sample.tolerance)
    if sample.symbolic:
        model, inputs = model_of(sample, opset, symbolic=True)
        assert_close(run_import(model, inputs, tmp_path), expected, sample.tolerance)


BYTES = [*ALL, *CONTRIB]
BYTES = [pytest.param(with_seven_bits(s), id=f"{k}-{s.op_type}") for k, s in enumerate(BYTES)
         if s.op_type in BYTE_DEFINITIONS]


@pytest.mark.parametrize("sample", BYTES)
def test_definitions_of_products_of_bytes_are_those_of_onnxruntime(sample: Op):
    model, inputs = model_of(sample, sample.opsets[-1], symbolic=False)
    wanted = run_reference(model, inputs, seven_bits=True)
    found = by_definition(BYTE_DEFINITIONS, sample, wanted)
    assert_close(found, wanted, sample.tolerance, sample.steps)


def test_a_product_of_bytes_is_never_compared_with_onnxruntime_alone():
    sample = next(s for s in ALL if s.op_type == "MatMulInteger")
    with pytest.raises(AssertionError, match="MatMulInteger multiplies bytes"):
        run_reference(*model_of(sample, 10, symbolic=False))


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


def test_an_operator_of_onnx_is_found_without_modules_of_other_domains():
    every = importers()
    assert all([*dict.fromkeys(every[key])] == [*dict.fromkeys(found)]
               for key, found in importers(other_domains=False).items())
    code = ("import sys; from compiler.frontend.onnx.ops import find_importer as find; "
            "assert find('', 'Gemm', 17)\n"
            "assert 'compiler.frontend.onnx.ops.ml' not in sys.modules\n"
            "assert find('com.microsoft', 'FusedConv', 1) and find('ai.onnx.ml', 'Scaler', 1)")
    processes.run([sys.executable, "-c", code], check=True)
