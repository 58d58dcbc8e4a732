"""Sizes that only a run knows: shape operands as inputs, and results as large as the data says.

Each model is imported once and run at several sizes; onnxruntime says what is expected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper

from compiler.diagnostics import StrataError
from compiler.frontend import ImportedModel, MemoryModel, UnknownContents, load_model
from dialects.strata.sizes import SizeOp
from dialects.strata.types import Array
from tests.frontend.onnx_models import (
    assert_close,
    make_model,
    run_imported,
    run_reference,
    value_info,
)

Case = Mapping[str, Any]


def numbers(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def import_node(op: str, cases: Sequence[Case], outputs: int = 1, opset: int = 18,
                constants: Mapping[str, Array] | None = None, **attributes: Any) -> ImportedModel:
    """A node whose inputs are those of the cases; dims that differ between cases are open."""
    model = model_of(op, cases, outputs, opset, constants, **attributes)
    return load_model(MemoryModel("model.onnx", model.SerializeToString()))


def model_of(op: str, cases: Sequence[Case], outputs: int, opset: int,
             constants: Mapping[str, Array] | None, **attributes: Any) -> Any:
    arrays = {name: [np.asarray(case[name]) for case in cases] for name in cases[0]}
    infos = [value_info(name, own[0].dtype, [
        sizes[0] if len(set(sizes)) == 1 else f"{name}{k}"
        for k, sizes in enumerate(zip(*(a.shape for a in own), strict=True))])
        for name, own in arrays.items()]
    names = [f"y{k}" for k in range(outputs)]
    inputs = [*arrays, *(constants or {})]
    node = helper.make_node(op, sorted(inputs), names, name="node", **attributes)
    return make_model([node], infos, names, constants, opset)


def check(op: str, *cases: Case, outputs: int = 1, opset: int = 18,
          constants: Mapping[str, Array] | None = None, **attributes: Any) -> ImportedModel:
    """Inputs are in the order of their names: a, b, c ..."""
    ours = import_node(op, cases, outputs, opset, constants, **attributes)
    model = model_of(op, cases, outputs, opset, constants, **attributes)
    for case in cases:
        feeds = {name: np.asarray(value) for name, value in case.items()}
        assert_close(run_imported(ours, feeds), run_reference(model, feeds), 1e-5)
    return ours


def bound(module: ImportedModel) -> int:
    return sum(isinstance(op, SizeOp) for op in module.module.walk())


# ---------------------------------------------------------------------- shapes as inputs
def test_reshape():
    check("Reshape", {"a": numbers(4, 6), "b": [3, 8]}, {"a": numbers(2, 5), "b": [-1, 2]},
          {"a": numbers(3, 4), "b": [0, -1]}, {"a": numbers(6, 4), "b": [12, 2]})


def test_reshape_with_zeros_that_mean_zero():
    check("Reshape", {"a": numbers(0, 6), "b": [3, 0]}, {"a": numbers(2, 5), "b": [5, 2]},
          allowzero=1)


def test_a_shape_that_does_not_fit_is_an_error_of_the_run():
    case = {"a": numbers(4, 6), "b": np.array([3, 8])}
    module = import_node("Reshape", [case, {"a": numbers(2, 2), "b": [2, 2]}])
    with pytest.raises(Exception, match="node 'node'"):
        run_imported(module, {"a": case["a"], "b": np.array([5, 5])})


def test_known_elements_of_a_shape_stay_known():
    """Concat([run-time], [3]): only the first is bound."""
    nodes = [helper.make_node("Concat", ["n", "three"], ["shape"], axis=0),
             helper.make_node("Expand", ["x", "shape"], ["y"])]
    model = make_model(nodes, [value_info("x", np.float32, [1, 3]), value_info("n", np.int64, [1])],
                       ["y"], {"three": np.array([3])})
    module = load_model(MemoryModel("model.onnx", model.SerializeToString()))
    assert bound(module) == 1
    for n in (0, 1, 4):
        feeds = {"x": numbers(1, 3), "n": np.array([n])}
        assert_close(run_imported(module, feeds), run_reference(model, feeds), 0)


def test_a_tensor_is_bound_once():
    nodes = [helper.make_node("Expand", ["x", "shape"], ["a"]),
             helper.make_node("ConstantOfShape", ["shape"], ["b"]),
             helper.make_node("Add", ["a", "b"], ["y"])]
    model = make_model(nodes, [value_info("x", np.float32, []), value_info("shape", np.int64, [2])],
                       ["y"])
    module = load_model(MemoryModel("model.onnx", model.SerializeToString()))
    feeds = {"x": np.float32(2), "shape": np.array([2, 3])}
    assert_close(run_imported(module, {k: np.asarray(v) for k, v in feeds.items()}),
                 [np.full((2, 3), 2, np.float32)], 0)


@pytest.mark.parametrize("steps", [[1, 1], [2, -1], [-1, 3], [-2, -3]])
def test_slice(steps: list[int]):
    bounds = [([0, 0], [2, 2]), ([-3, 1], [2**62, -1]), ([-100, 5], [100, -(2**62)]),
              ([4, -1], [-100, -3]), ([2, 2], [2, 2])]
    check("Slice", *({"a": numbers(n, 6), "b": start, "c": end}
                     for n in (4, 5) for start, end in bounds),
          constants={"d": np.array([0, 1]), "e": np.array(steps)})


def test_slice_of_positions_inside():
    """Where both ends are run-time, the step positive, and nothing else is given."""
    check("Slice", {"a": numbers(4), "b": [1], "c": [3]}, {"a": numbers(7), "b": [-2], "c": [9]})


def test_pad():
    check("Pad", {"a": numbers(3, 4), "b": [1, 0, 2, 3]}, {"a": numbers(3, 4), "b": [0, 0, 0, 0]},
          {"a": numbers(3, 4), "b": [-1, 2, 1, -2]})


def test_expand():
    check("Expand", {"a": numbers(3, 1), "b": [3, 4]}, {"a": numbers(1, 1), "b": [2, 1]},
          {"a": numbers(2, 1), "b": [1, 5]})


def test_tile_and_constant_of_shape():
    check("Tile", {"a": numbers(3, 2), "b": [2, 1]}, {"a": numbers(1, 2), "b": [0, 3]})
    check("ConstantOfShape", {"a": [2, 3]}, {"a": [0, 4]})


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
def test_range(dtype: Any):
    limits = [(0, 5, 1), (5, 0, -2), (3, 3, 1), (1, 10, 4), (4, 1, 1)]
    cases = [{name: np.array(v, dtype) for name, v in zip("abc", limit, strict=True)}
             for limit in limits]
    check("Range", *cases)


def test_top_k():
    module = check("TopK", {"a": numbers(3, 6), "b": [2]}, {"a": numbers(3, 6), "b": [6]},
                   {"a": numbers(3, 6), "b": [0]}, outputs=2)
    with pytest.raises(Exception, match="<= 6"):
        run_imported(module, {"a": numbers(3, 6), "b": np.array([7])})


def test_split():
    module = check("Split", {"a": numbers(6, 2), "b": [2, 4]}, {"a": numbers(6, 2), "b": [5, 1]},
                   outputs=2)
    with pytest.raises(Exception, match="== 6"):
        run_imported(module, {"a": numbers(6, 2), "b": np.array([1, 1])})


def test_one_hot():
    check("OneHot", *({"a": np.array([0, 2, -1]), "b": np.array(n), "c": np.float32([0, 1])}
                      for n in (3, 5)))


def test_resize_to_sizes():
    check("Resize", *({"a": numbers(1, 1, 4, 4), "d": s} for s in ([1, 1, 8, 8], [1, 1, 2, 6])),
          constants={"b": np.zeros(0, np.float32), "c": np.zeros(0, np.float32)}, mode="linear")


def test_what_must_be_constant_names_the_input():
    for op, case in (("ReduceSum", {"a": numbers(3, 2), "b": [1]}),
                     ("Unsqueeze", {"a": numbers(3, 2), "b": [1]})):
        with pytest.raises(UnknownContents) as caught:
            import_node(op, [case])
        assert caught.value.inputs == {"b"}


def test_floats_are_no_sizes():
    with pytest.raises(StrataError):
        import_node("ConstantOfShape", [{"a": np.float32([2, 3])}])


# ---------------------------------------------------------------------- results of any size
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_non_zero(dtype: Any):
    source = np.random.default_rng(0)
    check("NonZero", *({"a": source.integers(0, 2, shape).astype(dtype)}
                       for shape in ((3, 4, 2), (1, 5, 2), (2, 1, 2))), {
        "a": np.zeros((2, 2, 2), dtype)})


def test_compress():
    check("Compress", {"a": numbers(3, 4), "b": [True, False, True]},
          {"a": numbers(3, 4), "b": [False] * 3}, axis=0)
    check("Compress", {"a": numbers(2, 3), "b": [False, True, True, False, True, True]})


@pytest.mark.parametrize("ordered", [0, 1])
def test_unique(ordered: int):
    source = np.random.default_rng(1)
    check("Unique", *({"a": source.integers(0, 4, n).astype(np.float32)} for n in (1, 6, 20)),
          outputs=4, sorted=ordered)


@pytest.mark.parametrize("axis", [0, -1])
def test_unique_rows(axis: int):
    source = np.random.default_rng(2)
    check("Unique", *({"a": source.integers(0, 2, shape).astype(np.int64)}
                      for shape in ((6, 2), (3, 3), (1, 2))), outputs=4, axis=axis)


@pytest.mark.parametrize("center", [0, 1])
def test_non_max_suppression(center: int):
    source = np.random.default_rng(3)
    cases = []
    for boxes, most, overlap, least in ((8, 3, 0.3, 0.2), (20, 50, 0.5, -1.0), (5, 0, 0.5, 0.0)):
        cases.append({
            "a": source.uniform(0, 1, (2, boxes, 4)).astype(np.float32),
            "b": source.uniform(0, 1, (2, 3, boxes)).astype(np.float32),
            "c": np.array([most]), "d": np.float32([overlap]), "e": np.float32([least])})
    check("NonMaxSuppression", *cases, center_point_box=center)


def test_sizes_of_data_go_on_through_shapes():
    """What NonZero found is gathered, and its number used as a size again."""
    nodes = [helper.make_node("NonZero", ["m"], ["rows"]),
             helper.make_node("Transpose", ["rows"], ["places"]),
             helper.make_node("GatherND", ["x", "places"], ["found"]),
             helper.make_node("Shape", ["found"], ["shape"]),
             helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
             helper.make_node("Sub", ["zeros", "found"], ["y"])]
    model = make_model(nodes, [value_info("m", np.bool_, ["n"]),
                               value_info("x", np.float32, ["n", 3])], ["y"])
    module = load_model(MemoryModel("model.onnx", model.SerializeToString()))
    assert bound(module) == 1
    for mask in ([True, False, True], [False], [True] * 5):
        feeds = {"m": np.array(mask), "x": numbers(len(mask), 3)}
        assert_close(run_imported(module, feeds), run_reference(model, feeds), 0)
