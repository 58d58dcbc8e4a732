"""A small network of convolutions (full, depthwise, transposed), a residual, pools and a resize."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from tests.models.onnx_graph import Array, OnnxGraph, Sizes

OPEN: Sizes = {}
"""The sizes that are fixed where the others stay open."""
CASES: tuple[Sizes, ...] = ({"batch": 1, "height": 32, "width": 24},
                            {"batch": 2, "height": 16, "width": 40})


def make_model(sizes: Sizes) -> onnx.ModelProto:
    """x: f32[batch, 3, height, width] -> map [batch, 4, height, width], classes [batch, 10]."""
    g = OnnxGraph(sizes)
    x = g.input("x", np.float32, ["batch", 3, "height", "width"])
    stem = g.node("Relu", _conv(g, x, 3, 16, 3, strides=[2, 2], pads=[1, 1, 1, 1]))
    deep = g.node("HardSwish", _norm(g, _conv(g, stem, 16, 16, 3, group=16, pads=[1] * 4), 16))
    block = g.node("Add", stem, _conv(g, deep, 16, 16, 1))
    small = g.node("Concat",
                   g.node("MaxPool", block, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
                   g.node("AveragePool", block, kernel_shape=[2, 2], strides=[2, 2]), axis=1)
    wide = g.node("Resize", _conv(g, small, 32, 12, 1), "", g.constant([1, 1, 2, 2]),
                  mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric")
    both = g.node("Concat", wide, block, axis=1)
    up = g.node("ConvTranspose", both, g.random_weight(28, 4, 2, 2), strides=[2, 2])
    mean = g.node("Flatten", g.node("GlobalAveragePool", small))
    scores = g.node("Gemm", mean, g.random_weight(32, 10), g.random_weight(10, scale=0.1))
    return g.model({"map": g.node("Sigmoid", up), "classes": g.node("Softmax", scores, axis=1)})


def make_inputs(sizes: Sizes) -> dict[str, Array]:
    shape = sizes["batch"], 3, sizes["height"], sizes["width"]
    return {"x": np.random.default_rng(1).standard_normal(shape, np.float32)}


def _conv(
    g: OnnxGraph, x: str, inputs: int, outputs: int, kernel: int, group: int = 1, **window: Any
) -> str:
    shape = outputs, inputs // group, kernel, kernel
    weight = g.random_weight(*shape, scale=float(np.prod(shape[1:])) ** -0.5)
    return g.node("Conv", x, weight, g.random_weight(outputs, scale=0.1), group=group, **window)


def _norm(g: OnnxGraph, x: str, channels: int) -> str:
    scale, variance = (g.constant(0.5 + g.random.random(channels)) for _ in range(2))
    shift, mean = (g.random_weight(channels, scale=0.1) for _ in range(2))
    return g.node("BatchNormalization", x, scale, shift, mean, variance)
