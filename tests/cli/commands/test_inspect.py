"""`inspect`: what a model is, also of one that cannot be compiled."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.conftest import Run, make_model


def test_what_a_model_is(strata: Run, small_model: Path) -> None:
    facts = json.loads(strata("inspect", small_model, "--json").out)
    assert facts["format"] == "ONNX" and facts["opsets"] == {"ai.onnx": 17}
    assert facts["inputs"] == [{"name": "in/x:0", "type": "f32[n, 8]"},
                               {"name": "rows", "type": "i64[m]"}]
    assert facts["outputs"] == [{"name": "out/y", "type": "f32[m, 32]"}]
    assert facts["sizes"] == {"n": ["in/x:0 dim 0"], "m": ["rows dim 0"]}
    assert facts["operators"] == {"MatMul": 1, "Softmax": 1, "Gather": 1}
    assert facts["parameters"] == {"tensors": 1, "elements": 256, "bytes": 1024}
    assert facts["unsupported"] == []
    told = strata("inspect", small_model)
    assert told.status == 0
    assert "opset 17" in told.out and "f32[n, 8]" in told.out and "256 in 1 tensors" in told.out
    assert told.out.endswith("all of it is supported\n")


def test_sizes_that_are_fixed(strata: Run, small_model: Path) -> None:
    facts = json.loads(strata("inspect", small_model, "--dim", "n=4", "--json").out)
    assert facts["inputs"][0]["type"] == "f32[4, 8]"
    assert list(facts["sizes"]) == ["m"]


def test_what_is_not_supported(strata: Run) -> None:
    model = make_model()
    for k in range(3):
        model.graph.node.append(helper.make_node(
            "Fancy", ["in/x:0"], [f"z{k}"], name=f"fancy{k}", domain="my.domain"))
    model.opset_import.append(helper.make_opsetid("my.domain", 3))
    onnx.save(model, "model.onnx")
    done = strata("inspect", "model.onnx")
    assert done.status == 0, done.err
    assert "3  my.domain.Fancy" in done.out and "my.domain 3" in done.out
    assert "not supported:" in done.out and "fancy2" in done.out
    facts = json.loads(strata("inspect", "model.onnx", "--json").out)
    assert all(f"fancy{k}" in str(facts["unsupported"]) for k in range(3))
    assert facts["inputs"][0] == {"name": "in/x:0", "type": "f32[n, 8]"}
    assert not list(Path.cwd().glob("reproducer*"))


def test_operators_and_weights_of_subgraphs_count(strata: Run) -> None:
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weight = numpy_helper.from_array(np.ones((2, 3), np.float16), "w")
    inner = helper.make_graph([helper.make_node("Neg", ["w"], ["y"])], "inner", [], [y], [weight])
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT16, [2, 3])
    node = helper.make_node("If", ["c"], ["out"], then_branch=inner, else_branch=inner)
    graph = helper.make_graph([node], "outer", [condition], [out])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              "model.onnx")
    facts = json.loads(strata("inspect", "model.onnx", "--json").out)
    assert facts["operators"] == {"Neg": 2, "If": 1}
    assert facts["parameters"] == {"tensors": 2, "elements": 12, "bytes": 24}


@pytest.mark.parametrize("level", ["graph", "loop", "block"])
def test_texts(strata: Run, small_model: Path, level: str) -> None:
    assert strata("lower", small_model, "--to", level, "-o", "text.mlir").status == 0
    facts = json.loads(strata("inspect", "text.mlir", "--weights", small_model, "--json").out)
    assert facts["format"] == f"a text of {level} level"
    assert facts["inputs"][0]["name"] == "in/x:0"
    assert facts["operators"]


def test_files_that_cannot_be_read(strata: Run) -> None:
    Path("model.onnx").write_bytes(b"no model")
    for name in ("model.onnx", "lost.onnx", "lost.mlir", "model.xyz"):
        done = strata("inspect", name)
        assert done.status == 1 and name in done.err and done.out == ""
