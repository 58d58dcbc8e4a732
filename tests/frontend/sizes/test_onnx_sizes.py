"""Size names of inputs, options on them, and shape computations followed through the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.diagnostics import StrataError
from compiler.frontend import ImportedModel, ImportOptions, load_model
from dialects.graph.base import GraphOp
from dialects.strata.assumptions import SizeError
from dialects.strata.func import FuncOp, main_function
from dialects.strata.types import TensorType
from dialects.text.syntax import location_name
from tests.frontend.onnx_models import assert_close, make_model, run_imported, run_reference, save
from tests.frontend.onnx_models import value_info as info


def node(op_type: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), outputs.split(), **attributes)


def relu(shape: Sequence[int | str] | None, name: str = "x") -> onnx.ModelProto:
    return make_model([node("Relu", name, "y")], [info(name, np.float32, shape)], ["y"])


def signature(model: onnx.ModelProto, folder: Path, **options: object) -> str:
    return types_of(load(model, folder, **options))


def load(model: onnx.ModelProto, folder: Path, **options: object) -> ImportedModel:
    return load_model(save(model, folder), ImportOptions(**options))  # type: ignore[arg-type]


def types_of(imported: ImportedModel) -> str:
    arguments = main_function(imported.module).body.block.args
    return " ".join(a.type.short for a in arguments if isinstance(a.type, TensorType))


def results_of(imported: ImportedModel) -> list[str]:
    return [str(r) for r in main_function(imported.module).result_types_.data]


def graph_ops(function: FuncOp) -> list[str]:
    return [op.name.removeprefix("graph.") for op in function.walk() if isinstance(op, GraphOp)]


# ---------------------------------------------------------------------- names
@pytest.mark.parametrize(("shape", "expected"), [
    (["batch", 3], "f32[batch, 3]"), (["?", 3, "?"], "f32[x_d0, 3, x_d2]"),
    ([-1, 3, 0, ""], "f32[x_d0, 3, x_d2, x_d3]"), (["i0", "t3", "if"], 'f32["i0", "t3", if]'),
    (["p2o.Dim.0", "a b", "a_b", "2x"], 'f32[p2o.Dim.0, "a b", a_b, "2x"]'),
    (["n", "n + 1", "2*n", "m + 1"], 'f32[n, n + 1, 2*n, "m + 1"]'), ([], "f32[]"),
    (["größe"], 'f32["größe"]'), (["x_d1", "?"], "f32[x_d1, x_d1_v2]"),
])
def test_names_of_sizes(shape: list[int | str], expected: str, tmp_path: Path):
    assert signature(relu(shape), tmp_path) == expected


def test_names_of_values_and_locations(tmp_path: Path):
    model = relu([2], "in:put/x")
    model.graph.node[0].name = "layer1/relu"
    imported = load(model, tmp_path)
    function = main_function(imported.module)
    assert function.input_names == ["in:put/x"] and "%in_put_x" in str(imported.module)
    assert [location_name(op) for op in function.walk() if isinstance(op, GraphOp)] == [
        "layer1/relu"]


# ---------------------------------------------------------------------- options
def test_options_fix_sizes(tmp_path: Path):
    model = relu(["batch", 3, "h.0", "?"])
    assert signature(model, tmp_path, dims={"batch": 8, "h.0": 5}) == "f32[8, 3, 5, x_d3]"
    assert signature(model, tmp_path, dims={"h.0": 5, "x_d3": 7}) == "f32[batch, 3, 5, 7]"
    assert signature(model, tmp_path, shapes={"x": (1, 3, "height", 9)}) == "f32[1, 3, height, 9]"
    assert signature(relu(None), tmp_path, shapes={"x": ("n", 4)}) == "f32[n, 4]"


def test_a_shape_fixes_its_names_everywhere(tmp_path: Path):
    inputs = [info("x", np.float32, ["n", "m"]), info("z", np.float32, ["m", 2])]
    model = make_model([node("MatMul", "x z", "y")], inputs, ["y"])
    assert signature(model, tmp_path, shapes={"x": (4, 6)}) == "f32[4, 6] f32[6, 2]"
    renamed = signature(model, tmp_path, shapes={"x": ("k", "l")}, dims={"l": 3})
    assert renamed == "f32[k, 3] f32[3, 2]"


@pytest.mark.parametrize(("options", "text"), [
    ({"dims": {"width": 3}}, "names 'width', which is not a size"),
    ({"dims": {"n": 0}}, "must be at least 1"), ({"shapes": {"z": (1,)}}, "which is not an input"),
    ({"shapes": {"x": (1,)}}, "1 dims; the model has 2"),
    ({"shapes": {"x": (1, 4)}}, "but it is 3"), ({"shapes": {"x": (-1, 3)}}, "at least 1"),
    ({"shapes": {"x": (2, 3)}, "dims": {"n": 4}}, "gives it the size 2"),
])
def test_bad_options(options: dict[str, object], text: str, tmp_path: Path):
    with pytest.raises(StrataError, match=text):
        signature(relu(["n", 3]), tmp_path, **options)


def test_an_input_without_a_shape(tmp_path: Path):
    with pytest.raises(StrataError, match="has neither a shape"):
        load(relu(None), tmp_path)


def test_initializers_that_are_also_inputs_are_constants(tmp_path: Path):
    inputs = [info("x", np.float32, [3]), info("w", np.float32, [3])]
    model = make_model([node("Add", "x w", "y")], inputs, ["y"], {"w": np.ones(3, np.float32)})
    assert signature(model, tmp_path) == "f32[3]"


# ---------------------------------------------------------------------- shape computations
def flattened_by_hand() -> onnx.ModelProto:
    """reshape(x, [shape(x)[0], -1]), as exporters write it."""
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n axes", "n1"), node("Concat", "n1 rest", "to", axis=0),
        node("Cast", "to", "to32", to=6), node("Cast", "to32", "to64", to=7),
        node("Reshape", "x to64", "y"),
    ]
    constants = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    return make_model(nodes, [info("x", np.float32, ["n", 3, "h"])], ["y"], constants)


def test_shape_computations_leave_no_operations(tmp_path: Path):
    function = main_function(load(flattened_by_hand(), tmp_path).module)
    assert graph_ops(function) == ["reshape"]
    assert [str(r) for r in function.result_types_.data] == ["f32[n, 3*h]"]


def test_sizes_as_numbers(tmp_path: Path):
    """x * width, where the width is a value: `graph.sizes` in the place of its computation."""
    nodes = [node("Shape", "x", "s"), node("Gather", "s one", "w"),
             node("Cast", "w", "wf", to=1), node("Mul", "x wf", "y")]
    model = make_model(nodes, [info("x", np.float32, ["n", "w"])], ["y"], {"one": np.array(1)})
    imported = load(model, tmp_path)
    assert graph_ops(main_function(imported.module)) == ["sizes", "cast", "mul"]
    x = {"x": np.ones((2, 5), np.float32)}
    assert_close(run_imported(imported, x), run_reference(model, x), 1e-6)


def test_expanding_with_a_mask_of_sizes(tmp_path: Path):
    """Where(shape == -1, ones, shape), which exporters put before every Expand."""
    nodes = [
        node("Shape", "x", "s"), node("Slice", "s zero one", "n"),
        node("Concat", "minus n", "to", axis=0), node("ConstantOfShape", "two", "ones",
            value=helper.make_tensor("v", 7, [1], [1])),
        node("Mul", "ones minus", "all"), node("Equal", "to all", "same"),
        node("Where", "same ones to", "shape"), node("Expand", "row shape", "y"),
    ]
    constants = {"zero": np.array([0]), "one": np.array([1]), "minus": np.array([-1]),
                 "two": np.array([2]), "row": np.arange(3, dtype=np.float32).reshape(3, 1)}
    model = make_model(nodes, [info("x", np.float32, ["n", 4])], ["y"], constants)
    imported = load(model, tmp_path)
    assert graph_ops(main_function(imported.module)) == ["constant", "broadcast"]
    x = {"x": np.ones((6, 4), np.float32)}
    assert_close(run_imported(imported, x), run_reference(model, x), 0)


@pytest.mark.parametrize("length", [1, 2, 3, 6, 9])
@pytest.mark.parametrize(("start", "end", "step"), [
    (0, 4, 1), (2, 2**63 - 1, 1), (-3, 9, 2), (1, -1, 1), (-1, -(2**63), -1), (4, 0, -2),
])
def test_slices_of_open_sizes(start: int, end: int, step: int, length: int, tmp_path: Path):
    """Bounds are clamped to the size, which is known only at run time."""
    constants = {k: np.array([v]) for k, v in
                 {"start": start, "end": end, "axis": 0, "step": step}.items()}
    model = make_model([node("Slice", "x start end axis step", "y")],
                       [info("x", np.float32, ["n"])], ["y"], constants)
    x = np.arange(length, dtype=np.float32)
    (y,) = run_imported(load(model, tmp_path), {"x": x})
    np.testing.assert_array_equal(y, x[start:max(min(end, 99), -99) if step > 0 or end >= 0
                                       else None:step])


@pytest.mark.parametrize("sizes", [(2, 3), (5, 4)])
def test_slices_and_pads_by_open_sizes(sizes: tuple[int, int], tmp_path: Path):
    """The last n of x's rows, then as many zeros as z has columns in front of them."""
    nodes = [
        node("Shape", "z", "s"), node("Neg", "s", "minus"), node("Slice", "minus zero one", "n"),
        node("Slice", "x n far axis", "part"), node("Slice", "s one two", "m"),
        node("Concat", "m zero", "pads", axis=0), node("Pad", "part pads", "y"),
    ]
    constants = {"zero": np.array([0]), "one": np.array([1]), "two": np.array([2]),
                 "far": np.array([2**62]), "axis": np.array([0])}
    inputs = [info("x", np.float32, ["k"]), info("z", np.float32, ["n", "m"])]
    model = make_model(nodes, inputs, ["y"], constants)
    given = {"x": np.arange(1, 5, dtype=np.float32), "z": np.zeros(sizes, np.float32)}
    assert_close(run_imported(load(model, tmp_path), given), run_reference(model, given), 0)


@pytest.mark.parametrize("length", [1, 7, 8, 20])
def test_padding_to_a_length_makes_it_constant(length: int, tmp_path: Path):
    """Cut or filled up to 8: n + (8 - n) is 8, whichever of the two happens."""
    nodes = [node("Shape", "x", "n"), node("Sub", "eight n", "more"),
             node("Concat", "zero more", "pads", axis=0), node("Pad", "x pads", "y")]
    constants = {"zero": np.array([0]), "eight": np.array([8])}
    model = make_model(nodes, [info("x", np.float32, ["n"])], ["y"], constants)
    imported = load(model, tmp_path)
    assert results_of(imported) == ["f32[8]"]
    given = {"x": np.arange(1, length + 1, dtype=np.float32)}
    assert_close(run_imported(imported, given), run_reference(model, given), 0)


def test_initial_states_tell_the_batch(tmp_path: Path):
    """Squeeze removes the batch dim, whose size only the layer's initial state has as a number."""
    nodes = [node("GRU", "x w r none none h", "y", hidden_size=2), node("Squeeze", "y", "z")]
    nodes[0].input[3:5] = ["", ""]
    constants = {"w": np.ones((1, 6, 3), np.float32), "r": np.ones((1, 6, 2), np.float32)}
    inputs = [info("x", np.float32, [4, "batch", 3]), info("h", np.float32, [1, 1, 2])]
    imported = load(make_model(nodes, inputs, ["z"], constants), tmp_path)
    assert results_of(imported) == ["f32[4, 2]"]
    with pytest.raises(SizeError, match="batch == 1"):
        run_imported(imported, {"x": np.zeros((4, 2, 3), np.float32),
                                "h": np.zeros((1, 1, 2), np.float32)})


@pytest.mark.parametrize(("shape", "warned"), [
    ([1, "n"], False), ([3, 4], True), ([], True), ([3, "n", 5], True), ([1, 2, 3, 4], True),
    ([0, "n", 4], False), (None, False),
])
def test_a_wrong_declared_shape_is_a_warning(
    shape: list[int | str] | None, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Of an output and of a value between; open sizes promise nothing, also not their number."""
    nodes = [node("Relu", "x", "h"), node("Neg", "h", "y")]
    model = make_model(nodes, [info("x", np.float32, [3, "n", 4])], ["y"])
    model.graph.output[0].CopyFrom(info("y", np.float32, shape))
    model.graph.value_info.append(info("h", np.float32, shape))
    assert results_of(load(model, tmp_path)) == ["f32[3, n, 4]"]
    told = [r.getMessage() for r in caplog.records]
    assert [("'h'" in t, "'y'" in t) for t in told] == (
        [(False, True), (True, False)] if warned else [])


def test_a_wrong_declared_element_type_is_refused(tmp_path: Path):
    """As onnxruntime does."""
    model = make_model([node("Relu", "x", "y")], [info("x", np.float32, [3])], ["y"])
    model.graph.output[0].CopyFrom(info("y", np.float16, [3]))
    with pytest.raises(StrataError, match="declares elements of FLOAT16"):
        load(model, tmp_path)


def test_dims_with_the_same_letter_have_the_same_size(tmp_path: Path):
    """In Einsum's diagonals: onnxruntime refuses others, too."""
    model = make_model([node("Einsum", "x", "y", equation="iij->ij")],
                       [info("x", np.float32, ["n", "m", 2])], ["y"])
    imported = load(model, tmp_path)
    x = np.arange(18, dtype=np.float32).reshape(3, 3, 2)
    assert_close(run_imported(imported, {"x": x}), run_reference(model, {"x": x}), 1e-6)
    for shape in ((1, 3, 2), (3, 1, 2), (0, 2, 2)):
        with pytest.raises(SizeError, match="n == m"):
            run_imported(imported, {"x": np.zeros(shape, np.float32)})
    model.graph.input[0].CopyFrom(info("x", np.float32, [1, 3, 2]))
    with pytest.raises(StrataError, match="have the same letter 'i', but the sizes 1 and 3"):
        load(model, tmp_path)
