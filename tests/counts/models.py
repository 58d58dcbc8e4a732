"""Ten small models, each with something that others lack. Their weights are the same every time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto

from tests.counts.count import Subject
from tests.models import tiny_bert, tiny_cnn, tiny_lstm
from tests.models.onnx_graph import OnnxGraph
from tests.models.quantized import SCALES, U8, QuantizedGraph


def transformer() -> Subject:
    """Open sizes, masks, sizes computed from shapes."""
    return Subject("transformer", tiny_bert.make_model({}), tiny_bert.CASES[0])


def cnn() -> Subject:
    """Full and depthwise convolutions, pools, a residual."""
    return Subject("cnn", tiny_cnn.make_model(tiny_cnn.CASES[0]))


def lstm() -> Subject:
    """Two directions, of six steps each, for a batch of any size."""
    return Subject("lstm", tiny_lstm.make_model(tiny_lstm.OPEN), {"batch": 2})


def quantized() -> Subject:
    """Products of bytes: a convolution with a scale per channel, pools, a product."""
    g = QuantizedGraph({})
    w = g.weight(4, 4, 3, 3, scale=SCALES, axis=0)
    y = g.node("Conv", g.x("x", ("n", 4, 12, 18), U8), w, g.bias(SCALES), pads=[1, 1, 1, 1])
    y = g.dequantize(g.quantize(g.node("Relu", y), 0.09, U8), 0.09, U8)
    y = g.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = g.node("Reshape", g.node("Transpose", y, perm=[0, 2, 3, 1]), g.integers(0, -1, 36))
    y = g.node("MatMul", y, g.weight(36, 24))
    return Subject("quantized", g.finish(g.quantize(y, 0.2, U8)), {"n": 2})


def halves() -> Subject:
    """Layers of f16, whose sums are f32."""
    g, half = OnnxGraph({}), np.float16
    y = g.input("x", half, ["n", 64])
    for inputs, outputs in ((64, 128), (128, 64)):
        w = g.constant(g.random.standard_normal((inputs, outputs)) / 8, half)
        shift, scale, bias = (g.constant(g.random.standard_normal(outputs), half)
                              for _ in range(3))
        y = g.node("Add", g.node("MatMul", y, w), shift)
        y = g.node("LayerNormalization", g.node("Sigmoid", y), scale, bias)
    return Subject("halves", g.model({"y": g.node("Cast", y, to=TensorProto.FLOAT)}), {"n": 32})


def experts() -> Subject:
    """A mixture of experts: each token takes the best two of four, whose weights are gathered."""
    g = OnnxGraph({})
    x = g.input("x", np.float32, ["tokens", 32])
    scores = g.node("Softmax", g.node("MatMul", x, g.random_weight(32, 4)), axis=-1)
    best = g.node("TopK", scores, g.integers(2), axis=-1)
    g.nodes[-1].output.append("chosen")
    rows = g.node("Unsqueeze", g.node("Unsqueeze", x, g.integers(1)), g.integers(1))
    up, down = (g.node("Gather", g.random_weight(4, *shape), "chosen", axis=0)
                for shape in ((32, 64), (64, 32)))
    inner = g.node("Relu", g.node("MatMul", rows, up))
    each = g.node("Squeeze", g.node("MatMul", inner, down), g.integers(2))
    weighted = g.node("Mul", each, g.node("Unsqueeze", best, g.integers(-1)))
    return Subject("experts", g.model({"y": g.node(
        "ReduceSum", weighted, g.integers(1), keepdims=0)}), {"tokens": 8})


def attention() -> Subject:
    """Causal attention, of more heads than there are of keys."""
    g = OnnxGraph({})
    q = g.input("q", np.float32, [2, 4, 64, 32])
    keys, values = (g.input(name, np.float32, [2, 2, 64, 32]) for name in "kv")
    wide = g.integers(2, 2, 2, 64, 32)
    k, v = (g.node("Reshape", g.node("Expand", g.node("Unsqueeze", x, g.integers(2)), wide),
                   g.integers(2, 4, 64, 32)) for x in (keys, values))
    scores = g.node("MatMul", q, g.node("Transpose", k, perm=[0, 1, 3, 2]))
    mask = g.constant(np.where(np.tri(64), 0, -np.inf))
    scores = g.node("Add", g.node("Mul", scores, g.constant(32 ** -0.5)), mask)
    mixed = g.node("MatMul", g.node("Softmax", scores, axis=-1), v)
    return Subject("attention", g.model({"y": mixed}))


def upsampling() -> Subject:
    """A decoder: transposed convolutions, linear interpolation, skips."""
    g = OnnxGraph({})
    x = g.input("x", np.float32, ["n", 8, 12, 20])
    down = g.node("Relu", _conv(g, x, 8, 16, 3, strides=[2, 2], pads=[1] * 4))
    up = g.node("ConvTranspose", down, g.random_weight(16, 8, 2, 2), strides=[2, 2])
    both = _conv(g, g.node("Concat", up, x, axis=1), 16, 8, 3, pads=[1] * 4)
    wide = g.node("Resize", g.node("Relu", both), "", g.constant([1, 1, 2, 2]), mode="linear")
    last = g.node("ConvTranspose", wide, g.random_weight(8, 3, 4, 4), strides=[2, 2], pads=[1] * 4)
    return Subject("upsampling", g.model({"y": g.node("Tanh", last)}), {"n": 1})


def groups() -> Subject:
    """Convolutions in groups, squeeze and excitation, group norm written out."""
    g = OnnxGraph({})
    x = g.input("x", np.float32, [1, 32, 14, 14])
    y = g.node("Relu", _conv(g, x, 32, 32, 3, group=8, pads=[1] * 4))
    mean = g.node("GlobalAveragePool", y)
    gate = g.node("Sigmoid", _conv(g, g.node("Relu", _conv(g, mean, 32, 8, 1)), 8, 32, 1))
    y = g.node("Add", x, g.node("Mul", y, gate))
    flat = g.node("Reshape", y, g.integers(1, 4, -1))
    normal = g.node("InstanceNormalization", flat, g.constant(np.ones(4)), g.constant(np.zeros(4)))
    back = g.node("Reshape", normal, g.integers(1, 32, 14, 14))
    return Subject("groups", g.model({"y": _conv(g, back, 32, 32, 3, group=32, pads=[1] * 4)}))


def control() -> Subject:
    """A loop of as many turns as an input says, with a branch after it, on tensors of open sizes.
    """
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 24] x, int64 count, bool normal) => (y) {
            go = Constant<value = bool {1}>()
            half = Constant<value = float {0.5}>()
            last = Loop(count, go, x) <body = b (int64 i, bool c, float[n, 24] state) => (d, next) {
                d = Identity(c)
                small = Mul(state, half)
                next = Tanh(small)
            }>
            y = If(normal) <then_branch = t () => (a) { a = Softmax(last) },
                            else_branch = e () => (b) {
                                sums = ReduceSum<keepdims = 1>(last)
                                b = Add(last, sums)
                            }>
        }""")
    return Subject("control", model, {"n": 8})


def _conv(
    g: OnnxGraph, x: str, inputs: int, outputs: int, kernel: int, group: int = 1,
    **window: list[int],
) -> str:
    shape = outputs, inputs // group, kernel, kernel
    weight = g.random_weight(*shape, scale=float(np.prod(shape[1:])) ** -0.5)
    return g.node("Conv", x, weight, g.random_weight(outputs, scale=0.1), group=group, **window)


MODELS: tuple[Callable[[], Subject], ...] = (
    transformer, cnn, lstm, quantized, halves, experts, attention, upsampling, groups, control)
