"""ONNX models with narrow types: packed weights, casts, quantization, inputs and outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import load_model
from compiler.io.arrays import kind_of, to_numpy
from compiler.io.output import npz_bytes
from compiler.onnx_backend import StrataBackend
from dialects.strata import types as t
from dialects.strata.types import Array
from tests.frontend.onnx_models import run_imported
from tests.op_samples.graph_narrow import codes

TYPES = {
    TensorProto.INT4: ml_dtypes.int4, TensorProto.UINT4: ml_dtypes.uint4,
    TensorProto.INT2: ml_dtypes.int2, TensorProto.UINT2: ml_dtypes.uint2,
    TensorProto.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    TensorProto.FLOAT8E8M0: ml_dtypes.float8_e8m0fnu,
}
for name, dtype in (("FLOAT6E2M3", ml_dtypes.float6_e2m3fn),
                    ("FLOAT6E3M2", ml_dtypes.float6_e3m2fn)):
    if hasattr(TensorProto, name):  # an older onnx has none of six bits
        TYPES[getattr(TensorProto, name)] = dtype
NAMES = {number: name for name, number in TensorProto.DataType.items()}
each_type = pytest.mark.parametrize("number", TYPES, ids=NAMES.get)
each_target = pytest.mark.parametrize("target", ["reference", "cpu"])


def values(number: int, *shape: int) -> Array:
    """Numbers of all signs, whose count is no multiple of what a byte holds."""
    every = np.arange(np.prod(shape)) % 7 - (3 if number not in (
        TensorProto.UINT4, TensorProto.UINT2, TensorProto.FLOAT8E8M0) else -1)
    return every.astype(TYPES[number]).reshape(shape)


def model_of(
    nodes: list[onnx.NodeProto], inputs: dict[str, Array], outputs: list[str],
    constants: list[onnx.TensorProto] | None = None,
) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
             for name, a in inputs.items()]
    graph = helper.make_graph(nodes, "narrow", infos, [
        helper.make_empty_tensor_value_info(name) for name in outputs], constants or [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)


def run(model: onnx.ModelProto, inputs: dict[str, Array], target: str) -> list[Array]:
    return list(StrataBackend.run_model(model, inputs, target=target, threads=1))


def assert_same(got: Array, want: Array) -> None:
    """Equal bits of what is stored, whatever NumPy knows of the type."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert got.tobytes() == want.tobytes(), f"{got} instead of {want}"


# ---------------------------------------------------------------------- weights
def as_raw(name: str, array: Array) -> onnx.TensorProto:
    return numpy_helper.from_array(array, name)


def as_numbers(name: str, array: Array) -> onnx.TensorProto:
    """In `int32_data`, of which each entry holds a byte of the packed data, or six bits."""
    raw = as_raw(name, array)
    found = TensorProto(name=name, data_type=raw.data_type, dims=raw.dims)
    is_byte = t.bit_width(t.element_of(array.dtype)) != 6
    found.int32_data.extend(raw.raw_data if is_byte else array.tobytes())
    return found


@each_type
@pytest.mark.parametrize("stored", [as_raw, as_numbers], ids=["raw", "numbers"])
def test_weights_of_a_file(number: int, stored: Any) -> None:
    want = values(number, 3, 7)
    node = helper.make_node("Identity", ["w"], ["y"])
    [got] = run(model_of([node], {}, ["y"], [stored("w", want)]), {}, "reference")
    assert_same(got, want)


@each_type
def test_weights_beside_a_file(number: int, tmp_path: Path) -> None:
    want = values(number, 3, 7)
    model = model_of([helper.make_node("Identity", ["w"], ["y"])], {}, ["y"], [as_raw("w", want)])
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    [got] = run_imported(load_model(tmp_path / "m.onnx"), {})
    assert_same(got, want)


@pytest.mark.parametrize("number", [TensorProto.INT4, TensorProto.UINT2], ids=NAMES.get)
def test_packed_weights_that_do_not_fill_their_shape(number: int, tmp_path: Path) -> None:
    weight = as_raw("w", values(number, 3, 7))
    needed = len(weight.raw_data)
    weight.raw_data = weight.raw_data[:-1]
    model = model_of([helper.make_node("Identity", ["w"], ["y"])], {}, ["y"], [weight])
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(StrataError, match=f"it has {needed - 1} bytes .* need {needed}"):
        load_model(tmp_path / "m.onnx")


# ---------------------------------------------------------------------- operators
@each_target
@each_type
def test_elements_are_moved(number: int, target: str) -> None:
    x = values(number, 3, 5)
    nodes = [helper.make_node("Transpose", ["x"], ["a"], perm=[1, 0]),
             helper.make_node("Concat", ["a", "a"], ["b"], axis=1),
             helper.make_node("Reshape", ["b", "shape"], ["y"])]
    shape = numpy_helper.from_array(np.array([2, 15]), "shape")
    [got] = run(model_of(nodes, {"x": x}, ["y"], [shape]), {"x": x}, target)
    assert_same(got, np.concatenate([x.T, x.T], 1).reshape(2, 15))


@each_target
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("number", [TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2FNUZ],
                         ids=NAMES.get)
def test_quantization_rounds_once(number: int, saturate: int, target: str) -> None:
    x = np.linspace(-900, 900, 333, dtype=np.float32)
    scale, zero = np.float32(1.75), np.zeros((), TYPES[number])
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], saturate=saturate),
             helper.make_node("DequantizeLinear", ["q", "s"], ["y"])]
    model = model_of(nodes, {"x": x}, ["q", "y"], [
        numpy_helper.from_array(np.array(scale), "s"), numpy_helper.from_array(zero, "z")])
    for got, want in zip(run(model, {"x": x}, target),
                         ReferenceEvaluator(model).run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


@each_target
@pytest.mark.parametrize("number", [TensorProto.INT4, TensorProto.UINT4], ids=NAMES.get)
def test_weights_in_blocks(number: int, target: str) -> None:
    """What exporters make of a layer with 4-bit weights: a scale per 8 of a column."""
    random = np.random.default_rng(0)
    x = random.standard_normal((3, 24)).astype(np.float32)
    scale = random.uniform(0.1, 1, (3, 10)).astype(np.float32)
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, block_size=8),
             helper.make_node("MatMul", ["x", "d"], ["y"])]
    model = model_of(nodes, {"x": x}, ["y"], [
        as_raw("w", values(number, 24, 10)), numpy_helper.from_array(scale, "s"),
        as_raw("z", values(number, 3, 10))])
    [want] = ReferenceEvaluator(model).run(None, {"x": x})
    [got] = run(model, {"x": x}, target)
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


@each_target
def test_casting_to_its_own_type_saturates(target: str) -> None:
    x = codes(t.f8E5M2)
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E5M2)
    [got] = run(model_of([node], {"x": x}, ["y"]), {"x": x}, target)
    numbers = got.astype(np.float32)
    assert not np.isinf(numbers).any() and np.isnan(numbers).sum() == 6
    assert (np.abs(numbers[~np.isnan(numbers)]) <= 57344).all()


EIGHT_BITS = ["f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ"]


@each_target
@pytest.mark.parametrize("element", EIGHT_BITS)
def test_floats_of_8_bits_are_tested_for_nan_and_infinities(element: str, target: str) -> None:
    x = codes(getattr(t, element))
    wide, nodes = x.astype(np.float32), [
        helper.make_node("IsNaN", ["x"], ["nan"]), helper.make_node("IsInf", ["x"], ["inf"]),
        helper.make_node("IsInf", ["x"], ["above"], detect_negative=0),
        helper.make_node("IsInf", ["x"], ["below"], detect_positive=0)]
    found = run(model_of(nodes, {"x": x}, ["nan", "inf", "above", "below"]), {"x": x}, target)
    assert np.isnan(wide).any()
    for got, want in zip(found, (np.isnan(wide), np.isinf(wide), wide == np.inf, wide == -np.inf),
                         strict=True):
        np.testing.assert_array_equal(got, want)


@each_target
@pytest.mark.parametrize("element", EIGHT_BITS)
def test_products_of_floats_of_8_bits(element: str, target: str) -> None:
    dtype = t.dtype_of(getattr(t, element))
    a, b = (np.arange(k, k + 6).reshape(s).astype(dtype) for k, s in ((-2, (2, 3)), (1, (3, 2))))
    names = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
    model = model_of([helper.make_node("QLinearMatMul", names, ["y"])], {"a": a, "b": b}, ["y"], [
        *(numpy_helper.from_array(np.float32(s), n)
          for n, s in (("sa", 0.5), ("sb", 0.25), ("sy", 0.125))),
        *(numpy_helper.from_array(np.asarray(z, dtype), n)
          for n, z in (("za", 1.0), ("zb", 0.0), ("zy", 0.0)))])
    [got] = run(model, {"a": a, "b": b}, target)
    want = (a.astype(np.float32) - 1) @ b.astype(np.float32)
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(dtype).astype(np.float32))


# ---------------------------------------------------------------------- arrays
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
                                  "float8_e5m2fnuz"])
def test_torch_tensors_come_and_go(name: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([[1.5, -2.0, 0.0]]).to(getattr(torch, name))
    array, back = to_numpy(tensor), kind_of(tensor)
    assert array.dtype.name == name and array.astype(np.float32).tolist() == [[1.5, -2.0, 0.0]]
    assert back is not None and back(array).dtype == tensor.dtype
    assert torch.equal(back(array).float(), tensor.float())
    short = back(np.array([-8, 7], ml_dtypes.int4))
    assert short.dtype == torch.int8 and short.tolist() == [-8, 7]


def test_files_of_results_hold_numbers(tmp_path: Path) -> None:
    arrays = {"f": np.array([1.5, -2.0], ml_dtypes.float8_e5m2),
              "i": np.array([-8, 7], ml_dtypes.int4)}
    path = tmp_path / "y.npz"
    path.write_bytes(npz_bytes(arrays))
    with np.load(path) as found:
        assert found["f"].dtype == np.float32 and found["f"].tolist() == [1.5, -2.0]
        assert found["i"].dtype == np.int8 and found["i"].tolist() == [-8, 7]


def test_a_wrong_type_is_named(tmp_path: Path) -> None:
    x = np.zeros(3, ml_dtypes.int4)
    onnx.save(model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": x}, ["y"]),
              tmp_path / "m.onnx")
    exe = compiler.compile(str(tmp_path / "m.onnx"), target="reference")
    with pytest.raises(ValueError, match=r"input 'x' must be int4, not int8"):
        exe(np.zeros(3, np.int8))
