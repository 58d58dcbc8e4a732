"""Operators of ONNX's first year that it has dropped, and onnxruntime still runs.

Old exporters wrote them into models of opset 1 to 6; onnxruntime takes them at any opset.
"""

from __future__ import annotations

import numpy as np

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value
from dialects.graph.activation import SoftplusOp
from dialects.graph.elementwise import AddOp, MulOp
from dialects.graph.unary import TanhOp


@onnx_op("Affine")
def affine(n: Node, x: Value) -> Value:
    scaled = n(MulOp, x, n.scalar(n.real("alpha", 1.0), x))
    return n(AddOp, scaled, n.scalar(n.real("beta"), x))


@onnx_op("Scale")
def scale(n: Node, x: Value) -> Value:
    return n(MulOp, x, n.scalar(n.real("scale", 1.0), x))


@onnx_op("ScaledTanh")
def scaled_tanh(n: Node, x: Value) -> Value:
    """alpha * tanh(beta * x)"""
    inner = n(TanhOp, n(MulOp, x, n.scalar(n.real("beta"), x)))
    return n(MulOp, inner, n.scalar(n.real("alpha"), x))


@onnx_op("ParametricSoftplus")
def parametric_softplus(n: Node, x: Value) -> Value:
    """alpha * log(exp(beta * x) + 1)"""
    inner = n(SoftplusOp, n(MulOp, x, n.scalar(n.real("beta"), x)))
    return n(MulOp, inner, n.scalar(n.real("alpha"), x))


@onnx_op("ImageScaler")
def image_scaler(n: Node, x: Value) -> Value:
    """scale * x, and a bias per channel."""
    bias = n.constant(np.array(n.floats("bias"), x.type.dtype).reshape(-1, 1, 1))
    return n(AddOp, scale(n, x), bias)


@onnx_op("Crop")
def crop(n: Node, x: Value) -> Value:
    """An image without its border (left, top, right, bottom), or `scale` (height, width) of it."""
    border = n.ints("border")
    if x.rank != 4 or len(border) != 4:
        raise Fault(f"border {border} does not fit {x.type.short}")
    left, top, right, bottom = border
    rest = [x.shape[2] - (top + bottom), x.shape[3] - (left + right)]
    height, width = n.ints("scale", []) or rest
    return n.part(n.part(x, 2, top, height), 3, left, width)
