"""`verify --ring` names faults too small for any tolerance, and what it cannot compare."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler.__main__ import main
from tests.ring.planted import AFTER

PLANTED = Path(__file__).with_name("planted.py")
MODEL = """<ir_version: 10, opset_import: ["": 17]>
small (float[5, 67] x, float[5, 67] r) => (float[5, 37] y) <float c = {0.75}> {
  [norm] n = LayerNormalization(x, g)
  [product] m = MatMul(n, w)
  [bend] t = Tanh(m)
  [scale] s = Mul(t, c)
  [weigh] p = Softmax(r)
  [weighed] q = MatMul(p, w)
  [sum] y = Add(s, q)
}"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Seven nodes; the last of 67 terms of each product is tiny."""
    proto, path = onnx.parser.parse_model(MODEL), tmp_path / "small.onnx"
    weight = np.random.default_rng(3).standard_normal((67, 37)).astype(np.float32)
    weight[-1] *= 1e-9
    for name, array in (("w", weight), ("g", np.ones(67, np.float32))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(proto, path)
    return path


@pytest.fixture
def verify(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str]]:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str]:
        status = main(["verify", *words])
        return status, "".join(capsys.readouterr())

    return run


Verify = Callable[..., tuple[int, str]]


def test_all_levels_agree(verify: Verify, model: Path) -> None:
    status, text = verify(str(model), "--ring")
    assert status == 0, text
    assert "agree bit for bit" in text


def test_truth_values_become_numbers(verify: Verify, tmp_path: Path) -> None:
    """Also those that a comparison makes, in code by many at once."""
    text = """<ir_version: 10, opset_import: ["": 17]>
    small (int32[7, 1] k, int32[67] n, float[7, 67] x) => (float[7, 67] y) <float c = {0.5}> {
      e = Equal(k, n)
      f = Cast<to = 1>(e)
      g = Greater(x, c)
      h = Cast<to = 1>(g)
      y = Add(f, h)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    status, told = verify("m.onnx", "--ring")
    assert status == 0, told


@pytest.mark.parametrize("fault", AFTER)
def test_a_tiny_fault_is_named(verify: Verify, model: Path, fault: str) -> None:
    words = [str(model), "--plugin", str(PLANTED),
             "--passes", f"default,after({AFTER[fault]})={fault}"]
    status, text = verify(*words, "--levels-only")
    assert status == 0, f"no tolerance hides it: {text}"
    started = time.monotonic()
    status, text = verify(*words, "--ring")
    assert status == 1 and f"a plugin failed in {fault}" in text, text
    assert "the first is " in text
    assert time.monotonic() - started < 30


def test_floats_without_room_are_refused(verify: Verify, tmp_path: Path) -> None:
    text = """builtin.module {
  strata.func @main(%x: f8E5M2[4]) -> (f32[4]) inputs ["x"] outputs ["y"] {
    %y = graph.cast %x {to = f32} : f32[4]
    strata.return %y
  }
}"""
    path = tmp_path / "narrow.mlir"
    path.write_text(text)
    status, out = verify(str(path), "--ring")
    assert status == 1 and "has no room for residues" in out


@pytest.mark.parametrize("precision", ["fp8", "fast"])
def test_precisions_without_room_are_refused(
    verify: Verify, model: Path, precision: str
) -> None:
    status, out = verify(str(model), "--ring", "--precision", precision)
    assert status == 1 and "has no room for residues" in out


def test_inputs_may_be_given(verify: Verify, model: Path) -> None:
    """Infinities and NaN among them included."""
    numbers = np.linspace(-1, 1, 5 * 67, dtype=np.float32).reshape(5, 67)
    numbers[0, :2] = -np.inf, np.nan
    np.savez("inputs.npz", x=numbers, r=numbers)
    status, text = verify(str(model), "--ring", "--inputs", "inputs.npz")
    assert status == 0 and "agree bit for bit" in text, text
