"""ONNX models of quantized products: in QDQ form, in integers, and quantized while they run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from rows.contests import random
from rows.graphs import Array, node, save, scalars

TOKENS, INNER, OUTER = 128, 768, 3072
CHANNELS, PIXELS = 64, 56
BYTE, SIGNED = np.uint8, np.int8
ZERO_POINT = 128


def bytes_of(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, shape, BYTE)


def signed_bytes(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).integers(-127, 128, shape, SIGNED)


Made = tuple[Path, dict[str, Any]]


def matmul_integer(path: Path) -> Made:
    """MatMulInteger with a zero point."""
    x = bytes_of(TOKENS, INNER)
    constants = {"w": signed_bytes(INNER, OUTER), "zero": np.array(ZERO_POINT, BYTE)}
    nodes = [node("MatMulInteger", "x w zero", "y")]
    return save(path, nodes, {"x": x}, ["y"], constants, {"y": TensorProto.INT32}), {"x": x}


def conv_integer(path: Path) -> Made:
    """ConvInteger 3x3, padded with its zero point."""
    x = bytes_of(1, CHANNELS, PIXELS, PIXELS)
    constants = {"w": bytes_of(CHANNELS, CHANNELS, 3, 3, seed=1),
                 "zero": np.array(ZERO_POINT, BYTE), "middle": np.array(ZERO_POINT, BYTE)}
    nodes = [node("ConvInteger", "x w zero middle", "y", pads=[1, 1, 1, 1])]
    return save(path, nodes, {"x": x}, ["y"], constants, {"y": TensorProto.INT32}), {"x": x}


def dynamic_matmul(path: Path) -> Made:
    """x quantized by its own range, a product in integers, and back: dynamic quantization."""
    x = random(TOKENS, INNER)
    nodes = [node("DynamicQuantizeLinear", "x", "q step zero"),
             node("MatMulInteger", "q w zero", "sums"), node("Cast", "sums", "f", to=1),
             node("Mul", "step wstep", "both"), node("Mul", "f both", "product"),
             node("Add", "product bias", "y")]
    constants = {"w": signed_bytes(INNER, OUTER), "bias": random(OUTER, seed=2),
                 **scalars(wstep=0.01)}
    return save(path, nodes, {"x": x}, ["y"], constants), {"x": x}


def qdq_matmul(path: Path) -> Made:
    """Two layers with a ReLU between, every tensor between QuantizeLinear and DequantizeLinear."""
    x = random(TOKENS, INNER)
    nodes = [*_quantized("x", "xq", "xs", "xz"), *_layer("x", "w", "a", "MatMul"),
             node("Relu", "a", "r"), *_quantized("r", "rq", "rs", "xz"),
             *_layer("r", "v", "b", "MatMul"), *_quantized("b", "bq", "bs", "xz", last=True)]
    constants = {"w": signed_bytes(INNER, OUTER), "v": signed_bytes(OUTER, INNER, seed=2),
                 "xz": np.array(ZERO_POINT, BYTE), "wz": np.array(0, SIGNED),
                 **scalars(xs=0.03, rs=0.3, bs=4.0, ws=0.01)}
    return save(path, nodes, {"x": x}, ["y"], constants), {"x": x}


def qdq_conv(path: Path) -> Made:
    """A 3x3 convolution with a ReLU, in QDQ form."""
    x = random(1, CHANNELS, PIXELS, PIXELS)
    nodes = [*_quantized("x", "xq", "xs", "xz"),
             *_layer("x", "w", "a", "Conv", pads=[1, 1, 1, 1]), node("Relu", "a", "r"),
             *_quantized("r", "rq", "rs", "xz", last=True)]
    constants = {"w": signed_bytes(CHANNELS, CHANNELS, 3, 3), "xz": np.array(ZERO_POINT, BYTE),
                 "wz": np.array(0, SIGNED), **scalars(xs=0.03, rs=0.3, ws=0.01)}
    return save(path, nodes, {"x": x}, ["y"], constants), {"x": x}


GRAPHS: dict[str, Callable[[Path], Made]] = {
    "MatMulInteger 128x3072x768": matmul_integer, "ConvInteger 64x56x56, 3x3": conv_integer,
    "dynamic MatMul 128x3072x768": dynamic_matmul, "QDQ MatMul, ReLU, MatMul": qdq_matmul,
    "QDQ Conv 64x56x56, 3x3": qdq_conv,
}


def _quantized(
    x: str, name: str, step: str, zero: str, last: bool = False
) -> tuple[NodeProto, NodeProto]:
    """x, rounded to a byte and back; the result is `NAME_`, or `y`."""
    return (node("QuantizeLinear", f"{x} {step} {zero}", name),
            node("DequantizeLinear", f"{name} {step} {zero}", "y" if last else f"{name}_"))


def _layer(x: str, w: str, y: str, op: str, **attributes: Any) -> tuple[NodeProto, NodeProto]:
    """A product of what `_quantized` made of x with dequantized weights."""
    return (node("DequantizeLinear", f"{w} ws wz", f"{w}_"),
            node(op, f"{x}q_ {w}_", y, **attributes))
