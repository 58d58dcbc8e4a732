"""Files that are no model, and weights outside the model's file: each fault is told, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.diagnostics import StrataError
from compiler.frontend import load_model
from tests.frontend.onnx_models import make_model, run_imported, save, value_info

WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4)


def product(constants: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """y = x @ w."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    return make_model([node], [value_info("x", np.float32, [2, 3])], ["y"],
                      {"w": WEIGHTS} if constants is None else constants)


def failure(path: Path) -> str:
    with pytest.raises(StrataError) as caught:
        load_model(path)
    assert caught.value.exit_status == 1 and str(path) in str(caught.value)
    return str(caught.value)


# ---------------------------------------------------------------------- the model's own file
def test_a_missing_file(tmp_path: Path):
    assert "no such file" in failure(tmp_path / "absent.onnx")


def test_a_folder(tmp_path: Path):
    (tmp_path / "folder.onnx").mkdir()
    assert "it is not a file" in failure(tmp_path / "folder.onnx")


def test_a_file_over_2_gb(tmp_path: Path):
    path = tmp_path / "big.onnx"
    with path.open("wb") as file:
        file.truncate(2**31)  # sparse: takes no room
    assert "more than 2 GB" in failure(path)


@pytest.mark.parametrize(("contents", "reason"), [
    (b"", "empty"), (b"this is no model at all", "not an ONNX model"),
    (b"\0" * 64, "not an ONNX model"),
    (b"\x08\x08", "no graph"),
])
def test_other_contents(contents: bytes, reason: str, tmp_path: Path):
    path = tmp_path / "other.onnx"
    path.write_bytes(contents)
    assert reason in failure(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file(share: float, tmp_path: Path):
    whole = product().SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(whole[:int(len(whole) * share)])
    assert "cannot read" in failure(path)


def test_a_name_of_no_frontend():
    with pytest.raises(StrataError, match="no frontend accepts"):
        load_model("model.unknown")


def test_weights_that_do_not_fill_their_shape(tmp_path: Path):
    model = product()
    model.graph.initializer[0].raw_data = b"1234"
    text = failure(save(model, tmp_path))
    assert "initializer 'w'" in text and "has 4 bytes" in text


def test_weights_in_typed_fields(tmp_path: Path):
    model = product({})
    model.graph.initializer.append(
        helper.make_tensor("w", TensorProto.FLOAT, [3, 4], WEIGHTS.reshape(-1).tolist()))
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(run_imported(load_model(save(model, tmp_path)), {"x": x})[0],
                                  x @ WEIGHTS)
    model.graph.initializer[0].dims[:] = [3, 5]
    assert "does not fill its shape" in failure(save(model, tmp_path, "bad.onnx"))


def test_weights_of_a_type_that_we_lack(tmp_path: Path):
    model = product({})
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.COMPLEX64, [1], [1j]))
    assert "element type COMPLEX64 is not supported" in failure(save(model, tmp_path))


def test_weights_stay_in_the_file(tmp_path: Path):
    weights = np.random.default_rng(0).standard_normal((3, 400), np.float32)
    imported = load_model(save(product({"w": weights}), tmp_path))
    (array,) = imported.weights.arrays.values()
    assert not array.flags.owndata and not array.flags.writeable
    np.testing.assert_array_equal(array, weights)


def test_weights_without_a_use_are_left_out(tmp_path: Path):
    weights = np.zeros((3, 40), np.float32)
    imported = load_model(save(product({"w": weights, "unused": weights + 1}), tmp_path))
    assert len(imported.weights.arrays) == 1


# ---------------------------------------------------------------------- external data
def external(folder: Path, **entries: str) -> Path:
    """The model with its weights in `model.weights`, behind 8 other bytes."""
    (folder / "model.weights").write_bytes(bytes(8) + WEIGHTS.tobytes())
    model = product()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in ({"location": "model.weights", "offset": "8", "length": "48"}
                       | entries).items():
        tensor.external_data.add(key=key, value=value)
    return save(model, folder)


def test_external_data(tmp_path: Path):
    x = np.ones((2, 3), np.float32)
    imported = load_model(external(tmp_path))
    np.testing.assert_array_equal(run_imported(imported, {"x": x})[0], x @ WEIGHTS)


@pytest.mark.parametrize(("entries", "reason"), [
    ({"location": "absent"}, "does not exist"), ({"location": ""}, "names no file"),
    ({"location": "../outside"}, "outside the model's folder"),
    ({"location": "/etc/passwd"}, "outside the model's folder"),
    ({"offset": "-8"}, "not a number of bytes"), ({"offset": "eight"}, "not a number of bytes"),
    ({"length": "4x"}, "not a number of bytes"), ({"length": "44"}, "has 44 bytes"),
    ({"offset": "12"}, "beyond the end"), ({"offset": "9" * 30}, "beyond the end"),
])
def test_bad_external_data(entries: dict[str, str], reason: str, tmp_path: Path):
    (tmp_path / "outside").write_bytes(bytes(100))
    folder = tmp_path / "inside"
    folder.mkdir()
    text = failure(external(folder, **entries))
    assert reason in text and "initializer 'w'" in text


Spoil = Callable[[Path], object]


@pytest.mark.parametrize(("spoil", "reason"), [
    (lambda p: p.write_bytes(bytes(20)), "beyond the end"),
    (lambda p: p.write_bytes(b""), "beyond the end"), (lambda p: p.unlink(), "does not exist"),
    (lambda p: (p.unlink(), p.mkdir()), "does not exist"),
])
def test_spoilt_external_data(spoil: Spoil, reason: str, tmp_path: Path):
    path = external(tmp_path)
    spoil(tmp_path / "model.weights")
    assert reason in failure(path)


def test_a_symbolic_link_out_of_the_folder(tmp_path: Path):
    (tmp_path / "outside").write_bytes(bytes(100))
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "outside")
    assert "outside the model's folder" in failure(external(folder, location="link"))
