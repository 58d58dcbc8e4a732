"""Many small images: samples are rows, and what is between layers would fit into a program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

import compiler


def network(dtype: type[np.floating], path: Path) -> None:
    """Convolutions of 8x8 images, their means, and a linear layer of these."""
    rng = np.random.default_rng(0)
    shapes = {"a": (4, 8, 1, 1), "b": (4, 4, 3, 3), "c": (16, 4, 1, 1), "d": (16, 100)}
    weights = [numpy_helper.from_array((rng.standard_normal(s) / 4).astype(dtype), n)
               for n, s in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["1"]), helper.make_node("Relu", ["1"], ["2"]),
        helper.make_node("Conv", ["2", "b"], ["3"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["3"], ["4"]), helper.make_node("Conv", ["4", "c"], ["5"]),
        helper.make_node("GlobalAveragePool", ["5"], ["6"]),
        helper.make_node("Flatten", ["6"], ["7"]), helper.make_node("MatMul", ["7", "d"], ["y"])]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        nodes, "images", [helper.make_tensor_value_info("x", element, [32, 8, 8, 8])],
        [helper.make_tensor_value_info("y", element, [32, 100])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_convolutions_do_not_join_by_samples(dtype: type[np.floating], tmp_path: Path) -> None:
    path = tmp_path / "images.onnx"
    network(dtype, path)
    x = np.random.default_rng(1).standard_normal((32, 8, 8, 8)).astype(dtype)
    [found], [wanted] = (compiler.compile(str(path), target=target, cache="off")(x)
                         for target in ("cpu", "reference"))
    error = np.abs(np.asarray(found, np.float64) - np.asarray(wanted, np.float64)).max()
    assert error <= (5e-3 if dtype is np.float16 else 1e-5)
