"""A model with an operation for each planted fault, and the commands that find them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from compiler.__main__ import main

PLANTED = Path(__file__).with_name("planted.py")
MODEL = """<ir_version: 10, opset_import: ["": 17]>
chain (float[6, 37] x) => (float[6, 37] y)
<float[37, 37] w, float[37, 37] v, float low = {-3.07}> {
  [a] a = MatMul(x, w)
  [b] b = Add(a, x)
  [c] c = Tanh(b)
  [d] d = Mul(c, a)
  [e] e = Softmax(d)
  [f] f = Add(e, x)
  [g] g = Abs(f)
  [h] h = Sqrt(g)
  [i] i = Sin(h)
  [j] j = MatMul(i, v)
  [k] k = Erf(j)
  [l] l = Mul(k, i)
  [m] m = Sigmoid(l)
  [n] n = Add(m, m)
  [o] o = Reciprocal(n)
  [p] p = Max(j, low)
  [q] q = Sub(p, o)
  [r] r = MatMul(q, w)
  [s] s = Exp(m)
  [t] t = Log(s)
  [u] u = Add(r, t)
  [y_] y = Neg(u)
}"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A chain of 22 nodes over f32[6, 37], whose rows have a tail of 5 lanes."""
    random, path = np.random.default_rng(3), tmp_path / "chain.onnx"
    proto = onnx.parser.parse_model(MODEL)
    for node in proto.graph.node:
        node.name = node.name or node.output[0]
    for name in ("w", "v"):
        weight = (random.standard_normal((37, 37)) / 6).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    onnx.save(proto, path)
    return path


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str
    found: dict[str, Any]


@pytest.fixture
def bisect(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Done]:
    """Runs the command, with one fault or without."""
    monkeypatch.chdir(tmp_path)

    def run(model: Path, *words: str, fault: str = "") -> Done:
        result = tmp_path / "found.json"
        if fault:
            monkeypatch.setenv("PLANTED", fault)
            words = (*words, "--plugin", str(PLANTED))
        status = main(["bisect", str(model), "--json", str(result), *words])
        out, err = capsys.readouterr()
        found = json.loads(result.read_text()) if result.exists() else {}
        return Done(status, out, err, found)

    return run
