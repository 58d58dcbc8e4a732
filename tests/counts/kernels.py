"""Models of one operator or a few, at sizes that fill vectors and tiles: mostly one kernel each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.counts.count import Subject
from tests.models.onnx_graph import OnnxGraph


def _x(g: OnnxGraph, *shape: int | str) -> str:
    return g.input("x", np.float32, shape)


def product(g: OnnxGraph) -> str:
    return g.node("Relu", g.node("MatMul", _x(g, 128, 256), g.random_weight(256, 192)))


def open_product(g: OnnxGraph) -> str:
    return g.node("MatMul", _x(g, "n", 100), g.random_weight(100, 72))


def half_product(g: OnnxGraph) -> str:
    x, w = g.input("x", np.float16, (128, 256)), g.input("w", np.float16, (256, 192))
    return g.node("Cast", g.node("MatMul", x, w), to=TensorProto.FLOAT)


def softmax(g: OnnxGraph) -> str:
    return g.node("Softmax", _x(g, "n", 1000), axis=-1)


def layer_norm(g: OnnxGraph) -> str:
    return g.node("LayerNormalization", _x(g, "n", 768), g.random_weight(768), g.random_weight(768))


def gelu(g: OnnxGraph) -> str:
    x = _x(g, "n", 300)
    share = g.node("Erf", g.node("Mul", x, g.constant(0.5 ** 0.5)))
    return g.node("Mul", x, g.node("Add", share, g.constant(1.0)))


def convolution(g: OnnxGraph) -> str:
    return g.node("Conv", _x(g, 1, 32, 28, 28), g.random_weight(64, 32, 3, 3), pads=[1] * 4)


def depthwise(g: OnnxGraph) -> str:
    return g.node("Conv", _x(g, 1, 32, 28, 28), g.random_weight(32, 1, 3, 3), pads=[1] * 4,
                  group=32)


def pool(g: OnnxGraph) -> str:
    window: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    return g.node("MaxPool", _x(g, 1, 32, 28, 28), **window)


def transpose(g: OnnxGraph) -> str:
    return g.node("Transpose", _x(g, "n", 64, 96), perm=[0, 2, 1])


def gather(g: OnnxGraph) -> str:
    ids = g.input("ids", np.int64, ["n"])
    return g.node("Gather", g.random_weight(100, 64), ids)


def sums(g: OnnxGraph) -> str:
    return g.node("ReduceSum", _x(g, "n", 40, 48), g.integers(1), keepdims=0)


def _subject(build: Callable[[OnnxGraph], str]) -> Callable[[], Subject]:
    def make() -> Subject:
        g = OnnxGraph({})
        return Subject(build.__name__.replace("_", " "), g.model({"y": build(g)}), {"n": 64})

    return make


KERNELS: tuple[Callable[[], Subject], ...] = tuple(map(_subject, (
    product, open_product, half_product, softmax, layer_norm, gelu, convolution, depthwise, pool,
    transpose, gather, sums)))
