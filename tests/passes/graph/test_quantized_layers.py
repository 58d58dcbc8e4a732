"""Layers whose weights are quantized become one function, although their integers differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import compiler
from dialects.strata.types import Array
from passes.graph import call_layers, inline_layers

LAYERS, WIDTH, ROWS = 6, 32, 4


class Layers:
    """Gated layers with residual connections, whose products have quantized weights."""

    def __init__(self, kind: str):
        self.kind, self.random = kind, np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def op(self, kind: str, inputs: list[str], name: str, **more: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **more))
        return name

    def weight(self, name: str, array: Array) -> str:
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def product(self, x: str, rows: int, columns: int, name: str) -> str:
        """A product with other weights and scales in each layer."""
        w = self.random.integers(-127, 128, (rows, columns)).astype(np.int8)
        scale = (self.random.random(columns if self.kind == "channels" else ()) * 0.004 + 0.001)
        given = [self.weight(f"{name}.w", w), self.weight(f"{name}.s", np.float32(scale)[()])]
        if self.kind == "channels":
            return self.op("MatMul", [x, self.op(
                "DequantizeLinear", given, f"{name}.d", axis=1)], name)
        parts = [f"{name}.x", f"{name}.xs", f"{name}.xz"]
        self.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], parts))
        total = self.op("MatMulInteger", [parts[0], given[0], parts[2]], f"{name}.i")
        both = self.op("Mul", [parts[1], given[1]], f"{name}.ss")
        return self.op("Mul", [self.op("Cast", [total], f"{name}.c", to=T.FLOAT), both], name)

    def model(self) -> onnx.ModelProto:
        x = "x"
        for k in range(LAYERS):
            norm = self.op("LayerNormalization", [x, self.weight(
                f"{k}.g", self.random.random(WIDTH, np.float32))], f"{k}.norm")
            gate = self.op("Gelu", [self.product(norm, WIDTH, 48, f"{k}.gate")], f"{k}.gelu")
            both = self.op("Mul", [gate, self.product(norm, WIDTH, 48, f"{k}.up")], f"{k}.both")
            x = self.op("Add", [x, self.product(both, 48, WIDTH, f"{k}.down")], f"{k}.out")
        ends = [helper.make_tensor_value_info(n, T.FLOAT, [ROWS, WIDTH]) for n in ("x", x)]
        graph = helper.make_graph(self.nodes, "layers", ends[:1], ends[1:], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("kind", ["dynamic", "channels"])
def test_quantized_layers_are_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They compute what they compute apart, in as many launches."""
    model, x = Layers(kind).model(), np.random.default_rng(1).random((ROWS, WIDTH), np.float32)
    options = {"target": "cpu", "cache": "off", "tuned": "off"}
    kept: list[bool] = []
    asked = inline_layers._is_worth_calling

    def is_worth_calling(*arguments: Any) -> bool:
        kept.append(asked(*arguments))
        return kept[-1]

    monkeypatch.setattr(inline_layers, "_is_worth_calling", is_worth_calling)
    shared = compiler.compile(model, **options)
    assert kept == [True]
    monkeypatch.setattr(call_layers.GraphCallLayers, "run", lambda *_: None)
    apart = compiler.compile(model, **options)
    launches = [e.text("host").count("host.launch") for e in (shared, apart)]
    assert launches[0] == launches[1]
    np.testing.assert_allclose(shared(x=x)[0], apart(x=x)[0], rtol=2e-5, atol=2e-5)
