"""Small models in files, and processes that compile them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parents[2]
X = np.ones((2, 8), np.float32)


def save_model(path: Path, scale: float = 1.0, width: int = 300) -> Path:
    """y = relu(x @ w), x: f32[n, 8]; models of all scales have the same length in bytes."""
    w = np.full((8, width), scale, np.float32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", width])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
             helper.make_node("Relu", ["p"], ["y"], name="relu")]
    graph = helper.make_graph(nodes, "linear", [x], [y], [numpy_helper.from_array(w, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              path)
    return path


def python(code: str, *words: object, **environment: str) -> subprocess.Popen[str]:
    """A process of its own."""
    return subprocess.Popen([sys.executable, "-W", "ignore", "-c", code, *map(str, words)],
                            cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**os.environ, "STRATA_CACHE_SIZE": "1G", **environment})
