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

    def __init__(self, kind: str, count: int = LAYERS):
        self.kind, self.count, self.random = kind, count, np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def op(self, kind: str, inputs: list[str], name: str, **more: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **more))
        return name

    def weight(self, name: str, array: Array) -> str:
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def rounded(self, x: str, name: str) -> str:
        """A tensor of eight bits with a scale and a zero point of its own."""
        given = [self.weight(f"{name}.s", np.float32(self.random.random() / 50 + 0.01)),
                 self.weight(f"{name}.z", np.uint8(self.random.integers(100, 156)))]
        codes = self.op("QuantizeLinear", [x, *given], f"{name}.q")
        return self.op("DequantizeLinear", [codes, *given], f"{name}.d")

    def product(self, x: str, rows: int, columns: int, name: str) -> str:
        """A product with other weights and scales in each layer."""
        w = self.random.integers(-127, 128, (rows, columns)).astype(np.int8)
        scale = (self.random.random(columns if self.kind == "channels" else ()) * 0.004 + 0.001)
        given = [self.weight(f"{name}.w", w), self.weight(f"{name}.s", np.float32(scale)[()])]
        if self.kind == "static":
            inner = [self.rounded(x, f"{name}.in"), self.op("DequantizeLinear", given, f"{name}.d")]
            return self.rounded(self.op("MatMul", inner, name), f"{name}.out")
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
        for k in range(self.count):
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


def test_layers_of_static_quantization_are_one() -> None:
    """Scales and zero points are other numbers in each layer; more layers make no more kernels."""
    options = {"target": "cpu", "cache": "off", "tuned": "off"}
    x, kernels = np.random.default_rng(1).random((ROWS, WIDTH), np.float32), list[int]()
    for count in (6, 12):
        model = Layers("static", count).model()
        shared = compiler.compile(model, **options)
        apart = compiler.compile(model, without_groups=["share"], **options)
        np.testing.assert_array_equal(shared(x=x)[0], apart(x=x)[0])
        kernels.append(shared.text("block").count("block.kernel"))
    assert kernels[0] == kernels[1]
