"""ONNX's backend interface, and models in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import ImportOptions, MemoryModel, UnknownContents, load_model
from compiler.onnx_backend import StrataBackend, run_node
from tests.frontend.onnx_models import make_model, run_imported, value_info

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def node(op_type: str, inputs: str, outputs: str = "y", **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), outputs.split(), **attributes)


def reshape_model() -> onnx.ModelProto:
    inputs = [value_info("x", np.float32, [2, 3]), value_info("shape", np.int64, [2])]
    return make_model([node("Reshape", "x shape", "z"), node("Neg", "z")], inputs, ["y"])


def sum_model() -> onnx.ModelProto:
    """Over axes that are an input, and that an import has to know."""
    inputs = [value_info("x", np.float32, [2, 3]), value_info("axes", np.int64, [1])]
    return make_model([node("ReduceSum", "x axes", "z"), node("Neg", "z")], inputs, ["y"])


@pytest.mark.parametrize("target", StrataBackend.targets)
def test_a_node(target: str, tmp_path: Path) -> None:
    (y,) = run_node(node("Add", "a b"), [X, X[0]], target=target, cache=tmp_path)
    np.testing.assert_array_equal(y, X + X[0])
    named = run_node(node("Sub", "a b"), {"a": X, "b": X[0]}, target=target, cache=tmp_path)
    np.testing.assert_array_equal(named[0], X - X[0])


def test_a_node_at_an_older_opset() -> None:
    cast = node("Dropout", "x", "y mask", ratio=0.5)
    y, mask = run_node(cast, [X], target="reference", opset_version=10)
    np.testing.assert_array_equal(y, X)
    assert mask.all()


@pytest.mark.parametrize("target", StrataBackend.targets)
def test_inputs_that_must_be_known_are_constants_of_what_is_compiled(
    target: str, tmp_path: Path
) -> None:
    prepared = StrataBackend.prepare(sum_model(), "CPU", target=target, cache=tmp_path)
    for axis in (0, 1, 0):
        (y,) = prepared.run([X, np.array([axis])])
        np.testing.assert_array_equal(y, -X.sum(axis, keepdims=True))
    assert prepared.fixed == {"axes"}
    assert len(prepared.compiled) == 2


@pytest.mark.parametrize("target", StrataBackend.targets)
def test_shapes_that_are_inputs_stay_inputs(target: str, tmp_path: Path) -> None:
    prepared = StrataBackend.prepare(reshape_model(), "CPU", target=target, cache=tmp_path)
    for shape in ([3, 2], [6, 1], [-1, 2]):
        (y,) = prepared.run([X, np.array(shape)])
        np.testing.assert_array_equal(y, -X.reshape(shape))
    assert not prepared.fixed
    assert len(prepared.compiled) == 1


def test_devices_and_targets() -> None:
    assert StrataBackend.supports_device("CPU")
    assert not StrataBackend.supports_device("CUDA")
    with pytest.raises(ValueError, match="device CUDA"):
        StrataBackend.prepare(reshape_model(), "CUDA")
    with pytest.raises(ValueError, match="target cuda is none of cpu, reference"):
        StrataBackend.prepare(reshape_model(), "CPU", target="cuda")


def test_a_model_in_memory() -> None:
    model = make_model([node("Relu", "x")], [value_info("x", np.float32, ["n", 3])], ["y"])
    imported = load_model(MemoryModel("small.onnx", model.SerializeToString()))
    assert imported.name == "small"
    np.testing.assert_array_equal(run_imported(imported, {"x": -X})[0], np.maximum(-X, 0))
    exe = compiler.compile(MemoryModel("small.onnx", model.SerializeToString()), target="reference")
    np.testing.assert_array_equal(exe(-X)[0], np.maximum(-X, 0))
    assert "graph.max" in exe.text("graph")


def test_bytes_in_memory_that_are_no_model() -> None:
    with pytest.raises(StrataError, match=r"cannot read broken\.onnx"):
        load_model(MemoryModel("broken.onnx", b"\x00\x01"))


def test_contents_that_are_given() -> None:
    model = MemoryModel("m.onnx", sum_model().SerializeToString())
    with pytest.raises(UnknownContents) as caught:
        load_model(model)
    assert caught.value.inputs == {"axes"}
    imported = load_model(model, ImportOptions(constants={"axes": np.array([1])}))
    np.testing.assert_array_equal(run_imported(imported, {"x": X})[0],
                                  -X.sum(1, keepdims=True))


@pytest.mark.parametrize(("constants", "message"), [
    ({"other": X}, "'other', which is not an input"),
    ({"shape": X}, "input 'shape' has elements of type i64; the given contents have f32"),
])
def test_contents_that_do_not_fit(constants: dict[str, np.ndarray], message: str) -> None:
    model = MemoryModel("m.onnx", reshape_model().SerializeToString())
    with pytest.raises(StrataError, match=message):
        load_model(model, ImportOptions(constants=constants))
