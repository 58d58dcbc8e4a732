"""Recurrent layers over many steps: one loop whatever the number, with weights of its own."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
from onnx.numpy_helper import from_array, to_array

from compiler.frontend import MemoryModel, load_model
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text
from compiler.pipeline.text import format_module
from tests.frontend.onnx_models import assert_close, run_imported, run_reference

HIDDEN, FEATURES = 5, 3
LAYERS: list[tuple[str, int, dict[str, Any]]] = [
    ("RNN", 1, {}), ("GRU", 3, {}), ("GRU", 3, {"linear_before_reset": 1}),
    ("LSTM", 4, {}), ("LSTM", 4, {"direction": "bidirectional", "clip": 0.5}),
]
each_layer = pytest.mark.parametrize(
    ("kind", "gates", "attributes"), LAYERS, ids=[f"{k}-{'-'.join(a)}" for k, _, a in LAYERS])


def layer(kind: str, gates: int, attributes: dict[str, Any], steps: int) -> onnx.ModelProto:
    """A layer whose recurrent weights are computed: from an initializer, by a node before it."""
    rng = np.random.default_rng(4)
    dirs = 2 if attributes.get("direction") == "bidirectional" else 1
    shapes = {"w": (dirs, gates * HIDDEN, FEATURES), "half": (dirs, gates * HIDDEN, HIDDEN),
              "b": (dirs, 2 * gates * HIDDEN)}
    weights = [from_array(rng.uniform(-0.5, 0.5, s).astype(np.float32), n)
               for n, s in shapes.items()]
    nodes = [make_node("Add", ["half", "half"], ["r"]),
             make_node(kind, ["x", "w", "r", "b"], ["y", "h"], hidden_size=HIDDEN, **attributes)]
    graph = make_graph(
        nodes, kind, [make_tensor_value_info("x", TensorProto.FLOAT, [steps, 2, FEATURES])],
        [make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "h")], weights)
    return make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=8)


def source(model: onnx.ModelProto) -> MemoryModel:
    return MemoryModel("model.onnx", model.SerializeToString())


@each_layer
def test_results(kind: str, gates: int, attributes: dict[str, Any]) -> None:
    for steps in (2, 16, 17, 40):
        model = layer(kind, gates, attributes, steps)
        x = np.random.default_rng(steps).standard_normal((steps, 2, FEATURES)).astype(np.float32)
        got = run_imported(load_model(source(model)), {"x": x})
        assert_close(got, run_reference(model, {"x": x}), 1e-5)


def test_narrow_floats_are_rounded_once() -> None:
    """The f16 results of 40 steps are those of f32, rounded."""
    wide = layer("LSTM", 4, {}, 40)
    narrow = onnx.ModelProto.FromString(wide.SerializeToString())
    for tensor in narrow.graph.initializer:
        tensor.CopyFrom(from_array(to_array(tensor).astype(np.float16), tensor.name))
    for tensor, same in zip(narrow.graph.initializer, wide.graph.initializer, strict=True):
        same.CopyFrom(from_array(to_array(tensor).astype(np.float32), tensor.name))
    for value in (*narrow.graph.input, *narrow.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    x = np.random.default_rng(0).standard_normal((40, 2, FEATURES)).astype(np.float16)
    got = run_imported(load_model(source(narrow)), {"x": x})
    expected = run_imported(load_model(source(wide)), {"x": x.astype(np.float32)})
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b.astype(np.float16))


@each_layer
def test_code_does_not_grow_with_the_sequence(
    kind: str, gates: int, attributes: dict[str, Any]
) -> None:
    lines = [format_module(load_model(source(layer(kind, gates, attributes, steps))).module)
             .count("\n") for steps in (40, 4000)]
    assert lines[0] == lines[1] < 200


@each_layer
def test_weights_are_the_loops_own(kind: str, gates: int, attributes: dict[str, Any]) -> None:
    """Otherwise they could be neither transposed nor packed before a run."""
    compiler = Compiler(source(layer(kind, gates, attributes, 40)), CompileOptions())
    text = lower_to_text(compiler, "host", False)
    loops = re.findall(r"strata\.loop .* with\((.*?)\)", text)
    assert loops and all("," not in inputs for inputs in loops)
