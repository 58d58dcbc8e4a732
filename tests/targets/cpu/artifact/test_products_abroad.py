"""Products of bytes on other machines, whose instructions take groups and blocks: all are exact.

One model multiplies factors of all signs, with rows, columns and sums that do and do not fill
registers, with weights and with two inputs, and convolves images.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

import compiler
from tests.targets.cpu.artifact.abroad import Abroad, each_machine, run_abroad
from tests.targets.cpu.artifact.shipped import ship

SIZES = ((1, 24, 16), (2, 8, 3), (3, 70, 17), (5, 16, 40), (7, 64, 8), (9, 12, 20), (1, 136, 1),
         (23, 40, 33))
"""Rows, terms of a sum, columns."""
BYTES = {"u": np.uint8, "i": np.int8}


def net() -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """The model and its inputs."""
    random = np.random.default_rng(5)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    inputs: dict[str, np.ndarray] = {}
    outputs: list[str] = []

    def numbers(kind: str, *shape: int) -> np.ndarray:
        limits = np.iinfo(BYTES[kind])
        return random.integers(limits.min, limits.max + 1, shape).astype(BYTES[kind])

    def multiply(name: str, x: str, w: str) -> None:
        nodes.append(onnx.helper.make_node("MatMulInteger", [x, w], [name]))
        outputs.append(name)

    for k, (m, d, n) in enumerate(SIZES):
        for a, b in product("ui", "ui"):
            name = f"{k}{a}{b}"
            inputs[f"x{name}"] = numbers(a, m, d)
            weights.append(onnx.numpy_helper.from_array(numbers(b, d, n), f"w{name}"))
            multiply(f"y{name}", f"x{name}", f"w{name}")
    for k, (m, d, n) in enumerate(SIZES[3:6]):
        inputs[f"a{k}"], inputs[f"b{k}"] = numbers("u", 2, m, d), numbers("i", 2, d, n)
        multiply(f"c{k}", f"a{k}", f"b{k}")
    for k, channels in enumerate((3, 8, 16, 20)):
        inputs[f"p{k}"] = numbers("u", 1, channels, 7, 9)
        weights.append(onnx.numpy_helper.from_array(numbers("i", 12, channels, 3, 3), f"f{k}"))
        nodes.append(onnx.helper.make_node("ConvInteger", [f"p{k}", f"f{k}"], [f"q{k}"],
                                           pads=[1, 1, 1, 1]))
        outputs.append(f"q{k}")
    kinds = {np.dtype(np.uint8): onnx.TensorProto.UINT8, np.dtype(np.int8): onnx.TensorProto.INT8}
    graph = onnx.helper.make_graph(
        nodes, "net",
        [onnx.helper.make_tensor_value_info(n, kinds[x.dtype], x.shape) for n, x in inputs.items()],
        [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.INT32, None) for n in outputs],
        weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    return onnx.shape_inference.infer_shapes(model), list(inputs.values())


@pytest.mark.slow
@each_machine
def test_products_of_bytes_are_exact(machine: Abroad, tmp_path: Path) -> None:
    model, inputs = net()
    ship(model, tmp_path / f"model{'.wasm' if machine.is_wasm else '.a'}", "model",
         triple=machine.triple, features=machine.features)
    found = run_abroad(machine, tmp_path, "model", inputs)
    for node, one, wanted in zip(model.graph.node, found, compiler.compile(model)(*inputs),
                                 strict=True):
        np.testing.assert_array_equal(one, np.asarray(wanted), err_msg=node.output[0])
