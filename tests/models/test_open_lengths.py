"""An LSTM over a length that is known only at the call: only the reference target runs it."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import compiler
from compiler.diagnostics import StrataError
from tests.models import tiny_lstm
from tests.models.test_models import check


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "lstm.onnx"
    onnx.save(tiny_lstm.make_model({}), path)
    return path


def test_the_reference_target_runs_it(model: Path) -> None:
    cases = [{"seq": 6, "batch": 2}, {"seq": 3, "batch": 5}, {"seq": 1, "batch": 1}]
    check(tiny_lstm, model, compiler.compile(model, target="reference"), cases)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_the_others_name_the_node_and_what_to_do(model: Path, target: str) -> None:
    with pytest.raises(StrataError, match="fix that size") as caught:
        compiler.compile(model, target=target, interpret=True)
    assert "LSTM_0" in str(caught.value)
