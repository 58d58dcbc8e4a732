"""The Python interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import compiler
from compiler.diagnostics import StrataError
from compiler.io.arrays import kind_of, to_numpy

X = np.random.default_rng(1).standard_normal((5, 8), np.float32)
ROWS = np.array([4, 0, 2], np.int64)


@pytest.fixture(scope="module")
def exe(small_model: Path) -> compiler.Executable:
    return compiler.compile(small_model, target="reference")


def test_a_call_returns_a_list(exe: compiler.Executable) -> None:
    (y,) = exe(X, ROWS)
    assert isinstance(y, np.ndarray)
    assert y.shape == (3, 32)
    np.testing.assert_allclose(y.sum(axis=1), 1, rtol=1e-5)


def test_signature(exe: compiler.Executable) -> None:
    assert exe.input_names == ["in/x:0", "rows"]
    assert exe.output_names == ["out/y"]
    assert exe.input_types == ["f32[n, 8]", "i64[m]"]
    assert exe.output_types == ["f32[m, 32]"]


def test_inputs_by_name(exe: compiler.Executable) -> None:
    (by_name,) = exe(**{"rows": ROWS, "in/x:0": X})
    (mixed,) = exe(X, rows=ROWS)
    np.testing.assert_array_equal(by_name, exe(X, ROWS)[0])
    np.testing.assert_array_equal(mixed, by_name)


@pytest.mark.parametrize(("inputs", "named"), [
    ((X,), {}), ((X, ROWS, X), {}), ((X, ROWS), {"rows": ROWS}), ((X,), {"z": ROWS}),
    ((X, ROWS.astype(np.int32)), {}), ((X[:, :7], ROWS), {}),
])
def test_wrong_inputs(
    exe: compiler.Executable, inputs: tuple[Any, ...], named: dict[str, Any]
) -> None:
    with pytest.raises(ValueError):
        exe(*inputs, **named)


def test_no_array(exe: compiler.Executable) -> None:
    with pytest.raises(TypeError, match="set is not an array"):
        exe({1}, ROWS)


@pytest.mark.parametrize(("value", "said"), [
    (np.ma.masked_array(X, X > 0), "hidden elements"),
    ("meta", "has no memory"), ("sparse", "layout torch.sparse_coo"),
])
def test_arrays_without_all_elements(exe: compiler.Executable, value: Any, said: str) -> None:
    if isinstance(value, str):
        torch: Any = pytest.importorskip("torch")
        x = torch.from_numpy(X)
        value = x.to_sparse() if value == "sparse" else x.to("meta")
    with pytest.raises(TypeError, match=f"'in/x:0' cannot be read: .*{said}"):
        exe(value, ROWS)


def test_a_masked_array_that_hides_nothing(exe: compiler.Executable) -> None:
    np.testing.assert_array_equal(exe(np.ma.array(X), ROWS)[0], exe(X, ROWS)[0])


def test_long_names_are_cut(exe: compiler.Executable) -> None:
    with pytest.raises(ValueError) as error:
        exe(**{"x" * 10_000: X})
    assert len(str(error.value)) < 500


def test_text_of_a_level(exe: compiler.Executable) -> None:
    assert "graph.matmul" in exe.text("graph")
    with pytest.raises(StrataError, match="no level 'nothing'"):
        exe.text("nothing")


def test_dumps(small_model: Path, tmp_path: Path) -> None:
    compiler.compile(small_model, target="reference", dump_dir=tmp_path / "dumps")
    assert (tmp_path / "dumps" / "00-graph-import.mlir").is_file()


def test_no_cache(small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is no folder's name."""
    monkeypatch.chdir(tmp_path)
    compiler.compile(small_model, target="cpu", cache=None)
    assert not list(tmp_path.iterdir())


def test_sizes(small_model: Path) -> None:
    fixed = compiler.compile(small_model, target="reference", dims={"n": 5},
                             shapes={"rows": [3]})
    assert fixed.input_types == ["f32[5, 8]", "i64[3]"]


def test_faults_are_exceptions(tmp_path: Path) -> None:
    with pytest.raises(StrataError, match="no such file"):
        compiler.compile(tmp_path / "nothing.onnx")


class Foreign:
    """An array of a library that knows only DLPack and the array API."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __array_namespace__(self) -> Any:
        return Foreign

    @staticmethod
    def from_dlpack(array: np.ndarray) -> Foreign:
        return Foreign(array)


def test_dlpack_goes_in_without_a_copy_and_comes_out() -> None:
    foreign = Foreign(X)
    assert np.shares_memory(to_numpy(foreign), X)
    back = kind_of(foreign)
    assert back is not None
    assert isinstance(back(X), Foreign)


def test_arrays_of_other_orders_are_copied() -> None:
    assert np.shares_memory(to_numpy(X), X)
    assert to_numpy(X.T).flags.c_contiguous
    assert to_numpy(np.float32(3)).shape == to_numpy(Foreign(np.array(3.0))).shape == ()


def test_torch_tensors(exe: compiler.Executable) -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X).requires_grad_()
    assert np.shares_memory(to_numpy(x), X)
    (y,) = exe(x, torch.from_numpy(ROWS))
    assert isinstance(y, torch.Tensor)
    np.testing.assert_array_equal(y.numpy(), exe(X, ROWS)[0])


def test_torch_bfloat16() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    array = to_numpy(tensor)
    assert array.dtype == ml_dtypes.bfloat16
    back = kind_of(tensor)
    assert back is not None
    assert torch.equal(back(array), tensor)


@pytest.mark.gpu
def test_tensors_on_the_gpu_stay_there(small_model: Path) -> None:
    torch = pytest.importorskip("torch")
    on_gpu = compiler.compile(small_model, target="cuda", cache="off")
    (y,) = on_gpu(torch.from_numpy(X).cuda(), torch.from_numpy(ROWS).cuda())
    assert y.is_cuda
    (expected,) = compiler.compile(small_model, target="reference")(X, ROWS)
    np.testing.assert_allclose(y.cpu().numpy(), expected, rtol=1e-4, atol=1e-6)
    (array,) = on_gpu(X, ROWS)
    assert isinstance(array, np.ndarray)
