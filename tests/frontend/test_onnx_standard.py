"""ONNX's own node tests, as the installed onnx package makes them, for what we can import.

Where a test gives shapes, axes and the like as inputs, these become constants of the model.
"""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from compiler.diagnostics import StrataError
from compiler.frontend import ImportedModel, load_model
from dialects.types import Array
from tests.frontend.onnx_models import assert_close, run_imported, save

TOLERANCE, HALF_TOLERANCE = 1e-3, 2e-2
AT_LEAST = 1500
"""How many of the tests must be importable: a guard against silent losses."""


def plain_array(value: object) -> Array:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) \
        else np.asarray(value)


def import_case(model: onnx.ModelProto, values: dict[str, Array], folder: Path) -> ImportedModel:
    """The model; if it needs more known at import, with all inputs but the first as constants."""
    try:
        return load_model(save(model, folder))
    except StrataError:
        fixed = onnx.ModelProto()
        fixed.CopyFrom(model)
        first = 0 if model.graph.node[0].op_type in ("Range", "ConstantOfShape") else 1
        for name in list(values)[first:]:
            fixed.graph.initializer.append(numpy_helper.from_array(values[name], name))
        return load_model(save(fixed, folder))


@pytest.mark.slow
def test_node_tests_of_onnx(tmp_path: Path):
    """Each test that can be imported gives the expected values; others say why in an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for case in cases:
        inputs, outputs = case.data_sets[0]
        try:
            values = {i.name: plain_array(a)
                      for i, a in zip(case.model.graph.input, inputs, strict=True)}
            imported = import_case(case.model, values, tmp_path)
        except (StrataError, ValueError):  # a ValueError: an operand is no array
            counts["not imported"] += 1
            continue
        actual = run_imported(imported, values)
        try:
            expected = [plain_array(o) for o in outputs]
            half = min(e.dtype.itemsize for e in expected) == 2
            assert_close(actual, expected, HALF_TOLERANCE if half else TOLERANCE)
            counts["passed"] += 1
        except AssertionError:
            wrong.append(case.name)
    assert not wrong
    assert counts["passed"] >= AT_LEAST, counts
