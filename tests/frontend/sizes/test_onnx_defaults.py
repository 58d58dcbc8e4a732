"""Inputs with a default, and sizes that leave a shape open: as onnxruntime has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.__main__ import main
from compiler.diagnostics import StrataError
from compiler.frontend import MemoryModel

X = np.ones((2, 3), np.float32)
OTHER = np.full((3, 2), 2, np.float32)


def with_default(ir_version: int) -> MemoryModel:
    """x @ w, where w is an input and an initializer of ones."""
    def info(name: str, *shape: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [info("x", 2, 3), info("w", 3, 2)],
        [info("y", 2, 2)], [numpy_helper.from_array(np.ones((3, 2), np.float32), "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)],
                              ir_version=ir_version)
    return MemoryModel("m.onnx", model.SerializeToString())


def run(model: MemoryModel, *inputs: Any, **options: Any) -> Any:
    return compiler.compile(model, target="reference", cache="off", **options)(*inputs)[0]


@pytest.mark.parametrize("ir_version", [3, 8])
def test_a_default_holds_where_nothing_else_is_said(ir_version: int) -> None:
    np.testing.assert_array_equal(run(with_default(ir_version), X), np.full((2, 2), 3))


def test_a_default_may_have_other_contents_or_be_an_input() -> None:
    for given, options in (((X,), {"constants": {"w": OTHER}}),
                           ((X, OTHER), {"shapes": {"w": [3, 2]}})):
        np.testing.assert_array_equal(run(with_default(8), *given, **options), np.full((2, 2), 6))


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_call_that_gives_a_constant_is_told_what_to_do(target: str, tmp_path: Path) -> None:
    """onnxruntime takes it. Also of a compiled model that comes from the cache."""
    model = with_default(8)
    (tmp_path / "m.onnx").write_bytes(model.data)
    told = (r"'w' has a default in the model.*\n.*shapes=\{'w': \[3, 2\]\} \(--shape w=3x2\)"
            r".*constants=\{'w': ARRAY\}")
    for source in (model, tmp_path / "m.onnx", tmp_path / "m.onnx"):
        exe = compiler.compile(source, target=target, cache=tmp_path / "cache")
        np.testing.assert_array_equal(exe(X)[0], np.full((2, 2), 3))
        for call in (lambda e: e(X, OTHER), lambda e: e(x=X, w=OTHER), lambda e: e(X, w=OTHER)):
            with pytest.raises(ValueError, match=told):
                call(exe)
    with pytest.raises(ValueError) as raised:
        compiler.compile(with_default(3), target=target)(X, OTHER)
    assert "default" not in str(raised.value)  # a constant, for onnxruntime too


def test_the_command_line_tells_it_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.onnx").write_bytes(with_default(8).data)
    words = ["run", str(tmp_path / "m.onnx"), "--target", "reference", "--input", "w=ones"]
    assert main(words) == 1
    told = capsys.readouterr().err
    assert "'w' has a default" in told
    assert "--shape w=3x2" in told
    assert main([*words, "--shape", "w=3x2"]) == 0


@pytest.mark.parametrize("options", [{"constants": {"w": OTHER}}, {"shapes": {"w": [3, 2]}}])
def test_an_initializer_of_the_first_versions_is_a_constant(options: dict[str, Any]) -> None:
    """onnxruntime: Invalid input name: w."""
    with pytest.raises(StrataError, match="'w', which is not an input of the model"):
        run(with_default(3), X, **options)


def test_a_squeeze_of_whatever_is_one() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3] x) => (y) { y = Squeeze(x) }'
    model = MemoryModel("m.onnx", onnx.parser.parse_model(text).SerializeToString())
    row = np.ones((1, 3), np.float32)
    assert run(model, X).shape == (2, 3)
    assert run(model, row).shape == (3,)
    assert run(model, row, dims={"n": 1}).shape == (3,)
