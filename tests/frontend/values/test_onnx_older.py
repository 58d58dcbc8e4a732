"""Models are read with an onnx that is older than the youngest element types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

YOUNGER = ("INT2", "UINT2", "FLOAT4E2M1", "FLOAT8E8M0")
"""The types that onnx 1.16 does not know."""

SCRIPT = """
import sys

import onnx

for name in {younger}:
    delattr(onnx.TensorProto, name)

import numpy as np

import compiler

exe = compiler.compile(sys.argv[1], target="cpu", cache="off")
print(exe.run([np.ones(3, np.float32)])[0].tolist())
"""


def test_a_model_is_read_without_the_youngest_types(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", [value], [result])
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(younger=YOUNGER), str(path)],
                          capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == str(np.full(3, 2.0).tolist())
