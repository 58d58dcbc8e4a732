"""Complex numbers of StableHLO's text, and at the border of a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.__main__ import main
from compiler.diagnostics import StrataError

TEXT = """
module {
  func.func public @main(%z: tensor<3xcomplex<f32>>, %x: tensor<3xf32>)
      -> (tensor<3xcomplex<f32>>, tensor<3xf32>) {
    %c = stablehlo.constant dense<(1.0, -2.0)> : tensor<complex<f32>>
    %d = stablehlo.constant dense<[(0.0,1.0), (0x40000000,0.5), (3.0,-0.0)]> : tensor<3xcomplex<f32>>
    %e = stablehlo.constant dense<"0x0000803F0000004000000000000080BF0000803F00000000"> : tensor<3xcomplex<f32>>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<complex<f32>>) -> tensor<3xcomplex<f32>>
    %1 = stablehlo.multiply %z, %0 : tensor<3xcomplex<f32>>
    %2 = stablehlo.add %1, %d : tensor<3xcomplex<f32>>
    %3 = stablehlo.divide %2, %e : tensor<3xcomplex<f32>>
    %4 = stablehlo.abs %3 : (tensor<3xcomplex<f32>>) -> tensor<3xf32>
    %5 = stablehlo.add %4, %x : tensor<3xf32>
    return %3, %5 : tensor<3xcomplex<f32>>, tensor<3xf32>
  }
}"""  # noqa: E501 (a constant in hexadecimal)
Z = np.array([1 + 2j, -3j, 0.5], np.complex64)
X = np.array([1, 2, 3], np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "f.mlir"
    path.write_text(TEXT)
    return path


def truth() -> tuple[Any, Any]:
    made = (Z * (1 - 2j) + np.array([1j, 2 + 0.5j, 3])) / np.array([1 + 2j, -1j, 1])
    return made.astype(np.complex64), (abs(made) + X).astype(np.float32)


def same(got: Any) -> None:
    for a, b in zip(got, truth(), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_numbers(model: Path, target: str) -> None:
    """NumPy's complex numbers, by place and by name, or their parts."""
    exe = compiler.compile(model, target=target, cache="off")
    assert exe.input_types == ["f32[3, 2]", "f32[3]"]
    same(exe(Z, X))
    same(exe(x=X, z=Z))
    same(exe(np.stack([Z.real, Z.imag], -1), X))
    same(exe(Z[::-1].copy()[::-1], X))


def test_tensors(model: Path) -> None:
    torch = pytest.importorskip("torch")
    exe = compiler.compile(model, target="cpu", cache="off")
    got = exe(torch.from_numpy(Z).conj().resolve_conj().conj(), torch.from_numpy(X))
    assert all(isinstance(v, torch.Tensor) for v in got)
    same([v.numpy() for v in got])


def test_saved(model: Path, tmp_path: Path) -> None:
    exe = compiler.compile(model, target="cpu", cache="off")
    exe.save(tmp_path / "f.strata")
    same(compiler.load(tmp_path / "f.strata")(Z, X))


def test_every_pass(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(model), "--target", "cpu"]) == 0, capsys.readouterr()


@pytest.mark.parametrize(("old", "new", "what"), [
    ("stablehlo.multiply", "stablehlo.maximum", "complex numbers are not supported"),
    ("stablehlo.abs %3 : (tensor<3xcomplex<f32>>) -> tensor<3xf32>",
     "stablehlo.abs %3 : tensor<3xcomplex<f32>>", "the text says complex<f32>"),
    ("complex<f32>", "complex<f16>", "elements of complex are not supported"),
    ("dense<(1.0, -2.0)>", "dense<(1.0)>", "a complex number has two parts")])
def test_mistakes(tmp_path: Path, old: str, new: str, what: str) -> None:
    path = tmp_path / "f.mlir"
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(StrataError, match=what):
        compiler.compile(path, target="reference")
