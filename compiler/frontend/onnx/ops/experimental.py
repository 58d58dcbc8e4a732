"""Experimental operators that ONNX has removed, and that onnxruntime still runs.

Old exporters wrote them into models of opset 1 to 6. onnxruntime accepts them in any opset.
"""

from __future__ import annotations

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value


@onnx_op("Affine")
def affine(n: Node, x: Value) -> Value:
    scaled = x * n.real("alpha", 1.0)
    return scaled + n.real("beta")


@onnx_op("Scale")
def scale(n: Node, x: Value) -> Value:
    return x * n.real("scale", 1.0)


@onnx_op("ScaledTanh")
def scaled_tanh(n: Node, x: Value) -> Value:
    """alpha * tanh(beta * x)"""
    inner = f.tanh(x * n.real("beta"))
    return inner * n.real("alpha")


@onnx_op("ParametricSoftplus")
def parametric_softplus(n: Node, x: Value) -> Value:
    """alpha * log(exp(beta * x) + 1)"""
    inner = f.softplus(x * n.real("beta"))
    return inner * n.real("alpha")


@onnx_op("ImageScaler")
def image_scaler(n: Node, x: Value) -> Value:
    """scale * x + bias, with one bias per channel."""
    bias = n.constant(np.array(n.floats("bias"), x.type.dtype).reshape(-1, 1, 1))
    return scale(n, x) + bias


@onnx_op("Crop")
def crop(n: Node, x: Value) -> Value:
    """An image without its border (left, top, right, bottom), or `scale` (height, width) of it."""
    border = n.ints("border")
    if x.rank != 4 or len(border) != 4:
        raise Fault(f"border {border} does not fit {x.type.short}")
    left, top, right, bottom = border
    rest = [x.shape[2] - (top + bottom), x.shape[3] - (left + right)]
    height, width = n.ints("scale", []) or rest
    return x.part(2, top, height).part(3, left, width)
