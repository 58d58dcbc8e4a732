"""Which kernels keep every bit is known without executing them, and execution bears it out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler.instrument.kept_bits import KeptBits
from compiler.instrument.preserved import BLURS
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from tests.ring.conftest import Verify

PAGE = Path(__file__).parents[2] / "benchmarks" / "zoo" / "KERNELS_IN_RING.md"
ATTENTION = """<ir_version: 10, opset_import: ["": 17]>
m (float[2, 64, {d}] q, float[2, {d}, 64] k, float[2, 64, {d}] v, float[2, 64] x)
    => (float[2, 64, {d}] y, float[2, 64] z) <float c = {{{c}}}> {{
  s = MatMul(q, k)
  t = Mul(s, c)
  w = Softmax(t)
  y = MatMul(w, v)
  z = Tanh(x)
}}"""
MODELS = {
    "a rounded number": ("cpu", """<ir_version: 10, opset_import: ["": 17]>
        m (float[5, 67] x, float[67, 3] w) => (float[5, 67] y, float[5, 3] z) {
          r = ReduceMean <keepdims = 0> (b)
          y = Mul(x, r)
          z = MatMul(x, w)
        }""", {"graph-fold-constants": 1}),
    "an exact number": ("cpu", """<ir_version: 10, opset_import: ["": 17]>
        m (float[5, 67] x) => (float[5, 67] y) {
          r = ReduceMax <keepdims = 0> (b)
          y = Mul(x, r)
        }""", {}),
    "folded tensors": ("cpu", """<ir_version: 10, opset_import: ["": 17]>
        m (float[5, 4] x) => (float[5, 4] y) <float[4] c = {1.0, 2.0, 3.0, 5.0}> {
          r = Sqrt(c)
          y = Mul(x, r)
        }""", {}),
    "a power of two": ("cuda", ATTENTION.format(d=64, c=0.125), {}),
    "another factor": ("cuda", ATTENTION.format(d=64, c=0.17), {"loop-join-online": 1}),
}


@pytest.mark.parametrize("name", MODELS)
def test_kernels_that_round(
    name: str, tmp_path: Path, verify: Verify
) -> None:
    target, text, expected = MODELS[name]
    path, kept = tmp_path / "m.onnx", KeptBits()
    model = onnx.parser.parse_model(text)
    if " (b)" in text:
        numbers = np.random.default_rng(1).integers(1, 999, 100).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(numbers, "b"))
    onnx.save(model, path)
    features = "sm_90" if target == "cuda" else None
    Compiler(str(path), CompileOptions(target, features=features, tuned="off"), (kept,)).lower()
    counts = {p: sum(p in passes for passes in kept.rounded.values()) for p in BLURS}
    assert {p: n for p, n in counts.items() if n} == expected
    assert not expected or len(kept.names) > len(kept.rounded), "others keep every bit"
    words = ["--features", features] if features else []
    status, told = verify(str(path), "--ring", "--target", target, *words)
    assert status == 0, told
    assert {line.split()[0].partition("@")[0] for line in told.splitlines()
            if "differ" in line and line.split()[0].startswith(("graph-", "loop-"))} == {*expected}


def test_most_kernels_of_the_zoo_keep_every_bit() -> None:
    """The table says so, and names passes that round."""
    rows = re.findall(r"^\| (\w+) \| (\d+) of (\d+)(?:; ([^|]*))? \|$", PAGE.read_text(), re.M)
    kept, total = (sum(int(row[k]) for row in rows) for k in (1, 2))
    assert len(rows) >= 40 and kept >= 0.9 * total
    assert all((kept == total) == (not passes) for _, kept, total, passes in rows)
    assert {p for row in rows if row[3] for p in row[3].split(", ")} <= BLURS.keys()


@pytest.mark.parametrize("name", ["mtcnn_rnet", pytest.param(
    "moonshine_tiny_encoder", marks=pytest.mark.slow)])
def test_the_table_is_that_of_the_models(zoo_model: Callable[[str], Path], name: str) -> None:
    kept = KeptBits()
    options = CompileOptions("cpu", tuned="off", features="avx2")
    Compiler(str(zoo_model(name)), options, (kept,)).lower()
    count, total = len(kept.names) - len(kept.rounded), len(kept.names)
    assert f"| {name} | {count} of {total}" in PAGE.read_text()
