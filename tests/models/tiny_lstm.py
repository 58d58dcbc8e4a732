"""A bidirectional LSTM with a projection. Only the reference target takes an open length."""

from __future__ import annotations

import numpy as np
import onnx

from tests.models.onnx_graph import Array, OnnxGraph, Sizes

FEATURES, HIDDEN, CLASSES = 8, 16, 5
OPEN: Sizes = {"seq": 6}
CASES: tuple[Sizes, ...] = ({"seq": 6, "batch": 2}, {"seq": 6, "batch": 5})


def make_model(sizes: Sizes) -> onnx.ModelProto:
    """x: f32[seq, batch, 8] -> y [seq, batch, 5], each row's shares sum to 1."""
    g = OnnxGraph(sizes)
    x = g.input("x", np.float32, ["seq", "batch", FEATURES])
    states = g.node("LSTM", x, g.random_weight(2, 4 * HIDDEN, FEATURES, scale=0.4),
                    g.random_weight(2, 4 * HIDDEN, HIDDEN, scale=0.3),
                    g.random_weight(2, 8 * HIDDEN, scale=0.1),
                    hidden_size=HIDDEN, direction="bidirectional")
    joined = g.node("Reshape", g.node("Transpose", states, perm=[0, 2, 1, 3]),
                    g.integers(0, 0, 2 * HIDDEN))
    scores = g.node("MatMul", joined, g.random_weight(2 * HIDDEN, CLASSES))
    return g.model({"y": g.node("Softmax", scores, axis=-1)})


def make_inputs(sizes: Sizes) -> dict[str, Array]:
    shape = sizes["seq"], sizes["batch"], FEATURES
    return {"x": np.random.default_rng(1).standard_normal(shape, np.float32)}
