"""Kernels of all families, at sizes that occur, whose times on an H100 are predicted.

Their predictions are in `table.md`. They depend only on the text of the kernels and the facts of
the machine, so that a change which slows CUDA down is seen where nobody has a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

from dialects.block import DotOp
from targets.cuda.machine import MACHINES
from targets.cuda.prediction import predict
from targets.cuda.prediction.time import total
from tests.counts.count import SM_90, Counts, Subject, lowered
from tests.models.onnx_graph import OnnxGraph

H100 = replace(MACHINES["sm_90"], name="H100", bandwidth=3350)
"""An H100 SXM, whose memory is slower than the H200's (data sheet)."""
Build = Callable[[OnnxGraph], str]


@dataclass(frozen=True)
class Kernel:
    """A model that computes `build`, in halves unless `single`."""

    name: str
    build: Build
    single: bool = False

    def model(self) -> ModelProto:
        g = OnnxGraph({})
        result = self.build(g)
        model = g.model({"y": result})
        element = TensorProto.FLOAT if self.single else TensorProto.FLOAT16
        del model.graph.output[:]
        model.graph.output.append(helper.make_tensor_value_info("y", element, None))
        return model


def half(g: OnnxGraph, name: str, *shape: int) -> str:
    return g.input(name, np.float16, shape)


def single(g: OnnxGraph, name: str, *shape: int) -> str:
    return g.input(name, np.float32, shape)


def known(g: OnnxGraph, *shape: int) -> str:
    return g.constant(g.random.standard_normal(shape, np.float32) * 0.05, np.float16)


# ---------------------------------------------------------------------- products
def product(m: int, n: int, k: int) -> Build:
    return lambda g: g.node("MatMul", half(g, "a", m, k), half(g, "b", k, n))


def single_product(m: int, n: int, k: int) -> Build:
    return lambda g: g.node("MatMul", single(g, "a", m, k), single(g, "b", k, n))


def batched(b: int, m: int, n: int, k: int) -> Build:
    return lambda g: g.node("MatMul", half(g, "a", b, m, k), half(g, "b", b, k, n))


def linear(m: int, n: int, k: int) -> Build:
    def build(g: OnnxGraph) -> str:
        y = g.node("Add", g.node("MatMul", half(g, "x", m, k), known(g, k, n)), known(g, n))
        return g.node("Relu", y)
    return build


PRODUCTS: Mapping[str, Build] = {
    "product 4096x4096x4096": product(4096, 4096, 4096),
    "product 1000x1000x1000": product(1000, 1000, 1000),
    "product 197x768x3072": product(197, 768, 3072),
    "product 16x4096x4096": product(16, 4096, 4096),
    "product 1x4096x4096": product(1, 4096, 4096),
    "product 1536x1536x6144": product(1536, 1536, 6144),
    "batched 96x197x197x64": batched(96, 197, 197, 64),
    "batched 16x512x512x64": batched(16, 512, 512, 64),
    "linear 2048x1024x1024": linear(2048, 1024, 1024)}


# ---------------------------------------------------------------------- convolutions
def convolution(
    op: str, x: tuple[int, ...], w: tuple[int, ...], *, constant: bool = False,
    last: bool = True, **attributes: Any,
) -> Build:
    """`x`: [n, c, h, w], which lies with channels last where `last` says so; `w` likewise."""
    def build(g: OnnxGraph) -> str:
        data = half(g, "x", *(x[k] for k in (0, 2, 3, 1))) if last else half(g, "x", *x)
        data = g.node("Transpose", data, perm=[0, 3, 1, 2]) if last else data
        y = g.node(op, data, known(g, *w) if constant else half(g, "w", *w), **attributes)
        return g.node("Transpose", y, perm=[0, 2, 3, 1]) if last else y
    return build


def both(
    name: str, op: str, x: tuple[int, ...], w: tuple[int, ...], **attributes: Any
) -> Iterator[tuple[str, Build]]:
    for kind in ("argument", "constant"):
        yield f"{name}, {kind}", convolution(op, x, w, constant=kind == "constant", **attributes)


PAD = [1] * 4
IMAGE = (32, 64, 56, 56)
CONVOLUTIONS: Mapping[str, Build] = {
    **dict(both("1x1", "Conv", (32, 256, 56, 56), (64, 256, 1, 1))),
    **dict(both("3x3", "Conv", IMAGE, (64, 64, 3, 3), pads=PAD)),
    **dict(both("3x3 stride 2", "Conv", IMAGE, (128, 64, 3, 3), pads=PAD, strides=[2, 2])),
    **dict(both("3x3 dilated", "Conv", IMAGE, (64, 64, 3, 3), pads=[2] * 4, dilations=[2, 2])),
    **dict(both("7x7 stem", "Conv", (32, 3, 224, 224), (64, 3, 7, 7), pads=[3] * 4,
                strides=[2, 2])),
    "3x3 channels first": convolution("Conv", IMAGE, (64, 64, 3, 3), last=False, pads=PAD),
    "3x3 depthwise": convolution("Conv", (32, 144, 56, 56), (144, 1, 3, 3), constant=True,
                                 pads=PAD, group=144),
    "3x3 32 groups": convolution("Conv", (32, 128, 56, 56), (128, 4, 3, 3), constant=True,
                                 pads=PAD, group=32),
    **dict(both("transposed 4x4 stride 2", "ConvTranspose", (32, 128, 28, 28), (128, 64, 4, 4),
                pads=PAD, strides=[2, 2])),
    **dict(both("transposed 3x3 stride 2", "ConvTranspose", (32, 128, 28, 28), (128, 64, 3, 3),
                pads=PAD, strides=[2, 2], output_padding=[1, 1])),
    **dict(both("transposed 2x2 stride 2", "ConvTranspose", (32, 128, 28, 28), (128, 64, 2, 2),
                strides=[2, 2])),
    "transposed 4x4 channels first": convolution(
        "ConvTranspose", (32, 128, 28, 28), (128, 64, 4, 4), last=False, pads=PAD,
        strides=[2, 2])}


# ---------------------------------------------------------------------- attention
def attention(heads: int, queries: int, keys: int, size: int, mask: str = "") -> Build:
    """`mask`: causal, window (as a constant), or an input."""
    def build(g: OnnxGraph) -> str:
        q, k, v = half(g, "q", heads, queries, size), half(g, "k", heads, keys, size), half(
            g, "v", heads, keys, size)
        scores = g.node("MatMul", q, g.node("Transpose", k, perm=[0, 2, 1]))
        scores = g.node("Mul", scores, g.constant(size ** -0.5, np.float16))
        if mask == "input":
            scores = g.node("Add", scores, half(g, "mask", queries, keys))
        elif mask:
            i, j = np.arange(queries)[:, None], np.arange(keys)
            seen = (j <= i) & ((i - j < 256) if mask == "window" else True)
            scores = g.node("Where", g.constant(seen, np.bool_), scores,
                            g.constant(-65504, np.float16))
        return g.node("MatMul", g.node("Softmax", scores, axis=-1), v)
    return build


ATTENTION: Mapping[str, Build] = {
    "attention 64x1024 head 64": attention(64, 1024, 1024, 64),
    "attention 64x1024 head 80": attention(64, 1024, 1024, 80),
    "attention 64x1024 head 128": attention(64, 1024, 1024, 128),
    "attention causal": attention(64, 1024, 1024, 64, "causal"),
    "attention window of 256": attention(64, 1024, 1024, 64, "window"),
    "attention masked": attention(64, 1024, 1024, 64, "input"),
    "attention decode": attention(256, 1, 2048, 128)}


# ---------------------------------------------------------------------- rows and columns
def reduced(op: str, axis: int, *shape: int) -> Build:
    if op == "ReduceSum":
        return lambda g: g.node(op, half(g, "x", *shape), g.integers(axis), keepdims=0)
    return lambda g: g.node(op, half(g, "x", *shape), axes=[axis], keepdims=0)


def along(op: str, axis: int, *shape: int) -> Build:
    return lambda g: g.node(op, half(g, "x", *shape), axis=axis)


def layer_norm(rows: int, columns: int) -> Build:
    return lambda g: g.node("LayerNormalization", half(g, "x", rows, columns), known(g, columns),
                            known(g, columns))


def batch_norm_statistics(g: OnnxGraph) -> str:
    x = half(g, "x", 32, 56, 56, 64)
    mean = g.node("ReduceMean", x, axes=[0, 1, 2], keepdims=1)
    apart = g.node("Sub", x, mean)
    variance = g.node("ReduceMean", g.node("Mul", apart, apart), axes=[0, 1, 2], keepdims=1)
    return g.node("Div", apart, g.node("Sqrt", variance))


def running(axis: int, *shape: int) -> Build:
    return lambda g: g.node("CumSum", single(g, "x", *shape), g.constant(axis, np.int64))


ROWS: Mapping[str, Build] = {
    "softmax rows 8192x4096": along("Softmax", -1, 8192, 4096),
    "softmax columns 8192x4096": along("Softmax", 0, 8192, 4096),
    "softmax 4096x50257": along("Softmax", -1, 4096, 50257),
    "layer norm 8192x4096": layer_norm(8192, 4096),
    "sum of rows 8192x4096": reduced("ReduceSum", 1, 8192, 4096),
    "sum of columns 8192x4096": reduced("ReduceSum", 0, 8192, 4096),
    "sum of the middle 64x512x1024": reduced("ReduceSum", 1, 64, 512, 1024),
    "batch norm": batch_norm_statistics}
SCANS: Mapping[str, Build] = {
    "running sum of rows": running(1, 8192, 4096), "running sum of columns": running(
        0, 8192, 4096)}


# ---------------------------------------------------------------------- order, places, layout
def top_k(rows: int, columns: int, k: int) -> Build:
    def build(g: OnnxGraph) -> str:
        node = helper.make_node("TopK", [half(g, "x", rows, columns), g.integers(k)],
                                ["largest", "places"], name="TopK", axis=-1)
        g.nodes.append(node)
        return "largest"
    return build


def gathered(g: OnnxGraph) -> str:
    return g.node("Gather", half(g, "x", 32000, 1024), g.input("i", np.int64, [8192]))


def scattered(g: OnnxGraph) -> str:
    return g.node("ScatterElements", half(g, "x", 4096, 1024), g.input(
        "i", np.int64, [1024, 1024]), half(g, "u", 1024, 1024), axis=0)


def concatenated(axis: int) -> Build:
    return lambda g: g.node("Concat", half(g, "a", 2048, 1024), half(g, "b", 2048, 1024),
                            axis=axis)


def rotary(g: OnnxGraph) -> str:
    x, turn, shift = half(g, "x", 4, 32, 1024, 128), half(g, "c", 1024, 128), half(
        g, "s", 1024, 128)
    def part(start: int, end: int) -> str:
        return g.node("Slice", x, g.integers(start), g.integers(end), g.integers(3))
    turned = g.node("Concat", g.node("Neg", part(64, 128)), part(0, 64), axis=-1)
    return g.node("Add", g.node("Mul", x, turn), g.node("Mul", turned, shift))


def transposed(perm: list[int], *shape: int) -> Build:
    return lambda g: g.node("Transpose", half(g, "x", *shape), perm=perm)


PLACES: Mapping[str, Build] = {
    "top 50 of 64x32000": top_k(64, 32000, 50), "top 8 of 8192x64": top_k(8192, 64, 8),
    "gather of rows": gathered, "scatter": scattered,
    "concat along rows": concatenated(0), "concat along columns": concatenated(1),
    "rotary embedding": rotary, "transpose 8192x8192": transposed([1, 0], 8192, 8192),
    "channels last to first": transposed([0, 3, 1, 2], 32, 56, 56, 64),
    "heads 8x512x16x64": transposed([0, 2, 1, 3], 8, 512, 16, 64)}


# ---------------------------------------------------------------------- elementwise, losses
def gelu(g: OnnxGraph) -> str:
    x = half(g, "x", 8192, 4096)
    share = g.node("Erf", g.node("Mul", x, g.constant(0.5 ** 0.5, np.float16)))
    return g.node("Mul", x, g.node("Add", share, g.constant(1.0, np.float16)))


def broadcast(g: OnnxGraph) -> str:
    return g.node("Mul", half(g, "x", 64, 512, 1024), half(g, "s", 64, 1, 1024))


def cross_entropy(g: OnnxGraph) -> str:
    x = g.node("LogSoftmax", single(g, "x", 4096, 32000), axis=-1)
    places = g.node("Unsqueeze", g.input("t", np.int64, [4096]), g.integers(1))
    found = g.node("GatherElements", x, places, axis=1)
    return g.node("Neg", g.node("ReduceMean", found, keepdims=0))


def adam(g: OnnxGraph) -> str:
    """The step of one tensor from its gradient and moments, all in single precision."""
    p, d, m, v = (single(g, name, 4096, 4096) for name in "pdmv")
    number = partial(g.constant, dtype=np.float32)
    m = g.node("Add", g.node("Mul", m, number(0.9)), g.node("Mul", d, number(0.1)))
    v = g.node("Add", g.node("Mul", v, number(0.999)), g.node("Mul", g.node("Mul", d, d),
                                                             number(0.001)))
    step = g.node("Div", m, g.node("Add", g.node("Sqrt", v), number(1e-8)))
    return g.node("Sub", g.node("Mul", p, number(0.9999)), g.node("Mul", step, number(1e-3)))


OTHERS: Mapping[str, Build] = {"GELU 8192x4096": gelu, "broadcast along the middle": broadcast}
SINGLE: Mapping[str, Build] = {
    "f32 product 1024x1024x1024": single_product(1024, 1024, 1024), **SCANS,
    "cross entropy 4096x32000": cross_entropy, "Adam 4096x4096": adam}

KERNELS = (*(Kernel(name, build) for family in (
    PRODUCTS, CONVOLUTIONS, ATTENTION, ROWS, PLACES, OTHERS) for name, build in family.items()),
    *(Kernel(name, build, single=True) for name, build in SINGLE.items()))
COLUMNS = ("launches", "KiB", "ns", "products")
TENS = -1
"""Nanoseconds are rounded to tens, so that no rounding of a processor matters."""


def predictions() -> dict[str, Counts]:
    """For each column of the table, the number of every kernel."""
    found: dict[str, Counts] = {column: {} for column in COLUMNS}
    for kernel in KERNELS:
        for column, number in zip(COLUMNS, predicted(kernel), strict=True):
            found[column][kernel.name] = number
    return found


def predicted(kernel: Kernel) -> tuple[int, int, int, int]:
    """Launches, KiB that memory moves, nanoseconds, and dots in the text of the kernels."""
    module = lowered(Subject("kernel", kernel.model()), SM_90)[1].module
    steps = predict(module, H100, {})
    dots = sum(isinstance(op, DotOp) for op in module.walk())
    nanoseconds = round(total(steps, H100) * 1e9, TENS)
    return len(steps), sum(s.bytes for s in steps) >> 10, int(nanoseconds), dots
