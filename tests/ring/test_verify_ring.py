"""`verify --ring` names faults too small for any tolerance, and what it cannot compare."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from dialects.semantics.filters import Change
from dialects.semantics.ring import Ring
from passes.analyses.loop.windows import weight_parts
from passes.loop import winograd
from tests.ring.conftest import Verify
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


def test_all_levels_agree(verify: Verify, model: Path) -> None:
    status, text = verify(str(model), "--ring")
    assert status == 0, text
    assert "agree bit for bit" in text


def test_levels_alone_are_fewer_executions(verify: Verify, model: Path) -> None:
    """The last of each level, and those around passes that may change bits for a reason."""
    counts, rows = [], []
    for words in ((), ("--levels-only",)):
        status, text = verify(str(model), "--ring", *words)
        assert status == 0, text
        rows.append([line.split()[1:3] for line in text.splitlines() if " equal " in line])
        counts.append(int(text.splitlines()[-1].split()[0]))
    assert counts[1] < counts[0]
    levels = ["graph", "loop", "host", "block", "code"]
    assert list(dict.fromkeys(level for level, _ in rows[1])) == levels
    for level in levels:  # as many operations as at its end
        assert [r for r in rows[0] if r[0] == level][-1] in rows[1], level


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


OF_SIZES = {
    "mean": "m = ReduceMean(x)\n y = Mul(x, m)",
    "norm": "m = ReduceMean(x)\n d = Sub(x, m)\n e = Mul(d, d)\n v = ReduceMean(e)\n"
            " q = Sqrt(v)\n y = Div(d, q)",
    "pool": "p = Unsqueeze(x, i)\n m = GlobalAveragePool(p)\n y = Mul(p, m)",
    "fill": "t = Shape(x)\n f = ConstantOfShape<value = float[1] {3.0}>(t)\n"
            " g = ConstantOfShape<value = float[1] {7.0}>(t)\n d = Div(f, g)\n y = Mul(x, d)",
    "positions": "t = Shape(x)\n n = Gather(t, i)\n k = Squeeze(n)\n r = Range(z, k, o)\n"
                 " f = Cast<to = 1>(r)\n p = Div(f, c)\n w = Sin(p)\n u = Unsqueeze(w, i)\n"
                 " y = Mul(x, u)",
    "rounded": "m = ReduceMean(x)\n d = Sub(x, m)\n r = Round(d)\n y = Mul(r, x)",
    "quantized": "m = ReduceMean(x)\n d = Mul(x, m)\n q, u, v = DynamicQuantizeLinear(d)\n"
                 " w = DequantizeLinear(q, u, v)\n y = Mul(w, x)",
    "linear": 'p = Unsqueeze(x, i)\n y = Resize<mode = "linear">(p, , s)',
    "cubic": 'p = Unsqueeze(x, i)\n y = Resize<mode = "cubic">(p, , s)',
}


@pytest.mark.parametrize("name", OF_SIZES)
def test_floats_of_sizes_and_positions(verify: Verify, tmp_path: Path, name: str) -> None:
    """They mean the same alone and in a joined nest: data, unless they become positions again."""
    text = f"""<ir_version: 10, opset_import: ["": 18]>
    m (float[a, 3, b] x) => (float[p, q, r] y)
    <int64[1] i = {{1}}, int64 z = {{0}}, int64 o = {{1}}, float c = {{3.0}},
     float[4] s = {{1.0, 1.0, 1.7, 1.3}}> {{
      {OF_SIZES[name]}
    }}"""
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "m.onnx")
    np.savez("inputs.npz", x=np.random.default_rng(1).standard_normal((5, 3, 7), np.float32))
    status, told = verify("m.onnx", "--ring", "--inputs", "inputs.npz")
    assert status == 0, told


@pytest.mark.parametrize("element", ["float", "float16"])
def test_transformed_filters_are_exact(
    verify: Verify, tmp_path: Path, element: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of windows of one and of two dims, packed as well; what a wrong transform changes shows."""
    proto = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 17]>
    m ({element}[1, 16, 24, 24] x) => (float[1, 16, 24, 24] y) {{
      c = Cast<to = 1>(x)
      a = Conv<pads = [1, 1, 1, 1]>(c, w)
      y = Conv<pads = [0, 1, 0, 1]>(a, v)
    }}""")
    random = np.random.default_rng(1)
    for name, window in (("w", (3, 3)), ("v", (1, 3))):
        array = random.standard_normal((16, 16, *window)).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(proto, tmp_path / "m.onnx")
    status, text = verify("m.onnx", "--ring")
    assert status == 0 and "loop-winograd" in text and "loop-pack-operands" in text, text
    assert "differ" not in text and "but for" not in text, text

    def off_by_a_rounding(points: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        table, divisors = weight_parts(points, count)
        return table, np.nextafter(divisors.astype(np.float32), np.float32(9)).astype(float)

    monkeypatch.setattr(winograd, "weight_parts", off_by_a_rounding)
    status, text = verify("m.onnx")
    assert status == 0, f"no tolerance hides it: {text}"
    status, text = verify("m.onnx", "--ring")
    assert status == 3 and "in loop-winograd" in text and "bits" in text, text


def test_folded_norms_are_exact(
    verify: Verify, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a convolution, into whose filter they go, and of an input; those of few channels, too."""
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 17]>
    m (float[1, 16, 9, 9] x) => (float[1, 4, 7, 7] y) {
      n = BatchNormalization(x, s16, t16, m16, v16)
      r = Relu(n)
      c = Conv(r, w)
      y = BatchNormalization(c, s4, t4, m4, v4)
    }""")
    random = np.random.default_rng(1)
    shapes = {f"{name}{n}": (n,) for n in (4, 16) for name in "stmv"} | {"w": (4, 16, 3, 3)}
    for name, shape in shapes.items():
        array = np.abs(random.standard_normal(shape)).astype(np.float32) + np.float32(0.1)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(proto, tmp_path / "m.onnx")
    status, text = verify("m.onnx", "--ring")
    assert status == 0 and "graph-simplify" in text and "graph-fold-constants" in text, text
    assert "differ" not in text and "but for" not in text, text
    exact = Change.__call__

    def off_by_little(self: Change, *constants: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        factor, shift = exact(self, *constants)
        return factor * np.float32(1 + 2**-20), shift

    monkeypatch.setattr(Change, "__call__", off_by_little)
    status, text = verify("m.onnx")
    assert status == 0, f"no tolerance hides it: {text}"
    status, text = verify("m.onnx", "--ring")
    assert status == 3 and "in graph-simplify" in text and "bits" in text, text


@pytest.mark.parametrize("fault", AFTER)
def test_a_tiny_fault_is_named(verify: Verify, model: Path, fault: str) -> None:
    words = [str(model), "--plugin", str(PLANTED),
             "--passes", f"default,after({AFTER[fault]})={fault}"]
    status, text = verify(*words, "--levels-only")
    assert status == 0, f"no tolerance hides it: {text}"
    status, text = verify(*words, "--levels-only", "--ring")
    assert status == 3 and "bits" in text, text
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


@pytest.mark.parametrize("zero", ["z", "c"])
def test_limits_near_the_largest_residue(verify: Verify, tmp_path: Path, zero: str) -> None:
    """A zero point, for all or for each column, wraps around there: its definition and what it
    becomes limit the same sum."""
    (tmp_path / "m.mlir").write_text(f"""builtin.module {{
      strata.func @main(%x: f32[64, 4], %s: f32[], %z: ui8[], %t: f32[4], %c: ui8[4])
          -> (ui8[64, 4]) inputs ["x", "s", "z", "t", "c"] outputs ["y"] {{
        %y = graph.quantize_linear %x, %{"s" if zero == "z" else "t"}, %{zero}
          {{{"" if zero == "z" else "axis = 1, "}to = ui8}} : ui8[64, 4]
        strata.return %y
      }}
    }}""")
    half = Ring().modulus // 2
    np.savez(tmp_path / "x.npz", x=(half - np.arange(256, dtype=np.float32)).reshape(64, 4),
             s=np.float32(1), z=np.uint8(200), t=np.ones(4, np.float32),
             c=np.array([1, 90, 200, 255], np.uint8))
    status, text = verify(str(tmp_path / "m.mlir"), "--ring", "--inputs", str(tmp_path / "x.npz"))
    assert status == 0 and "agree bit for bit" in text, text
