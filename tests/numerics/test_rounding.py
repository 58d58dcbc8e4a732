"""What `verify` grants for rounding: little where a model is tame, much where it cancels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler.frontend import load_model
from compiler.instrument.rounding import Rounding
from targets.reference.interpret import interpret
from tests.models.onnx_graph import OnnxGraph

Body = Callable[[OnnxGraph, str], str]


def tame(g: OnnxGraph, x: str) -> str:
    return g.node("Tanh", g.node("MatMul", x, g.random_weight(64, 64)))


def cancelling(g: OnnxGraph, x: str) -> str:
    """E[x^2] - E[x]^2 of numbers that hardly differ."""
    squares = g.node("ReduceMean", g.node("Mul", x, x), axes=[-1])
    mean = g.node("ReduceMean", x, axes=[-1])
    return g.node("Sub", squares, g.node("Mul", mean, mean))


@pytest.mark.parametrize(("body", "low", "high"), [(tame, 0.0, 1e-5), (cancelling, 1e-2, np.inf)])
def test_effect(tmp_path: Path, body: Body, low: float, high: float) -> None:
    g = OnnxGraph({})
    onnx.save(g.model({"y": body(g, g.input("x", np.float32, ["n", 64]))}), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    x = (10 + 0.01 * np.random.default_rng(0).standard_normal((4, 64))).astype(np.float32)
    expected = interpret(model.module, model.weights, [x])
    assert low <= Rounding(model.module, model.weights, [x], expected).effect() <= high
