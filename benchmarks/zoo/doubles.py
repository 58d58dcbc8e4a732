"""A model computed in f64: who is right when Strata and onnxruntime differ.

Every f32 in the model becomes f64: inputs, outputs, weights, constants and casts. The reference
target computes that, so rounding to f32 has no part in it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from inputs import Array
from onnx import numpy_helper

F32, F64 = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE


def in_doubles(model: Path, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs of the model in f64 for these inputs."""
    import compiler

    wide = onnx.load(model)
    for graph in _graphs(wide.graph):
        _widen(graph)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / model.name
        onnx.save(wide, path)
        exe = compiler.compile(path, target="reference")
        return exe(**{name: _wide(array) for name, array in feeds.items()})


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and those in its nodes' attributes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _graphs(inner)


def _widen(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == F32:
            value.type.tensor_type.elem_type = F64
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and not node.attribute:  # zeros of f32 otherwise
            zero = numpy_helper.from_array(np.zeros(1, np.float64))
            node.attribute.append(onnx.helper.make_attribute("value", zero))
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            if attribute.name in ("to", "dtype") and attribute.i == F32:
                attribute.i = F64


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == F32:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
