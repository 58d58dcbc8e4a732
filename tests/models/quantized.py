"""Small quantized models: integers in, one or a few operators between conversions, integers out.

Weights keep to 7 bits: with more, onnxruntime's kernels saturate on processors without VNNI.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.models.onnx_graph import Array, OnnxGraph

OPSET, IR_VERSION = 19, 9
"""The first that ONNX's own evaluator has the conversions of, and their type inference."""
SCALES = (0.0123, 0.031, 0.0078, 0.0205)
"""One per channel."""


class QuantizedGraph(OnnxGraph):
    """With conversions; `zero` is an array of no dims or a vector, and gives the element type."""

    def dequantize(self, x: str, scale: Any, zero: Array, **attributes: int) -> str:
        return self.node("DequantizeLinear", x, *self._parameters(scale, zero), **attributes)

    def quantize(self, x: str, scale: Any, zero: Array) -> str:
        return self.node("QuantizeLinear", x, *self._parameters(scale, zero))

    def _parameters(self, scale: Any, zero: Array) -> list[str]:
        return [self.constant(scale), self.constant(zero, zero.dtype)]

    def x(self, name: str, shape: Sequence[int | str], zero: Array) -> str:
        """An input of integers, as floats."""
        return self.dequantize(self.input(name, zero.dtype, shape), 0.021, zero)

    def weight(self, *shape: int, scale: Any = 0.0123, zero: int = 0, axis: int | None = None,
               dtype: Any = np.int8) -> str:
        """Integers as floats, with a scale for all or one per index of an axis."""
        return self.dequantize(self.codes(*shape, zero=zero, dtype=dtype), scale,
                               np.full(np.shape(scale), zero, dtype),
                               **({} if axis is None else {"axis": axis}))

    def codes(self, *shape: int, zero: int = 0, dtype: Any = np.int8) -> str:
        return self.constant(self.random.integers(-60, 60, shape) + zero, dtype)

    def bias(self, scales: Sequence[float]) -> str:
        """i32 at the scale of the product, as quantizers write it."""
        scale = np.float32(0.021) * np.asarray(scales, np.float32)
        values = self.constant(self.random.integers(-900, 900, len(scales)), np.int32)
        return self.dequantize(values, scale, np.zeros(len(scales), np.int32), axis=0)

    def finish(self, value: str) -> onnx.ModelProto:
        """The model whose only result is this value, of whatever type."""
        self.nodes.append(helper.make_node("Identity", [value], ["y"]))
        graph = helper.make_graph(self.nodes, "quantized", self.inputs,
                                  [helper.make_empty_tensor_value_info("y")], self.weights)
        opset = [helper.make_opsetid("", OPSET)]
        return onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION))


U8, I8 = np.array(113, np.uint8), np.array(-7, np.int8)
IMAGE: tuple[int | str, ...] = ("n", 4, "h", 9)


@dataclass(frozen=True)
class Model:
    """How to build a model; its inputs at two settings of its open sizes."""

    build: Callable[[QuantizedGraph], str]
    products: bool = True
    """Whether there are products, which become integers."""

    @property
    def name(self) -> str:
        return self.build.__name__

    def make(self) -> onnx.ModelProto:
        graph = QuantizedGraph({})
        return graph.finish(self.build(graph))

    def inputs(self, model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, Array]:
        rng = np.random.default_rng(7)
        return {i.name: _random(i.type.tensor_type, sizes, rng) for i in model.graph.input}


def _random(type_: Any, sizes: Mapping[str, int], rng: np.random.Generator) -> Array:
    shape = [sizes.get(d.dim_param, d.dim_value) for d in type_.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(type_.elem_type)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


# ---------------------------------------------------------------------- products
def conv(g: QuantizedGraph) -> str:
    """Asymmetric x inside pads, a scale per channel, a bias and relu."""
    w = g.weight(4, 4, 3, 3, scale=SCALES, axis=0)
    y = g.node("Conv", g.x("x", IMAGE, U8), w, g.bias(SCALES), pads=[1, 1, 1, 1])
    return g.quantize(g.node("Relu", y), 0.09, np.array(0, np.uint8))


def conv_strided(g: QuantizedGraph) -> str:
    """i8 everywhere, no bias."""
    y = g.node("Conv", g.x("x", IMAGE, I8), g.weight(5, 4, 3, 2), pads=[1, 0, 1, 1],
               strides=[2, 2])
    return g.quantize(y, 0.11, I8)


def conv_depthwise(g: QuantizedGraph) -> str:
    w = g.weight(4, 1, 3, 3, scale=SCALES, axis=0)
    y = g.node("Conv", g.x("x", IMAGE, U8), w, g.bias(SCALES), group=4, pads=[1, 1, 1, 1])
    return g.quantize(y, 0.04, U8)


def gemm(g: QuantizedGraph) -> str:
    """u8 weights with a zero point, transposed, and a bias."""
    w = g.weight(4, 33, scale=0.0123, zero=120, dtype=np.uint8)
    y = g.node("Gemm", g.x("x", ("n", 33), U8), w, g.bias([0.0123] * 4), transB=1)
    return g.quantize(y, 0.07, U8)


def matmul(g: QuantizedGraph) -> str:
    """A scale per column, and a bias of floats behind."""
    w = g.weight(33, 4, scale=SCALES, axis=1)
    y = g.node("MatMul", g.x("x", ("n", "h", 33), U8), w)
    return g.quantize(g.node("Add", y, g.random_weight(4)), 0.07, U8)


def matmul_batched(g: QuantizedGraph) -> str:
    """Neither operand is constant; one is transposed on its way."""
    a, b = g.x("a", (2, "n", 9), U8), g.x("b", (2, "h", 9), I8)
    y = g.node("MatMul", a, g.node("Transpose", b, perm=[0, 2, 1]))
    return g.quantize(y, 0.15, I8)


def chain(g: QuantizedGraph) -> str:
    """Two products with what moves elements in between."""
    y = g.node("Conv", g.x("x", IMAGE, U8), g.weight(6, 4, 1, 1))
    y = g.dequantize(g.quantize(y, 0.1, U8), 0.1, U8)
    y = g.node("MaxPool", y, kernel_shape=[1, 3], strides=[1, 3])
    y = g.node("Reshape", g.node("Transpose", y, perm=[0, 2, 3, 1]), g.integers(0, -1, 18))
    return g.quantize(g.node("MatMul", y, g.weight(18, 4)), 0.2, U8)


# ---------------------------------------------------------------------- everything else
def add(g: QuantizedGraph) -> str:
    y = g.node("Add", g.x("a", IMAGE, U8), g.x("b", IMAGE, U8))
    return g.quantize(y, 0.033, U8)


def pools(g: QuantizedGraph) -> str:
    x = g.x("x", IMAGE, U8)
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    both = [g.node("MaxPool", x, **pool), g.node("AveragePool", x, **pool)]
    return g.quantize(g.node("Concat", *both, axis=1), 0.021, U8)


def resize(g: QuantizedGraph) -> str:
    scales = g.constant([1, 1, 2, 2])
    y = g.node("Resize", g.x("x", IMAGE, U8), "", scales, mode="linear")
    return g.quantize(y, 0.02173, U8)


# ---------------------------------------------------------------------- dynamic quantization
def _dynamic(g: QuantizedGraph, x: str, op_type: str, w: str, **attributes: Any) -> str:
    """A product of integers by the range of its operand, in floats again."""
    outputs = [f"dynamic_{k}" for k in range(3)]
    g.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], outputs))
    zero = g.constant(0, np.int8)
    total = g.node(op_type, outputs[0], w, outputs[2], zero, **attributes)
    scale = g.node("Mul", outputs[1], g.constant(0.0123))
    return g.node("Mul", g.node("Cast", total, to=onnx.TensorProto.FLOAT), scale)


def dynamic_matmul(g: QuantizedGraph) -> str:
    x = g.input("x", np.float32, ("n", "h", 33))
    return g.quantize(_dynamic(g, x, "MatMulInteger", g.codes(33, 4)), 0.07, U8)


def dynamic_conv(g: QuantizedGraph) -> str:
    x = g.input("x", np.float32, IMAGE)
    y = _dynamic(g, x, "ConvInteger", g.codes(6, 2, 3, 3), pads=[1, 1, 0, 1], group=2)
    return g.quantize(y, 0.07, U8)


MODELS = [
    *map(Model, (conv, conv_strided, conv_depthwise, gemm, matmul, matmul_batched, chain,
                 dynamic_matmul, dynamic_conv)),
    *(Model(build, products=False) for build in (add, pools, resize)),
]
CASES: Sequence[Mapping[str, int]] = ({"n": 1, "h": 6}, {"n": 3, "h": 11})
