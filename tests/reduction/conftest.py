"""A model of some size, with one operation that each planted pass harms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

HARMED = {"Tanh": 7, "Erf": 11, "Sqrt": 15, "Softplus": 18}
"""Which node of the chain is one of these."""


def node(op_type: str, inputs: list[str], output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, [output], name=output, **attributes)


def make_model(first: int = 0, last: int = 23) -> onnx.ModelProto:
    """A chain of 24 nodes over f32[n, 8], or a part of it, a product in every third, with a branch
    at its end.
    """
    places = {place: name for name, place in HARMED.items()}
    random = np.random.default_rng(5)
    weights, nodes, now = [], [], "x"
    for k in range(first, last + 1):
        name = f"v{k}"
        if k in places:
            operand = now
            if places[k] == "Sqrt":
                nodes.append(node("Abs", [now], f"a{k}"))
                operand = f"a{k}"
            nodes.append(node(places[k], [operand], name))
        elif k % 3 == 0:
            weight = (random.standard_normal((8, 8)) / 3).astype(np.float32)
            weights.append(numpy_helper.from_array(weight, f"w{k}"))
            nodes.append(node("MatMul", [now, f"w{k}"], name))
        else:
            nodes.append(node("Add" if k % 3 == 1 else "Mul", [now, "x"], name))
        now = name
    branches = [helper.make_graph(
        [node(op, [now], f"{op}_out")], op, [],
        [helper.make_tensor_value_info(f"{op}_out", TensorProto.FLOAT, ["n", 8])])
        for op in ("Relu", "Neg")]
    nodes.append(node("If", ["c"], "y", then_branch=branches[0], else_branch=branches[1]))
    graph = helper.make_graph(
        nodes, "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8]),
         helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "chain.onnx"
    onnx.save(make_model(), path)
    return path


@pytest.fixture
def short(tmp_path: Path) -> Path:
    """Five nodes of it, among them Erf and Sqrt."""
    path = tmp_path / "short.onnx"
    onnx.save(make_model(11, 15), path)
    return path
