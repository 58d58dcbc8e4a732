"""Operators of ai.onnx.ml: against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import load_model
from compiler.frontend.onnx.ops import importers
from tests.frontend.onnx_models import (
    Op,
    assert_close,
    make_model,
    model_of,
    run_import,
    run_reference,
    save,
    value_info,
)
from tests.frontend.operators.onnx_ml_samples import ENSEMBLES, SAMPLES

DOMAIN = "ai.onnx.ml"
REFUSED = {"ZipMap", "CategoryMapper"}
CASES = [pytest.param(sample, opset, id=f"{k}-{sample.op_type}-{opset}")
         for k, sample in enumerate(SAMPLES) for opset in sample.opsets]


@pytest.mark.parametrize(("sample", "opset"), CASES)
def test_import_computes_what_onnxruntime_does(sample: Op, opset: int, tmp_path: Path):
    model, inputs = model_of(sample, opset, symbolic=False)
    expected = run_reference(model, inputs)
    assert_close(run_import(model, inputs, tmp_path), expected, sample.tolerance)
    if sample.symbolic:
        model, inputs = model_of(sample, opset, symbolic=True)
        assert_close(run_import(model, inputs, tmp_path), expected, sample.tolerance)


def test_every_importer_has_a_sample():
    ours = {op_type for domain, op_type in importers() if domain == DOMAIN}
    assert ours - REFUSED == {s.op_type for s in SAMPLES}


@pytest.mark.parametrize(("number", "transform"), [
    (1, lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)), (2, lambda x: 1 / (1 + np.exp(-x))),
])
def test_transforms_of_tree_ensembles(number: int, transform: Any, tmp_path: Path):
    """By ONNX 1 is SOFTMAX and 2 LOGISTIC; onnxruntime swaps them."""
    plain, inputs = model_of(ENSEMBLES[0], 5, symbolic=False)
    [scores] = run_reference(plain, inputs)
    plain.graph.node[0].attribute.append(helper.make_attribute("post_transform", number))
    assert_close(run_import(plain, inputs, tmp_path), [transform(scores)], 1e-5)


@pytest.mark.parametrize("op_type", ["TreeEnsembleRegressor", "SVMClassifier"])
def test_compiled_operators(op_type: str, tmp_path: Path):
    sample = next(s for s in SAMPLES if s.op_type == op_type)
    model, inputs = model_of(sample, 1, symbolic=True)
    program = compiler.compile(save(model, tmp_path), target="cpu", cache=None)
    assert_close(program(**inputs), run_reference(model, inputs), 1e-4)


# ---------------------------------------------------------------------- bad nodes
X = value_info("x", np.float32, [5, 3])
TREE: dict[str, Any] = {
    "n_targets": 1, "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0, 0, 0], "nodes_values": [0.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0], "target_nodeids": [1, 2],
    "target_ids": [0, 0], "target_weights": [1.0, 2.0],
}


@pytest.mark.parametrize(("op_type", "attributes", "text"), [
    ("TreeEnsembleRegressor", TREE | {"nodes_values": [0.5]}, "nodes_values has 1 entries instead"),
    ("TreeEnsembleRegressor", TREE | {"nodes_truenodeids": [7, 0, 0]}, "the nodes that nodes_true"),
    ("TreeEnsembleRegressor", TREE | {"target_ids": [0, 4]}, "target_ids must be from 0 to 0"),
    ("TreeEnsembleRegressor", TREE | {"nodes_modes": ["MAYBE", "LEAF", "LEAF"]}, "MAYBE'] are"),
    ("TreeEnsembleRegressor", TREE | {"nodes_nodeids": [0, 1, 1]}, "a node is defined twice"),
    ("TreeEnsembleRegressor", TREE | {"aggregate_function": "MEDIAN"}, "one of AVERAGE"),
    ("TreeEnsembleRegressor", TREE | {"post_transform": "CUBE", "n_targets": 2}, "be one of NONE"),
    ("LinearRegressor", {"coefficients": [1.0, 2.0], "targets": 3}, "do not divide into 3 rows"),
    ("LinearClassifier", {"coefficients": [1.0] * 3, "intercepts": [1.0],
                          "classlabels_strings": ["a", "b"]}, "classlabels_strings are not"),
    ("SVMRegressor", {"coefficients": [1.0]}, "rho is missing"),
    ("Normalizer", {"norm": "L3"}, "'L3'; it must be MAX, L1 or L2"),
    ("OneHotEncoder", {"cats_strings": ["a"]}, "cats_strings are strings"),
    ("ZipMap", {"classlabels_strings": ["a", "b", "c"]}, "zipmap=False"),
    ("Scaler", {"scale": 3}, "'scale' of Scaler is of type int, not floats"),
])
def test_bad_nodes(op_type: str, attributes: dict[str, Any], text: str, tmp_path: Path):
    outputs = ["y", "z"] if "Classifier" in op_type else ["y"]
    node = helper.make_node(op_type, ["x"], outputs, domain=DOMAIN, name="bad", **attributes)
    model = make_model([node], [X], outputs, domains={DOMAIN: 3})
    with pytest.raises(StrataError) as caught:
        load_model(save(model, tmp_path))
    assert text in str(caught.value) and "bad" in str(caught.value)


def test_trees_with_a_cycle(tmp_path: Path):
    attributes = TREE | {"nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"],
                         "nodes_truenodeids": [1, 1, 0], "nodes_falsenodeids": [2, 2, 0],
                         "target_treeids": [0], "target_nodeids": [2], "target_ids": [0],
                         "target_weights": [1.0]}
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain=DOMAIN, **attributes)
    model = make_model([node], [X], ["y"], domains={DOMAIN: 3})
    with pytest.raises(StrataError, match="its trees have a cycle"):
        load_model(save(model, tmp_path))


def test_shapes_that_contradict(tmp_path: Path):
    node = helper.make_node("Scaler", ["x"], ["y"], domain=DOMAIN, offset=[1.0, 2.0],
                            scale=[1.0, 2.0])
    model: onnx.ModelProto = make_model([node], [X], ["y"], domains={DOMAIN: 1})
    with pytest.raises(StrataError, match="do not broadcast"):
        load_model(save(model, tmp_path))
