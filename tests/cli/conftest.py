"""A small model for the command line's tests, and a way to call it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.__main__ import main

PLUGINS = Path(__file__).parents[1] / "plugin"


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    status: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def strata(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """`strata("run", model, "--target", "cpu")` in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STRATA_DEBUG", raising=False)

    def run(*words: object) -> Outcome:
        capsys.readouterr()
        try:
            status = main([str(word) for word in words])
        except SystemExit as stop:  # argparse leaves that way
            status = int(stop.code or 0)
        out, err = capsys.readouterr()
        return Outcome(status, out, err)

    return run


def make_model() -> onnx.ModelProto:
    """softmax(x @ w)[rows] with an open size `n`, and names that are no identifiers."""
    x = helper.make_tensor_value_info("in/x:0", TensorProto.FLOAT, ["n", 8])
    rows = helper.make_tensor_value_info("rows", TensorProto.INT64, ["m"])
    y = helper.make_tensor_value_info("out/y", TensorProto.FLOAT, ["m", 32])
    w = np.random.default_rng(0).standard_normal((8, 32), np.float32)
    nodes = [helper.make_node("MatMul", ["in/x:0", "w"], ["scores"], name="project"),
             helper.make_node("Softmax", ["scores"], ["shares"], name="normalize", axis=-1),
             helper.make_node("Gather", ["shares", "rows"], ["out/y"], name="pick", axis=0)]
    graph = helper.make_graph(nodes, "small", [x, rows], [y], [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "small.onnx"
    onnx.save(make_model(), path)
    return path


@pytest.fixture
def my_pass() -> Path:
    """A plugin file with the pass `my-pass`."""
    return PLUGINS / "my_pass.py"
