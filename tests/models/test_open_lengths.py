"""An LSTM over a length that is known only at the call: a loop around the kernels of one step."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import onnx
import pytest

import compiler
from tests.models import tiny_lstm
from tests.models.test_models import check


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "lstm.onnx"
    onnx.save(tiny_lstm.make_model({}), path)
    return path


@pytest.mark.parametrize("target", ["reference", "cpu", pytest.param("cuda", marks=[
    pytest.mark.slow, pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")])])
def test_one_compiled_model_runs_every_length(model: Path, target: str) -> None:
    cases = [{"seq": 6, "batch": 2}, {"seq": 3, "batch": 5}, {"seq": 1, "batch": 1}]
    check(tiny_lstm, model, compiler.compile(model, target=target, interpret=True), cases)
