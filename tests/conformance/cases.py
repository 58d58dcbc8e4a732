"""ONNX's node tests: their names from a list here, models and data from the onnx package.

    python -m tests.conformance.cases cpu          how many pass, and what is wrong with the others
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.runner import Runner

from compiler.onnx_backend import StrataBackend
from dialects.types import Array

FOLDER = Path(__file__).parent


def _lines(name: str) -> list[str]:
    text = (FOLDER / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def names() -> list[str]:
    """The tests that models of fixed shapes and plain tensors must pass."""
    return _lines("onnx_node_tests.txt")


def expected_failures() -> Mapping[str, str]:
    """Test -> why it fails."""
    return {name: reason for name, _, reason in (
        line.partition(": ") for line in _lines("expected_failures.txt"))}


@cache
def cases() -> Mapping[str, TestCase]:
    """All node tests of the onnx package; making them takes seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return {case.name: case for case in collect_testcases(None)}


def run_case(case: TestCase, target: str, cache: Path | str) -> None:
    """Compile and run a test; compare as ONNX's runner does. Raises AssertionError."""
    assert case.model is not None and case.data_sets is not None
    prepared = StrataBackend.prepare(case.model, "CPU", target=target, threads=1, cache=cache)
    for inputs, outputs in case.data_sets:
        found = prepared.run(_arrays(inputs))
        Runner.assert_similar_outputs(_arrays(outputs), found, case.rtol, case.atol)


def _arrays(values: Sequence[object]) -> list[Array]:
    return [numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else np.asarray(v)
            for v in values]


def report(target: str) -> None:
    """Print what fails, each with the first line of its error."""
    wrong = 0
    for name in names():
        try:
            run_case(cases()[name], target, "default")
        except Exception as error:  # whatever it is, the others follow
            wrong += 1
            text = str(error).strip().splitlines()
            print(f"{name}: {type(error).__name__}: {text[0] if text else ''}")
    print(f"{target}: {len(names()) - wrong} of {len(names())} pass")


if __name__ == "__main__":
    for chosen in sys.argv[1:]:
        report(chosen)
