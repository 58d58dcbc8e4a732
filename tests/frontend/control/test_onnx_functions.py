"""Functions of models, operators that ONNX defines by others, and the frontends' discovery."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.diagnostics import StrataError
from compiler.frontend import frontends, load_model
from dialects.graph.base import GraphOp
from dialects.strata.func import main_function
from dialects.text.syntax import location_name
from tests.frontend.onnx_models import (
    C,
    assert_close,
    make_model,
    model_of,
    op,
    run_import,
    run_reference,
    save,
    value_info,
)

X = value_info("x", np.float32, [2, 3])
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]


def scale_and_shift() -> onnx.FunctionProto:
    """my.Scale(a, b?; factor, axis = 1) = softmax(a * factor, axis) [+ b]."""
    softmax = helper.make_node("Softmax", ["scaled"], ["out"], "soft")
    softmax.attribute.append(reference("axis", "axis", onnx.AttributeProto.INT))
    constant = helper.make_node("Constant", [], ["f"])
    constant.attribute.append(reference("value_float", "factor", onnx.AttributeProto.FLOAT))
    multiply = helper.make_node("Mul", ["a", "f"], ["scaled"])
    return helper.make_function(
        "my", "Scale", ["a"], ["out"], [constant, multiply, softmax], OPSETS, ["factor"],
        [helper.make_attribute("axis", 1)])


def reference(name: str, outer: str, kind: int) -> onnx.AttributeProto:
    attribute = onnx.AttributeProto()
    attribute.name, attribute.ref_attr_name, attribute.type = name, outer, kind
    return attribute


def twice() -> onnx.FunctionProto:
    """my.Twice(a) = Scale(Scale(a))."""
    nodes = [helper.make_node("Scale", ["a"], ["b"], "first", domain="my", factor=2.0),
             helper.make_node("Scale", ["b"], ["c"], "second", domain="my", factor=0.5, axis=0)]
    return helper.make_function("my", "Twice", ["a"], ["c"], nodes, OPSETS)


def test_functions_within_functions(tmp_path: Path):
    call = helper.make_node("Twice", ["x"], ["y"], "call", domain="my")
    model = make_model([call], [X], ["y"], functions=[scale_and_shift(), twice()], domains=["my"])
    x = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    assert_close(run_import(model, x, tmp_path), run_reference(model, x), 1e-6)
    function = main_function(load_model(save(model, tmp_path)).module)
    names = {location_name(o) for o in function.walk() if isinstance(o, GraphOp)}
    assert {"call/first/soft", "call/second/soft"} <= names


def test_a_function_that_calls_itself(tmp_path: Path):
    node = helper.make_node("Loop1", ["a"], ["b"], domain="my")
    function = helper.make_function("my", "Loop1", ["a"], ["b"], [node], OPSETS)
    call = helper.make_node("Loop1", ["x"], ["y"], domain="my")
    model = make_model([call], [X], ["y"], functions=[function], domains=["my"])
    with pytest.raises(StrataError, match="calls itself"):
        load_model(save(model, tmp_path))


def test_an_unsupported_operator_inside_a_function(tmp_path: Path):
    node = helper.make_node("StringNormalizer", ["a"], ["b"])
    function = helper.make_function("my", "F", ["a"], ["b"], [node], OPSETS)
    model = make_model([helper.make_node("F", ["x"], ["y"], domain="my")], [X], ["y"],
                       functions=[function], domains=["my"])
    message = r"StringNormalizer .* is not supported: 1 node, 'my.F/StringNormalizer#0'"
    with pytest.raises(StrataError, match=message):
        load_model(save(model, tmp_path))


@pytest.mark.parametrize("sample", [
    op("Celu", C([[1.0, -2.0]]), opsets=(12,), alpha=0.5),  # a definition outright
    op("MeanVarianceNormalization", C(np.arange(12, dtype="f").reshape(1, 2, 2, 3)),
       opsets=(13,)),  # the operator's defaults hold inside it
    op("CenterCropPad", C(np.ones((4, 5), "f")), C([2, 9]), opsets=(18,)),  # built for the node
    op("NegativeLogLikelihoodLoss", C([[0.5, 0.5]]), C([1]), opsets=(13,), reduction="sum"),
], ids=lambda s: s.op_type)
def test_operators_that_onnx_defines_by_others(sample, tmp_path: Path):
    model, inputs = model_of(sample, sample.opsets[0], symbolic=False)
    assert_close(run_import(model, inputs, tmp_path), run_reference(model, inputs), 1e-6)


@pytest.mark.parametrize(("attribute", "value"), [
    ("value_float", 1.5), ("value_floats", [1.5, 2.5]), ("value_int", 3), ("value_ints", [3, 4]),
    ("value", helper.make_tensor("v", 1, [2], [1.0, 2.0])),
])
def test_constants(attribute: str, value: object, tmp_path: Path):
    model = make_model([helper.make_node("Constant", [], ["y"], **{attribute: value})], [], ["y"])
    assert_close(run_import(model, {}, tmp_path), run_reference(model, {}), 0)


def test_a_constant_without_a_value(tmp_path: Path):
    model = make_model([helper.make_node("Constant", [], ["y"])], [], ["y"])
    with pytest.raises(StrataError, match="its value is given as nothing; only numbers"):
        load_model(save(model, tmp_path))


def test_frontends_are_found_by_their_folders():
    assert "onnx" in frontends() and all(f.DESCRIPTION for f in frontends().values())
