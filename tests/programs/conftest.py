"""Models whose programs are specialized."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

import compiler
from compiler.options import Specialize
from compiler.specialization import THREAD
from tests.models import tiny_bert
from tests.programs.specialized import Make, save


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tiny_bert, tmp_path_factory.mktemp("bert"))


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Make]:
    """Makes softmax(x @ w) for x: f32[n, 4], quick to compile; no thread outlives the test."""
    path = tmp_path / "rows.onnx"
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows.n", 4])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["rows.n", 4])
    w = onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32) * 2, "w")
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["s"], name="project"),
             onnx.helper.make_node("Softmax", ["s"], ["y"], name="normalize", axis=-1)]
    graph = onnx.helper.make_graph(nodes, "rows", [x], [y], [w])
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    path.write_bytes(model.SerializeToString())

    def make(
        choice: Specialize, target: str = "reference", cache: Path | None = None
    ) -> compiler.Executable:
        return compiler.compile(path, target=target, cache=cache, threads=1, specialize=choice)

    yield make
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join()
