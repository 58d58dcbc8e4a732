"""Numbers and shapes at the edges: what onnxruntime gives, our levels and the CPU's code give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from dialects.strata.types import Array
from tests.frontend.onnx_models import make_model, run_reference, save
from tests.frontend.onnx_models import value_info as info

INF, NAN = np.inf, np.nan
FAR = 2**63 - 1


def node(op_type: str, inputs: str, outputs: str = "y", **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, ["" if i == "_" else i for i in inputs.split()],
                            outputs.split(), **attributes)


def build(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Array], folder: Path,
    constants: Mapping[str, Array] | None = None, fixed: bool = False, opset: int = 20,
) -> tuple[onnx.ModelProto, Path]:
    """A model that returns the results of the last node, all sizes open unless `fixed`."""
    infos = [info(n, a.dtype, a.shape if fixed else [f"{n}{d}" for d in range(a.ndim)])
             for n, a in inputs.items()]
    model = make_model(nodes, infos, list(nodes[-1].output), constants, opset)
    return model, save(model, folder)


def agree(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Array], folder: Path,
    constants: Mapping[str, Array] | None = None, tolerance: float = 0.0, **options: object,
) -> None:
    model, path = build(nodes, inputs, folder, constants, bool(options.pop("fixed", False)))
    expected = run_reference(model, inputs)
    for target in ("cpu", "reference"):
        executable = compiler.compile(path, target=target, cache="off", tuned="off",
                                      **options)  # type: ignore[arg-type]
        for got, want in zip(executable(**inputs), expected, strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype), target
            np.testing.assert_allclose(got, want, tolerance, 0, err_msg=target)


def refused(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Array], folder: Path, text: str,
    constants: Mapping[str, Array] | None = None,
) -> None:
    model, path = build(nodes, inputs, folder, constants)
    with pytest.raises(Exception, match=r"."):
        run_reference(model, inputs)
    executable = compiler.compile(path, cache="off", tuned="off")
    with pytest.raises(ValueError, match=text):
        executable(**inputs)


def f32(*numbers: float) -> Array:
    return np.array(numbers, np.float32)


# ---------------------------------------------------------------------- sizes of a run
@pytest.mark.parametrize(("count", "k"), [(4, 5), (299, 300)])
def test_top_k_of_too_few(count: int, k: int, tmp_path: Path):
    x = np.arange(count, dtype=np.float32)
    refused([node("TopK", "x k", "y i")], {"x": x}, tmp_path, "TopK.*<= ", {"k": np.array([k])})


@pytest.mark.parametrize(("start", "end", "step"), [
    (-1, FAR, 1), (1, FAR, 1), (1, -1, 1), (0, 3, 1), (-3, -1, 2), (-1, -FAR, -1), (2, 0, -1),
])
def test_slices_of_any_length(start: int, end: int, step: int, tmp_path: Path):
    constants = {k: np.array([v]) for k, v in
                 {"s": start, "e": end, "a": 0, "t": step}.items()}
    nodes = [node("Slice", "x s e a t")]
    model, path = build(nodes, {"x": f32(1)}, tmp_path, constants)
    executable = compiler.compile(path, cache="off", tuned="off")
    for length in (0, 1, 2, 3, 7):
        x = np.arange(length, dtype=np.float32)
        np.testing.assert_array_equal(executable(x)[0], run_reference(model, {"x": x})[0])


def test_concat_of_other_dims(tmp_path: Path):
    inputs = {"x": np.ones((2, 3), np.float32), "z": np.ones((2, 2), np.float32)}
    refused([node("Concat", "x z", axis=0)], inputs, tmp_path, "Concat.* == ")
    agree([node("Concat", "x z", axis=1)], inputs, tmp_path)


@pytest.mark.parametrize(("shape", "constant", "axis"), [
    ((2, 5), (0, 5), 0), ((0, 2, 7), (0, 2, 0), 2), ((2, 0, 7), (0, 0, 7), 0), ((0, 3), (0, 5), 1),
])
def test_concat_with_an_empty_constant(
    shape: tuple[int, ...], constant: tuple[int, ...], axis: int, tmp_path: Path
):
    agree([node("Concat", "x c", axis=axis)], {"x": np.ones(shape, np.float32)}, tmp_path,
          {"c": np.ones(constant, np.float32)})


@pytest.mark.parametrize("axis", [0, 1])
def test_elements_of_an_empty_constant(axis: int, tmp_path: Path):
    agree([node("GatherElements", "c i", axis=axis)], {"i": np.zeros((0, 5), np.int64)}, tmp_path,
          {"c": np.ones((0, 5), np.float32)})


def test_compress_with_a_longer_condition(tmp_path: Path):
    x, long = np.arange(4, dtype=np.float32), np.ones(6, np.bool_)
    agree([node("Compress", "x c", axis=0)], {"x": x, "c": long}, tmp_path)
    agree([node("Compress", "x c", axis=0)], {"x": x}, tmp_path, {"c": long})
    agree([node("Compress", "x c")], {"x": x.reshape(2, 2)}, tmp_path, {"c": long[:3]})


def test_squeeze_of_open_dims(tmp_path: Path):
    agree([node("Squeeze", "x")], {"x": np.ones((2, 3), np.float32)}, tmp_path)
    _, path = build([node("Squeeze", "x")], {"x": np.ones((1, 3), np.float32)}, tmp_path)
    executable = compiler.compile(path, cache="off", tuned="off")
    assert executable(np.ones((1, 3), np.float32))[0].shape == (3,)


def test_arg_max_of_nothing(tmp_path: Path):
    _, path = build([node("ArgMax", "x", axis=0)], {"x": f32(1)}, tmp_path)
    executable = compiler.compile(path, cache="off", tuned="off")
    with pytest.raises(ValueError, match=r"ArgMax.*1 <= "):
        executable(f32())


@pytest.mark.parametrize(("nodes", "inputs", "constant"), [
    ([node("NonZero", "x", "i"), node("Transpose", "i", "t"), node("GatherND", "c t")],
     {"x": np.ones(3, np.float32)}, (3, 0)),
    ([node("TopK", "c k", "y i", axis=0)], {"k": np.array([2])}, (3, 0)),
    ([node("Reshape", "c s", allowzero=1)], {"s": np.array([2, 0])}, (3, 0)),
    ([node("Expand", "c s")], {"s": np.array([2, 0])}, (1, 0)),
    ([node("Tile", "c s")], {"s": np.array([2, 1])}, (1, 0)),
], ids=["count", "k", "size", "expand", "tile"])
def test_sizes_that_a_run_computes_beside_an_empty_dim(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Array], constant: tuple[int, ...],
    tmp_path: Path,
):
    agree(nodes, inputs, tmp_path, {"c": np.ones(constant, np.float32)},
          fixed="x" not in inputs)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_pads_of_an_empty_dim(mode: str, tmp_path: Path):
    constants = {"p": np.array([1, 1])}
    agree([node("Pad", "x p", mode=mode)], {"x": f32(1, 2, 3)}, tmp_path, constants)
    _, path = build([node("Pad", "x p", mode=mode)], {"x": f32(1)}, tmp_path, constants)
    executable = compiler.compile(path, cache="off", tuned="off")
    with pytest.raises(ValueError, match=r"Pad.* <= "):
        executable(f32())


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("pads", [(1, 0), (1, 1), (2, 0), (0, 3), (5, 4)])
@pytest.mark.parametrize("mode", ["reflect", "wrap"])
def test_pads_beyond_an_open_size(mode: str, pads: tuple[int, int], target: str, tmp_path: Path):
    """One executable takes elements as often as the size of a call asks for, as NumPy does."""
    before, after = pads
    _, path = build([node("Pad", "x p", mode=mode)], {"x": f32(1).reshape(1, 1)}, tmp_path,
                    {"p": np.array([before, 1, after, 0])})
    executable = compiler.compile(path, target=target, cache="off", tuned="off")
    for rows in (7, 1, 2, 3, 6, 4):
        x = np.arange(4.0 * rows, dtype=np.float32).reshape(rows, 4)
        want = np.pad(x, ((before, after), (1, 0)), mode=mode)
        np.testing.assert_array_equal(executable(x)[0], want)


@pytest.mark.parametrize("trips", [0, 2])
def test_a_loop_that_collects_what_is_empty(trips: int, tmp_path: Path):
    body = helper.make_graph(
        [node("Identity", "go", "go_on"), node("Identity", "c", "z")], "body",
        [info("i", np.int64, []), info("go", np.bool_, [])],
        [info("go_on", np.bool_, []), info("z", np.float32, [3, 0])])
    agree([node("Loop", "n go0", body=body)], {"n": np.array(trips)}, tmp_path,
          {"c": np.ones((3, 0), np.float32), "go0": np.array(True)})


# ---------------------------------------------------------------------- exact numbers
def test_remainders_with_large_quotients(tmp_path: Path):
    x = f32(1e10, -1e10, 5.5, 3e38, 1, INF, NAN, -0.0)
    z = f32(3.7, 3.7, INF, 1e-37, 0, 2, 3, 4)
    agree([node("Mod", "x z", fmod=1)], {"x": x, "z": z}, tmp_path)
    wide = {"x": np.array([1e300, -7.25, 1e10]), "z": np.array([3.7, 2.5, 1e-10])}
    agree([node("Mod", "x z", fmod=1)], wide, tmp_path)


@pytest.mark.parametrize("value", [
    np.int64(2**53 + 1), np.int64(-(2**63)), np.uint64(2**64 - 1), np.uint64(2**63 + 1),
    np.int32(-5), np.bool_(True),
])
def test_pads_of_integers(value: np.generic, tmp_path: Path):
    x = np.array([1, 0], value.dtype)
    agree([node("Pad", "x p v")], {"x": x}, tmp_path,
          {"p": np.array([1, 2]), "v": np.asarray(value)})


@pytest.mark.parametrize("op_type", ["Celu", "Elu", "Selu", "Shrink", "ThresholdedRelu", "Mish",
                                     "HardSwish", "Softsign", "PRelu", "Gelu"])
def test_activations_of_a_scalar(op_type: str, tmp_path: Path):
    inputs = {"x": np.array(-0.5, np.float32)}
    constants = {"s": np.array(0.25, np.float32)} if op_type == "PRelu" else None
    agree([node(op_type, "x s" if constants else "x")], inputs, tmp_path, constants,
          tolerance=2e-6)


TENTH, THIRD = float(np.float32(0.1)), float(np.float32(0.3))


@pytest.mark.parametrize(("op_type", "attributes", "formula"), [
    ("LeakyRelu", {"alpha": 0.1}, lambda x: np.where(x < 0, TENTH * x, x)),
    ("LeakyRelu", {}, lambda x: np.where(x < 0, float(np.float32(0.01)) * x, x)),
    ("Elu", {"alpha": 0.1}, lambda x: np.where(x < 0, TENTH * np.expm1(x), x)),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.1}, lambda x: np.clip(THIRD * x + TENTH, 0, 1)),
    ("ThresholdedRelu", {"alpha": 0.1}, lambda x: np.where(x > TENTH, x, 0)),
    ("Shrink", {"bias": 0.1, "lambd": 0.3}, lambda x: np.where(
        x < -THIRD, x + TENTH, np.where(x > THIRD, x - TENTH, 0))),
    ("Celu", {"alpha": 0.3}, lambda x: np.where(x > 0, x, THIRD * np.expm1(x / THIRD))),
])
def test_attributes_of_f64_operators_are_those_of_f32(
    op_type: str, attributes: dict[str, float], formula: Callable[[Array], Array], tmp_path: Path
):
    """onnxruntime has none of them in f64, but ONNX says that attributes are f32."""
    x = np.array([-1.0, -0.3, -THIRD, 0.1, TENTH, 0.25, 2.0])
    _, path = build([node(op_type, "x", **attributes)], {"x": x}, tmp_path)
    for target in ("cpu", "reference"):
        got = compiler.compile(path, target=target, cache="off", tuned="off")(x)[0]
        np.testing.assert_allclose(got, formula(x), 1e-14, 1e-17, err_msg=target)


@pytest.mark.parametrize("dtype", [
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize(("bias", "lambd"), [
    (1.0, 0.0), (0.25, 1.25), (1.5, 2.5), (-2.5, -1.5), (2.0, 300.0), (300.0, 2.0), (0.0, -2.0)])
def test_shrink_of_integers(dtype: str, bias: float, lambd: float, tmp_path: Path):
    """ONNX's definition of it by other operators rounds both attributes to integers."""
    least = np.iinfo(dtype).min
    x = np.array([0, 1, 2, 3, 4, 5, 100, *([-1, -2, -3, -5, -100] if least else [])], dtype)
    agree([node("Shrink", "x", bias=bias, lambd=lambd)], {"x": x}, tmp_path)


def test_factors_and_epsilons_of_f64_operators(tmp_path: Path):
    rng = np.random.default_rng(3)
    x, w = rng.random((3, 4)), rng.random((4, 5))
    agree([node("Gemm", "x w b", alpha=0.1, beta=0.3)], {"x": x, "w": w, "b": rng.random(5)},
          tmp_path, tolerance=1e-14, fixed=True)
    small = 1e-3 * x
    agree([node("LayerNormalization", "x s", epsilon=1e-5)], {"x": small}, tmp_path,
          {"s": np.ones(4)}, tolerance=1e-12, fixed=True)
    parts = {n: rng.random(4) for n in "sbmv"}
    agree([node("BatchNormalization", "x s b m v", epsilon=1e-3)], {"x": x}, tmp_path,
          {**parts, "v": 1e-3 * parts["v"]}, tolerance=1e-12, fixed=True)


# ---------------------------------------------------------------------- NaN and infinities
@pytest.mark.parametrize("wide", [np.float32, np.float64])
@pytest.mark.parametrize("to", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32,
                                np.int64, np.uint64])
def test_casts_of_what_is_out_of_range(to: type, wide: type, tmp_path: Path):
    """Negative floats wrap in unsigned types; what no type holds is what onnxruntime gives."""
    x = np.array([-1.5, -300, 300, 3e9, NAN, INF, -INF, 0.9, -0.0, 1e10 if to is np.uint64 else 1],
                 wide)
    number = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    _, path = build([node("Cast", "x", to=number)], {"x": x}, tmp_path)
    results = [compiler.compile(path, target=t, cache="off", tuned="off")(x)[0]
               for t in ("cpu", "reference")]
    np.testing.assert_array_equal(*results)
    np.testing.assert_array_equal(results[0][:3], np.array([-1, -300, 300]).astype(to))
    bits = np.iinfo(to).bits
    unsigned = np.dtype(to).kind == "u"
    least = {8: 0, 16: 0}.get(bits, 2 ** (bits - 1) if unsigned else -(2 ** (bits - 1)))
    assert int(results[0][4]) == int(results[0][6]) == least


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.parametrize("zero", [0, 3, 100])
def test_quantizing_nan(dtype: type, zero: int, tmp_path: Path):
    x = np.concatenate([np.full(17, NAN, np.float32), f32(INF, -INF, 1, -1)])
    model, path = build([node("QuantizeLinear", "x s z")], {"x": x}, tmp_path,
                        {"s": np.float32(0.5), "z": np.array(zero, dtype)}, opset=21)
    expected = run_reference(model, {"x": x})[0]
    for target in ("cpu", "reference"):
        got = compiler.compile(path, target=target, cache="off", tuned="off")(x)[0]
        np.testing.assert_array_equal(got, expected, target)


def test_indices_of_a_pool_of_nan(tmp_path: Path):
    x = np.full((1, 1, 3, 3), NAN, np.float32)
    agree([node("MaxPool", "x", "y i", kernel_shape=[2, 2])], {"x": x}, tmp_path, fixed=True)


@pytest.mark.parametrize("strides", [1, 2, 3])
def test_infinite_filters_add_nothing_where_no_source_is(strides: int, tmp_path: Path):
    rng = np.random.default_rng(strides)
    x = rng.random((2, 4, 5, 6), np.float32)
    w = rng.random((4, 3, 3, 2), np.float32)
    w[1, 0, 1, 1], w[2, 1, 0, 0] = INF, -INF
    for group, filters in ((1, w), (2, w[:, :2])):
        agree([node("ConvTranspose", "x w", strides=[strides] * 2, pads=[1, 0, 0, 1],
                    output_padding=[strides - 1, 0], group=group)], {"x": x}, tmp_path,
              {"w": np.ascontiguousarray(filters)}, tolerance=1e-5, fixed=True)


def test_an_infinite_filter_is_not_shortened(tmp_path: Path):
    """Winograd's transforms would spread it over all taps."""
    x, w = np.ones((1, 32, 16, 16), np.float32), np.ones((32, 32, 3, 3), np.float32)
    w[3, 4, 1, 1] = INF
    agree([node("Conv", "x w", pads=[1] * 4)], {"x": x}, tmp_path, {"w": w}, 1e-5, fixed=True)


# ---------------------------------------------------------------------- denormals
def test_denormals_are_kept_or_flushed(tmp_path: Path):
    x = f32(1e-45, -1e-40, 1.1e-38, 3e-39, 0, 1)
    nodes = [node("Sign", "x", "a"), node("Log", "x", "b"), node("Mul", "x h", "c"),
             node("Div", "x x", "d"), node("Equal", "x z", "e")]
    inputs, constants = {"x": x}, {"h": f32(0.5), "z": f32(0)}
    model = make_model(nodes, [info("x", np.float32, ["n"])], list("abcde"), constants, 20)
    path = save(model, tmp_path)
    expected = run_reference(model, inputs)
    kept = compiler.compile(path, cache="off", tuned="off", denormals="keep")(x)
    for got, want in zip(kept, expected, strict=True):
        np.testing.assert_allclose(got, want, 1e-6, 2e-45)
    flushed = compiler.compile(path, cache="off", tuned="off")(x)
    assert flushed[4].tolist() == [True] * 5 + [False] and not flushed[2][:4].any()
