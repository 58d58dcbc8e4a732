"""Chains of launches that are computed block by block compute the same on other machines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

import compiler
from tests.targets.cpu.artifact.abroad import Abroad, each_machine, run_abroad
from tests.targets.cpu.artifact.shipped import ship

CHANNELS, HEIGHT, WIDTH = 24, 517, 75


def net() -> onnx.ModelProto:
    """Two convolutions of which one adds its input, with too much between for an L2 cache."""
    random = np.random.default_rng(3)
    weights = [onnx.numpy_helper.from_array(
        random.standard_normal((CHANNELS, CHANNELS, 3, 3)).astype(np.float32) / 12, f"w{k}")
        for k in range(2)]
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1]),
        onnx.helper.make_node("Relu", ["a"], ["b"]),
        onnx.helper.make_node("Conv", ["b", "w1"], ["c"], pads=[1, 1, 1, 1]),
        onnx.helper.make_node("Add", ["b", "c"], ["y"])]
    image = ["n", CHANNELS, HEIGHT, WIDTH]
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, image) for n in "xy")
    return onnx.helper.make_model(onnx.helper.make_graph(nodes, "net", [x], [y], weights),
                                  opset_imports=[onnx.helper.make_opsetid("", 17)])


@pytest.mark.slow
@each_machine
def test_chained_convolutions_compute_the_same(machine: Abroad, tmp_path: Path) -> None:
    model = net()
    ship(model, tmp_path / f"model{'.wasm' if machine.is_wasm else '.a'}", "model",
         triple=machine.triple, features=machine.features)
    x = np.random.default_rng(4).standard_normal((2, CHANNELS, HEIGHT, WIDTH)).astype(np.float32)
    [found] = run_abroad(machine, tmp_path, "model", [x])
    [wanted] = compiler.compile(model)(x)
    np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-4, atol=1e-4)
