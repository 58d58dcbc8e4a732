"""Programs with an open size beside programs for each size: their predicted times on an H100.

A count is the time of the program for all sizes, in thousandths of that of the program for a size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto

from dialects.symbolic.symbol import Symbol
from targets.cuda.prediction import predict
from targets.cuda.prediction.time import total
from tests.counts.count import SM_90, Counts, Subject, lowered
from tests.counts.predicted import H100, PAD, Kernel, half, known, single
from tests.models.onnx_graph import OnnxGraph

Size = int | str
Build = Callable[[OnnxGraph, Any], str]
SIZES = 1, 17, 128, 1000, 4096


@dataclass(frozen=True)
class Open:
    """What is computed for a size `n`."""

    build: Build
    single: bool = False

    def model(self, n: Size) -> ModelProto:
        return Kernel("open", lambda g: self.build(g, n), self.single).model()


def rows(width: int, inner: int) -> Build:
    return lambda g, n: g.node("MatMul", half(g, "x", n, inner), known(g, inner, width))


def perceptron(g: OnnxGraph, n: Any) -> str:
    y = g.node("Relu", g.node("Add", g.node("MatMul", half(g, "x", n, 768), known(g, 768, 3072)),
                              known(g, 3072)))
    y = g.node("Add", g.node("MatMul", y, known(g, 3072, 768)), known(g, 768))
    return g.node("LayerNormalization", g.node("Add", y, "x"), known(g, 768), known(g, 768))


def batched(g: OnnxGraph, n: Any) -> str:
    return g.node("MatMul", half(g, "a", n, 128, 64), half(g, "b", n, 64, 128))


def convolved(channels: int, side: int) -> Build:
    return lambda g, n: g.node("Relu", g.node(
        "Conv", half(g, "x", n, channels, side, side), known(g, channels, channels, 3, 3),
        pads=PAD))


def attention(g: OnnxGraph, n: Any) -> str:
    q, k, v = (half(g, name, 24, n, 64) for name in "qkv")
    scores = g.node("MatMul", q, g.node("Transpose", k, perm=[0, 2, 1]))
    scores = g.node("Mul", scores, g.constant(0.125, np.float16))
    return g.node("MatMul", g.node("Softmax", scores, axis=-1), v)


def normalized(g: OnnxGraph, n: Any) -> str:
    return g.node("LayerNormalization", half(g, "x", n, 768), known(g, 768), known(g, 768))


def softmax(g: OnnxGraph, n: Any) -> str:
    return g.node("Softmax", half(g, "x", n, 1000), axis=-1)


def gelu(g: OnnxGraph, n: Any) -> str:
    x = half(g, "x", n, 3072)
    share = g.node("Erf", g.node("Mul", x, g.constant(0.5 ** 0.5, np.float16)))
    return g.node("Mul", x, g.node("Add", share, g.constant(1.0, np.float16)))


def summed(g: OnnxGraph, n: Any) -> str:
    return g.node("ReduceSum", half(g, "x", n, 1024), g.integers(0), keepdims=0)


def single_rows(g: OnnxGraph, n: Any) -> str:
    return g.node("MatMul", single(g, "x", n, 512), single(g, "w", 512, 512))


OPEN: Mapping[str, Open] = {
    "product n x 768 x 768": Open(rows(768, 768)),
    "product n x 4096 x 4096": Open(rows(4096, 4096)),
    "perceptron of n rows": Open(perceptron), "n products 128 x 128 x 64": Open(batched),
    "f32 product n x 512 x 512": Open(single_rows, single=True),
    "3x3 of n images 56 x 56": Open(convolved(64, 56)),
    "3x3 of n images 14 x 14": Open(convolved(256, 14)),
    "attention of n tokens": Open(attention),
    "layer norm of n rows": Open(normalized), "softmax of n rows": Open(softmax),
    "GELU of n rows": Open(gelu), "sum of n rows": Open(summed)}


def relative_times() -> dict[str, Counts]:
    """For each program, the count at each of its sizes."""
    return {name: _times(program) for name, program in OPEN.items()}


def _times(program: Open) -> Counts:
    general = lowered(Subject("open", program.model("n")), SM_90)[1].module
    found: Counts = {}
    for n in SIZES:
        own = lowered(Subject("static", program.model(n)), SM_90)[1].module
        times = [total(predict(module, H100, {Symbol.size("n"): n}), H100)
                 for module in (own, general)]
        found[f"n = {n}"] = round(1000 * times[1] / times[0])
    return found
