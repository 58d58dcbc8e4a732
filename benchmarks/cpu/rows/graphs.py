"""ONNX models that the rows measure, made node by node."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from rows.contests import random

Array = np.ndarray[Any, np.dtype[Any]]
OPSET = 21
WIDTH = 1024
"""Of a row, for what works on rows."""


def node(op: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    """`node("MatMul", "x w", "y")`."""
    return helper.make_node(op, inputs.split(), output.split(), **attributes)


def save(
    path: Path, nodes: Sequence[NodeProto], inputs: Mapping[str, Array], outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None, types: Mapping[str, int] | None = None,
) -> Path:
    """A model of these nodes, whose inputs are like these arrays. `types`: of outputs, else f32."""
    given = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
             for name, x in inputs.items()]
    made = [helper.make_tensor_value_info(name, (types or {}).get(name, onnx.TensorProto.FLOAT),
                                          None) for name in outputs]
    weights = [numpy_helper.from_array(x, name) for name, x in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), path.stem, given, made, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    onnx.save_model(onnx.shape_inference.infer_shapes(model), path)
    return path


def scalars(**values: float) -> dict[str, Array]:
    return {name: np.array(value, np.float32) for name, value in values.items()}


# ---------------------------------------------------------------------- products
def matmul(path: Path, x: Array, weights: Array) -> Path:
    """x @ weights, which are constant."""
    return save(path, [node("MatMul", "x w", "y")], {"x": x}, ["y"], {"w": weights})


def matmul_of_inputs(path: Path, x: Array, w: Array) -> Path:
    return save(path, [node("MatMul", "x w", "y")], {"x": x, "w": w}, ["y"])


def attention(path: Path, q: Array, k: Array, v: Array) -> Path:
    """softmax(q k^T / sqrt(d)) v in operators of its own each; q, k, v: [b, h, s, d]."""
    nodes = [node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), node("MatMul", "q kt", "products"),
             node("Mul", "products scale", "scores"), node("Softmax", "scores", "shares", axis=-1),
             node("MatMul", "shares v", "y")]
    scale = scalars(scale=1 / math.sqrt(q.shape[-1]))
    return save(path, nodes, {"q": q, "k": k, "v": v}, ["y"], scale)


# ---------------------------------------------------------------------- rows of numbers
def softmax(path: Path, x: Array) -> Path:
    return save(path, [node("Softmax", "x", "y", axis=-1)], {"x": x}, ["y"])


def layer_norm(path: Path, x: Array) -> Path:
    nodes = [node("LayerNormalization", "x gain shift", "y", axis=-1)]
    return save(path, nodes, {"x": x}, ["y"], _gain_and_shift(x.shape[-1]))


def residual_layer_norm(path: Path, x: Array, r: Array) -> Path:
    """The sum of two, normalized."""
    nodes = [node("Add", "x r", "s"), node("LayerNormalization", "s gain shift", "y", axis=-1)]
    return save(path, nodes, {"x": x, "r": r}, ["y"], _gain_and_shift(x.shape[-1]))


def rms_norm(path: Path, x: Array) -> Path:
    """x / sqrt(mean(x^2) + e) * gain, as exporters write it."""
    nodes = [node("Mul", "x x", "squares"), node("ReduceMean", "squares axes", "mean"),
             node("Add", "mean epsilon", "safe"), node("Sqrt", "safe", "root"),
             node("Div", "x root", "unit"), node("Mul", "unit gain", "y")]
    constants = {"axes": np.array([-1]), **scalars(epsilon=1e-6),
                 "gain": random(x.shape[-1], seed=1)}
    return save(path, nodes, {"x": x}, ["y"], constants)


# ---------------------------------------------------------------------- elementwise chains
def gelu(path: Path, x: Array) -> Path:
    """x/2 * (1 + erf(x / sqrt 2)), written out."""
    nodes = [node("Div", "x root", "a"), node("Erf", "a", "b"), node("Add", "b one", "c"),
             node("Mul", "x c", "d"), node("Mul", "d half", "y")]
    return save(path, nodes, {"x": x}, ["y"], scalars(root=math.sqrt(2), one=1.0, half=0.5))


def chain(path: Path, x: Array) -> Path:
    """relu(x * gain + shift) - x / 2: arithmetic that costs nothing beside the memory."""
    nodes = [node("Mul", "x gain", "a"), node("Add", "a shift", "b"), node("Relu", "b", "c"),
             node("Mul", "x half", "d"), node("Sub", "c d", "y")]
    return save(path, nodes, {"x": x}, ["y"], {**_gain_and_shift(x.shape[-1]), **scalars(half=0.5)})


def silu_gate(path: Path, x: Array, r: Array) -> Path:
    """x * sigmoid(x) * r."""
    nodes = [node("Sigmoid", "x", "a"), node("Mul", "x a", "b"), node("Mul", "b r", "y")]
    return save(path, nodes, {"x": x, "r": r}, ["y"])


def _gain_and_shift(width: int) -> dict[str, Array]:
    return {"gain": random(width, seed=1), "shift": random(width, seed=2)}
