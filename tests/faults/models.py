"""Small models in files, a cache of their own, and processes that compile them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import compiler
from tests import processes

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


def python(code: str, *words: object, **environment: str) -> processes.Child:
    """A process of its own."""
    return processes.start([sys.executable, "-W", "ignore", "-c", code, *map(str, words)],
                           cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           env={**os.environ, "STRATA_CACHE_SIZE": "1G", **environment})


class Bench:
    """A model file and a cache folder of its own. `compiled` counts compilations."""

    def __init__(self, folder: Path):
        self.folder, self.model, self.cache = folder, folder / "model.onnx", folder / "cache"
        self.compiled = 0
        save_model(self.model)

    def compile(self, **options: Any) -> compiler.Executable:
        return compiler.compile(self.model, **{"threads": 1, "cache": self.cache, **options})

    def check(self, scale: float = 1.0, **options: Any) -> compiler.Executable:
        """The model answers right."""
        exe = self.compile(**options)
        np.testing.assert_array_equal(exe(X)[0], np.full((2, 300), 8 * scale, np.float32))
        return exe

    def files(self, kind: str) -> list[Path]:
        folder = self.cache / ("cpu" if kind == "cpu" else f"programs/{kind}")
        return sorted(path for path in folder.glob("*") if path.suffix != ".whole")

    @property
    def entry(self) -> Path:
        [found] = self.files("entries")
        return found
