"""Operators that are made of several compute halves as f32 in between, as onnxruntime does."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.frontend import MemoryModel

onnxruntime = pytest.importorskip("onnxruntime")
HALF = np.float16
ONE = np.ones(2, HALF)
AXES = {"axes": [3], "keepdims": 1}
CASES: list[tuple[str, int, dict[str, Any], list[np.ndarray]]] = [
    ("ReduceL2", 17, AXES, []), ("ReduceLogSum", 17, AXES, []), ("ReduceLogSumExp", 17, AXES, []),
    ("ReduceMean", 17, AXES, []), ("LpPool", 17, {"kernel_shape": [2, 2]}, []),
    ("LpPool", 18, {"kernel_shape": [2, 2], "p": 3}, []), ("GlobalLpPool", 17, {}, []),
    ("LpNormalization", 17, {"axis": 3}, []), ("AveragePool", 17, {"kernel_shape": [3, 3]}, []),
    ("InstanceNormalization", 17, {}, [ONE, ONE]),
    ("GroupNormalization", 21, {"num_groups": 1}, [ONE, ONE]),
    ("LayerNormalization", 17, {"axis": -1}, [np.ones(8, HALF)]),
    ("LRN", 17, {"size": 3, "alpha": 1.0}, []), ("Softmax", 17, {"axis": -1}, []),
]


def make_model(op: str, opset: int, attributes: dict[str, Any], more: list[np.ndarray]) -> bytes:
    names = [f"w{k}" for k in range(len(more))]
    weights = [numpy_helper.from_array(w, name) for w, name in zip(more, names, strict=True)]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], ["y"], **attributes)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [1, 2, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)], weights)
    model: onnx.ModelProto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return model.SerializeToString()


@pytest.mark.parametrize("scale", [1e-4, 1.0, 400.0], ids=["tiny", "one", "large"])
@pytest.mark.parametrize(("op", "opset", "attributes", "more"), CASES)
def test_inner_numbers_keep_the_range_of_f32(
    op: str, opset: int, attributes: dict[str, Any], more: list[np.ndarray], scale: float
) -> None:
    """Squares of 400 are no f16, nor are those of 1/10000."""
    data = make_model(op, opset, attributes, more)
    random = np.random.default_rng(7)
    x = (scale * (1 + random.random((1, 2, 8, 8)))).astype(HALF)
    if op != "ReduceLogSum":
        x *= np.where(random.random(x.shape) < 0.3, -1, 1).astype(HALF)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    [wanted] = session.run(None, {"x": x})
    assert np.isfinite(wanted).all()
    for target in ("cpu", "reference"):
        program = compiler.compile(MemoryModel("half.onnx", data), target=target, cache="off")
        [found] = program(x)
        # a difference of large numbers may be rounded before it is taken
        limit = 4e-3 * np.abs(wanted).max() + 1e-7
        np.testing.assert_allclose(found.astype(float), wanted.astype(float), rtol=4e-3, atol=limit)
