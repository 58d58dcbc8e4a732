"""Models that contradict themselves: every problem is told, with its node, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.diagnostics import Problem, StrataError
from compiler.frontend import load_model
from tests.frontend.onnx_models import make_model, run_import, save, value_info

X = value_info("x", np.float32, [2, 3])


def node(op_type: str, inputs: str, outputs: str, name: str = "", **attributes: object):
    return helper.make_node(op_type, inputs.split(), outputs.split(), name=name, **attributes)


def problems(
    folder: Path, nodes: Sequence[onnx.NodeProto], outputs: str = "y", opset: int = 17,
    inputs: Sequence[onnx.ValueInfoProto] = (X,), **more: object,
) -> tuple[Problem, ...]:
    model = make_model(nodes, inputs, outputs.split(), opset=opset, **more)  # type: ignore[arg-type]
    with pytest.raises(StrataError) as caught:
        load_model(save(model, folder))
    assert str(caught.value)
    return caught.value.problems


def test_all_unsupported_operators_at_once(tmp_path: Path):
    found = problems(tmp_path, [
        node("StringNormalizer", "x", "a", "s1"), node("StringNormalizer", "x", "b"),
        node("Fancy", "x", "c", "f", domain="my.domain"), node("Relu", "x", "y"),
    ], domains=["my.domain"])
    assert [p.what for p in found] == [
        "operator ai.onnx.StringNormalizer (opset 17) is not supported: 2 nodes, 's1', "
        "'StringNormalizer#1'",
        "operator my.domain.Fancy (opset 1) is not supported: 1 node, 'f'",
    ]


def test_unsupported_operators_inside_a_branch(tmp_path: Path):
    branch = helper.make_graph([node("StringNormalizer", "x", "z")], "b",
                               [], [helper.make_tensor_value_info("z", TensorProto.STRING, None)])
    found = problems(tmp_path, [node("If", "c", "y", "if", then_branch=branch, else_branch=branch)],
                     inputs=[X, value_info("c", np.bool_, [])])
    assert [p.what for p in found] == [
        "operator ai.onnx.StringNormalizer (opset 17) is not supported: 2 nodes, "
        "'if/else/StringNormalizer#0', 'if/then/StringNormalizer#0'"]


@pytest.mark.parametrize(("nodes", "text", "where"), [
    ([node("Relu", "x", "y"), node("Neg", "x", "y")], "'y' is defined more than once", ""),
    ([node("Relu", "gone", "y", "r")], "uses value 'gone', which nothing defines", "r"),
    ([node("Relu", "x", "z")], "no node defines graph output 'y'", ""),
    ([node("Add", "x b", "a", "n1"), node("Neg", "a", "b", "n2"), node("Relu", "b", "y")],
     "depend on each other in a cycle: 'n1', 'n2'", "n1"),
    ([node("Softmax", "x", "y", axis=1.5)], "'axis' of Softmax is of type float, not int",
     "Softmax#0"),
    ([node("Softmax", "x", "y", axes=1)], "has no attribute 'axes'", "Softmax#0"),
    ([node("Concat", "x x", "y")], "needs attribute 'axis'", "Concat#0"),
    ([node("Add", "x", "y")], "the number of inputs of Add is 1", "Add#0"),
    ([node("Relu", "x x", "y")], "the number of inputs of Relu is 2", "Relu#0"),
    ([node("Softmax", "x", "y", "s", axis=5)], "axis 5 is out of range", "s"),
    ([node("MatMul", "x x", "y", "m")], "MatMul: C", "m"),
    ([node("Cast", "x", "y", "c", to=8)], "element type STRING is not supported", "c"),
    ([node("Fancy", "x", "y", "f", domain="other"), node("Neg", "x", "z")],
     "other.Fancy (opset 1) is not supported", ""),
    ([node("ReduceSum", "x x", "y", "c")], "axes are known only at run time", "c"),
])
def test_faults_of_nodes(
    nodes: list[onnx.NodeProto], text: str, where: str, tmp_path: Path
):
    (found,) = problems(tmp_path, nodes)
    assert text in found.what and found.node == where and found.file.endswith("model.onnx")


def test_independent_faults_are_collected_and_what_follows_from_them_is_not(tmp_path: Path):
    found = problems(tmp_path, [
        node("Softmax", "x", "a", "bad axis", axis=7), node("Relu", "a", "b"),
        node("MatMul", "x x", "c", "bad product"), node("Add", "b c", "y"),
    ])
    assert [p.node for p in found] == ["bad axis", "bad product"]
    assert {p.level for p in found} == {"graph"}


def test_an_output_that_is_not_computed(tmp_path: Path):
    image, mean = value_info("x", np.float32, [1, 2, 4, 4]), value_info("m", np.float32, [2])
    norm = node("BatchNormalization", "x m m m m", "y mean", "norm")
    (found,) = problems(tmp_path, [norm], "y mean", inputs=[image, mean], opset=9)
    assert "output 1 of BatchNormalization 'norm' is not supported" in found.what
    model = make_model([norm], [image, mean], ["y"], opset=9)
    x, m = np.zeros((1, 2, 4, 4), np.float32), np.ones(2, np.float32)
    assert run_import(model, {"x": x, "m": m}, tmp_path)[0].max() < 1e-5


def test_opsets_that_are_too_new(tmp_path: Path):
    assert "newer than" in problems(tmp_path, [node("Relu", "x", "y")], opset=999)[0].what


def test_inputs_that_are_no_plain_tensors(tmp_path: Path):
    sequence = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)
    (found,) = problems(tmp_path, [node("Identity", "x", "y")], inputs=[sequence])
    assert "input 'x': the number of dims of its tensors is not declared" in found.what
    complex_ = helper.make_tensor_value_info("x", TensorProto.COMPLEX64, [1])
    (found,) = problems(tmp_path, [node("Identity", "x", "y")], inputs=[complex_])
    assert "input 'x': element type COMPLEX64" in found.what


@pytest.mark.parametrize(("indices", "dims", "text"), [
    ([4], [4], "not all inside"), ([-1], [4], "not all inside"),
    ([[0, 3]], [2, 3], "not all inside"),
    ([0, 1], [4], "values and .2. indices"), ([[0, 0, 0]], [2, 3], "values and"),
    ([0], [1 << 20, 1 << 20], "too large"), ([0], [-4], "negative"),
])
def test_sparse_initializers_that_are_wrong(
    indices: list[Any], dims: list[int], text: str, tmp_path: Path
):
    model = make_model([node("Add", "x w", "y")], [X], ["y"])
    values = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    places = numpy_helper.from_array(np.array(indices), "i")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, dims))
    with pytest.raises(StrataError, match=f"(?s)initializer 'w': .*{text}"):
        load_model(save(model, tmp_path))


def test_nodes_out_of_order_are_sorted(tmp_path: Path):
    nodes = [node("Relu", "a", "y"), node("Neg", "x", "a")]
    x = np.array([[-1, 2, -3]] * 2, np.float32)
    (y,) = run_import(make_model(nodes, [X], ["y"]), {"x": x}, tmp_path)
    np.testing.assert_array_equal(y, np.maximum(-x, 0))


def test_unnamed_nodes_and_equal_names_are_fine(tmp_path: Path):
    nodes = [node("Neg", "x", "a", "same"), node("Neg", "a", "b", "same"), node("Relu", "b", "y")]
    x = np.ones((2, 3), np.float32)
    assert run_import(make_model(nodes, [X], ["y"]), {"x": x}, tmp_path)[0].all()
