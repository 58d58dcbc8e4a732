"""What fuzzing found, as small as it becomes: models that once crashed, hung, or computed wrong."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import MemoryModel
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from tests.frontend.onnx_models import make_model, value_info
from tests.fuzz.seed_models import node

Shapes = Sequence[tuple[int, ...]]
X = value_info("x", np.float32, ["n", 4])
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]


def memory_model(model: onnx.ModelProto) -> MemoryModel:
    return MemoryModel("model.onnx", model.SerializeToString())


def lower(model: onnx.ModelProto) -> None:
    """Compile to blocks."""
    Compiler(memory_model(model), CompileOptions(cache="off", threads=1)).lower()


def refused(model: onnx.ModelProto, *parts: str) -> None:
    with pytest.raises(StrataError) as caught:
        lower(model)
    for part in parts:
        assert part in str(caught.value)


def sized(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return value_info(name, np.float32, shape)


# ---------------------------------------------------------------------- functions
def calls(depth: int, times: int, last: str = "Relu") -> onnx.ModelProto:
    """my.f0 calls my.f1 `times` times, and so on; the last function has one node."""
    functions = [helper.make_function("my", f"f{k}", ["a"], ["r0"], [
        node(f"f{k + 1}", "a", f"r{t}", domain="my") for t in range(times)], OPSETS)
        for k in range(depth)]
    domain = "my" if last.startswith("f") else ""
    functions.append(helper.make_function(
        "my", f"f{depth}", ["a"], ["r0"], [node(last, "a", "r0", domain=domain)], OPSETS))
    return make_model([node("f0", "x", "y", domain="my")], [X], ["y"], functions=functions,
                      domains=["my"])


def test_a_few_functions_that_become_very_many_nodes() -> None:
    lower(calls(5, 2))
    refused(calls(50, 2), "with all functions inlined", "nodes; at most")


def test_functions_very_deep_in_each_other() -> None:
    lower(calls(40, 1))
    refused(calls(2000, 1), "more than 64 deep")


def test_functions_that_call_each_other_in_a_circle() -> None:
    refused(calls(20, 2, last="f3"), "calls itself")


# ---------------------------------------------------------------------- absurd numbers in files
@pytest.mark.parametrize("version", [0, -1, 2**31, 2**62])
def test_opsets_that_are_none(version: int) -> None:
    model = make_model([node("Relu", "x", "y")], [X], ["y"])
    model.opset_import[0].version = version
    refused(model, str(version))


@pytest.mark.parametrize("limits", [(0, np.nan, 1), (0, np.inf, 1), (0, 1e12, 1), (-np.inf, 0, 1)])
def test_ranges_of_no_length(limits: tuple[float, ...]) -> None:
    constants = {n: np.array(v, np.float32) for n, v in zip("abc", limits, strict=True)}
    refused(make_model([node("Range", "a b c", "y")], [X], ["y"], constants),
            "too long, or not a range")


@pytest.mark.parametrize("scale", [np.inf, np.nan, 0, -1, 1e-30, 3e38])
@pytest.mark.parametrize("mode", ["nearest", "cubic"])
def test_scales_of_no_size(scale: float, mode: str) -> None:
    resize = helper.make_node("Resize", ["x", "", "s"], ["y"], "r", mode=mode)
    constants = {"s": np.array([1, 1, scale, 2], np.float32)}
    refused(make_model([resize], [sized("x", "n", 3, "h", 6)], ["y"], constants),
            "the scale", "is not between")


def test_a_name_of_a_file_that_is_too_long() -> None:
    model = make_model([node("MatMul", "x w", "y")], [X], ["y"], {"w": np.ones((4, 8), "f")})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="z" * 5000)
    refused(model, "cannot be read", "too long")


@pytest.mark.parametrize(("op_type", "x", "others"), [
    ("GridSample", ("n", 4), [("b", 5, 4, 2)]), ("GridSample", (1, 2, 3, 4), [(1, 5, 4, 3)]),
    ("LSTM", (), [(1, 20, 3), (1, 20, 5)]), ("GRU", (7, 3), [(1, 15, 3), (1, 15, 5)]),
    ("RNN", (7, 2, 3), [(5, 3), (1, 5, 5)]),
])
def test_operands_of_other_ranks(
    op_type: str, x: tuple[int | str, ...], others: list[tuple[int | str, ...]]
) -> None:
    infos = [sized("x", *x), *(sized(f"o{k}", *shape) for k, shape in enumerate(others))]
    attributes = {} if op_type == "GridSample" else {"hidden_size": 5}
    refused(make_model([helper.make_node(op_type, [i.name for i in infos], ["y"], "the node",
                                         **attributes)], infos, ["y"]), "'the node'")


@pytest.mark.parametrize(("image", "block", "attributes"), [
    ([5, 2**62], [2, 2], {}), ([5, 5], [2, 2**40], {}), ([5, 5], [0, 2], {}), ([5], [2, 2], {}),
    ([5, 5], [2, 2], {"pads": [1]}), ([5, 5], [2, 2], {"strides": [0, 1]}),
])
def test_blocks_of_no_image(
    image: list[int], block: list[int], attributes: dict[str, list[int]]
) -> None:
    model = make_model([node("Col2Im", "x i b", "y", **attributes)], [sized("x", 1, 12, 16)], ["y"],
                       {"i": np.array(image), "b": np.array(block)}, opset=18)
    refused(model, "n_y")


def test_no_table_is_made_for_indices_into_very_much() -> None:
    scatter = node("ScatterElements", "x i u", "y", axis=1)
    lower(make_model([scatter], [sized("x", 2**31, 5), sized("u", 1, 3)], ["y"],
                     {"i": np.array([[1, -1, 0]])}))


@pytest.mark.parametrize(("op_type", "gates"), [("RNN", 1), ("LSTM", 4)])
def test_very_many_steps_are_not_unrolled(op_type: str, gates: int) -> None:
    weights = {"w": np.ones((1, 5 * gates, 3), "f"), "r": np.ones((1, 5 * gates, 5), "f")}
    model = make_model([node(op_type, "x w r", "y", hidden_size=5)], [sized("x", 2**40, 2, 3)],
                       ["y"], weights)
    with suppress(StrataError):  # or it is refused; that it takes no time is what counts
        lower(model)


@pytest.mark.parametrize("dim", [2**62, 2**45, 2**63 - 1])
def test_tensors_that_no_machine_holds(dim: int) -> None:
    nodes = [node("Relu", "x", "a"), node("Neg", "a", "y")]
    refused(make_model(nodes, [sized("x", dim, 4)], ["y"]), "impossible sizes", "'n_a'", "'n_y'",
            str(dim), "at most")
    expanded = make_model([node("Expand", "x s", "y")], [X], ["y"], {"s": np.array([dim, 1, 1])})
    refused(expanded, "impossible sizes", "'n_y'")


def test_a_part_of_a_constant_from_a_place_that_a_run_tells() -> None:
    """Its result has a known, small size; it was computed at once, without knowing the place."""
    nodes = [node("Shape", "x", "s"), node("Slice", "s zero one", "n"),
             node("Concat", "zero n", "w", axis=0), node("ConstantOfShape", "w", "y")]
    lower(make_model(nodes, [X], ["y"], {"zero": np.array([0]), "one": np.array([1])}))


def test_a_definition_that_knows_a_size_better() -> None:
    """LayerNormalization's bias of 2 says that n is 2, which its result declares as n."""
    infos = [sized("x", "n", "m"), sized("s", "m"), sized("b", 2)]
    lower(make_model([node("LayerNormalization", "x s b", "y")], infos, ["y"]))


def test_a_sum_of_sizes_that_never_agree() -> None:
    """3*n elements beside n of them: a single one stretches, and two do not fit six."""
    nodes = [node("Concat", "x x x", "a", axis=-1), node("Add", "a x", "y")]
    program = compiler.compile(memory_model(make_model(nodes, [sized("x", 3, "n")], ["y"])))
    assert program(np.ones((3, 1), np.float32))[0].shape == (3, 3)
    with pytest.raises(ValueError, match="n_y"):
        program(np.ones((3, 2), np.float32))


def test_a_transform_of_too_many_parts() -> None:
    model = make_model([node("DFT", "x", "y")], [sized("x", 1, 6, 5)], ["y"], opset=17)
    refused(model, "n_y", "1 or 2 parts")


def test_a_sequence_as_a_position() -> None:
    nodes = [node("SplitToSequence", "x", "s", axis=1), node("SequenceAt", "s s", "y")]
    refused(make_model(nodes, [X], ["y"]), "n_y")


@pytest.mark.parametrize(("size", "start", "wanted"), [(1, -2, [0]), (3, -9, [0]), (3, 9, [2, 0])])
def test_a_slice_backwards_from_outside(size: int, start: int, wanted: list[int]) -> None:
    """ONNX brings the start inside, where NumPy's result is empty."""
    model = make_model([node("Slice", "x start end zero step", "y")], [sized("x", "n")], ["y"], {
        "start": np.array([start]), "end": np.array([-(2**40)]), "zero": np.array([0]),
        "step": np.array([-2])})
    program = compiler.compile(memory_model(model), target="reference")
    np.testing.assert_array_equal(program(np.arange(size, dtype=np.float32))[0], wanted)


# ---------------------------------------------------------------------- sizes at run time
def run(model: onnx.ModelProto, good: Shapes, bad: Sequence[Shapes]) -> None:
    """Good sizes run and equal the reference, also after each of the bad, which are refused."""
    program = compiler.compile(memory_model(model), cache="off", threads=1)
    reference = compiler.compile(memory_model(model), target="reference")
    inputs = [np.arange(np.prod(s), dtype=np.float32).reshape(s) for s in good]
    expected = reference(*inputs)
    for shapes in bad:
        with pytest.raises(ValueError, match=r"'n_\w+'|sizes"):
            program(*(np.ones(s, np.float32) for s in shapes))
        for found, wanted in zip(program(*inputs), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_shape_that_other_sizes_do_not_fill() -> None:
    """The elements beyond were read, and the heap written to."""
    model = make_model([node("Reshape", "x s", "y")], [sized("x", "n", 2)], ["y"],
                       {"s": np.array([3, 4])})
    run(model, [(6, 2)], [[(5, 2)], [(7, 2)], [(0, 2)]])


def test_a_size_that_does_not_divide() -> None:
    nodes = [node("Shape", "x", "k"), node("Concat", "open k", "s", axis=0),
             node("Reshape", "z s", "y")]
    model = make_model(nodes, [sized("x", "k"), sized("z", "n", "m")], ["y"],
                       {"open": np.array([-1])})
    run(model, [(2,), (4, 3)], [[(5,), (4, 3)], [(8,), (4, 3)]])


def test_updates_that_do_not_fit() -> None:
    model = make_model([node("ScatterND", "x i u", "y")], [sized("x", "n", "m"), sized("u", 1, 1)],
                       ["y"], {"i": np.array([[1]])})
    run(model, [(3, 1), (1, 1)], [[(3, 5), (1, 1)]])


def test_a_size_that_is_not_the_one_to_expand_to() -> None:
    model = make_model([node("Expand", "x s", "y")], [sized("x", "n")], ["y"],
                       {"s": np.array([2, 3])})
    run(model, [(3,)], [[(5,)], [(2,)]])


@pytest.mark.parametrize(("op_type", "weights"), [
    ("Conv", (4, 3, 2, 2)), ("ConvTranspose", (3, 4, 2, 2))])
def test_channels_that_are_not_those_of_the_filter(
    op_type: str, weights: tuple[int, ...]
) -> None:
    model = make_model([node(op_type, "x w", "y", pads=[1, 1, 1, 1])],
                       [sized("x", 1, "c", "h", 5)], ["y"], {"w": np.ones(weights, "f")})
    run(model, [(1, 3, 5, 5)], [[(1, 2, 5, 5)], [(1, 7, 5, 5)]])


def test_a_filter_that_is_larger_than_its_image() -> None:
    """Sizes below 0 moved buffers over each other."""
    model = make_model([node("Conv", "x w", "a"), node("Relu", "a", "y")],
                       [sized("x", 1, 1, "h", "w")], ["y"], {"w": np.ones((1, 1, 3, 3), "f")})
    run(model, [(1, 1, 5, 5)], [[(1, 1, 1, 5)], [(1, 1, 0, 0)]])


def test_an_element_of_nothing() -> None:
    model = make_model([node("Gather", "x zero", "y")], [X], ["y"], {"zero": np.array([0])})
    run(model, [(3, 4)], [[(0, 4)]])


def test_unsigned_constants_beyond_half_of_their_range() -> None:
    """Beside smaller numbers they went through f64, and became 0."""
    values = np.array([2**64 - 5, 5, 0], np.uint64)
    model = make_model([node("Add", "c zero", "y")], [], ["y"],
                       {"c": values, "zero": np.array([0], np.uint64)})
    for target in ("cpu", "reference"):
        found = compiler.compile(memory_model(model), target=target, cache="off")()[0]
        np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("far", [2**31 - 1, 2**63 - 1])
def test_a_dim_that_is_turned_keeps_its_size(far: int) -> None:
    """The size of x[far:-far:-1] was not known to be that of x, and no sum of both was taken."""
    bounds = {"start": [far], "end": [-far], "axes": [0], "step": [-1]}
    model = make_model([node("Slice", "x start end axes step", "r"), node("Add", "x r", "y")],
                       [sized("x", "n")], ["y"], {k: np.array(v) for k, v in bounds.items()})
    program = compiler.compile(memory_model(model), cache="off", threads=1)
    np.testing.assert_array_equal(program(np.arange(5, dtype=np.float32))[0], np.full(5, 4.0))


def test_a_slice_of_nothing() -> None:
    model = make_model([node("Slice", "x zero one zero", "y")], [X], ["y"],
                       {"zero": np.array([0]), "one": np.array([1])})
    run(model, [(3, 4)], [])
    program = compiler.compile(memory_model(model), cache="off", threads=1)
    assert program(np.ones((0, 4), np.float32))[0].shape == (0, 4)


def test_buffers_of_size_0_give_no_room_to_others() -> None:
    """b*b numbers were put where b*b*d*e were before, which are none where e is 0."""
    nodes = [node("Tanh", "x", "v"), node("Transpose", "v", "t", perm=[0, 1, 3, 2]),
             node("MatMul", "v t", "m"), node("GlobalMaxPool", "m", "g"), node("Cos", "g", "c"),
             node("Tanh", "c", "h"), node("ConvTranspose", "h w", "y", strides=[2, 1])]
    weights = np.random.default_rng(0).standard_normal((7, 1, 1, 3)).astype("f")
    model = make_model(nodes, [sized("x", "b", "b", "d", "e")], ["y"], {"w": weights})
    program = compiler.compile(memory_model(model), cache="off", threads=1)
    for shape in ((7, 7, 5, 0), (7, 7, 5, 2)):
        x = np.ones(shape, np.float32)
        [wanted] = compiler.compile(memory_model(model), target="reference")(x)
        np.testing.assert_allclose(program(x)[0], wanted, rtol=1e-4)


def test_sums_over_nothing() -> None:
    """A weight of 0 rows, where the other operand has n columns."""
    model = make_model([node("MatMul", "x w", "y")], [sized("x", 3, "n")], ["y"],
                       {"w": np.ones((0, 4), "f")})
    program = compiler.compile(memory_model(model), cache="off", threads=1)
    np.testing.assert_array_equal(program(np.ones((3, 0), "f"))[0], np.zeros((3, 4)))


@pytest.mark.parametrize("size", [999, 4001])
def test_odd_scales_of_open_sizes(size: int) -> None:
    """The scale as a fraction of 53 bits, times the size, is no 64-bit integer."""
    resize = helper.make_node("Resize", ["x", "", "s"], ["y"], "r", mode="nearest")
    model = make_model([resize], [sized("x", "n")], ["y"],
                       {"s": np.array([0.70710678], np.float32)})
    x = np.arange(size, dtype=np.float32)
    [wanted] = compiler.compile(memory_model(model), target="reference")(x)
    np.testing.assert_array_equal(
        compiler.compile(memory_model(model), cache="off", threads=1)(x)[0], wanted)


def test_a_call_that_no_memory_holds() -> None:
    model = make_model([node("Expand", "x s", "a"), node("Softmax", "a", "y", axis=0)],
                       [sized("x", 1, "n")], ["y"], {"s": np.array([2**36, 1])})
    program = compiler.compile(memory_model(model), cache="off", threads=1)
    with pytest.raises(ValueError, match=r"bytes.*n = 9.*this machine has"):
        program(np.ones((1, 9), np.float32))


def test_numbers_of_numpy_are_no_arrays_in_memory() -> None:
    """The fast way in reads addresses, and a NumPy number gave that of a copy."""
    model = make_model([node("Add", "x z", "y")], [sized("x"), sized("z")], ["y"])
    program = compiler.compile(memory_model(model), cache="off", threads=1)
    [found] = program.run([np.float32(3), np.float32(4)])  # type: ignore[list-item]
    assert found == 7


def test_no_updates_for_slices_of_open_size() -> None:
    """They were read at 0, where they have nothing."""
    model = make_model([node("ScatterND", "x i u", "y")], [sized("x", "n", "c")], ["y"],
                       {"i": np.array([[2], [1]]), "u": np.zeros((2, 0), np.float32)})
    program = compiler.compile(memory_model(model), cache="off", threads=1)
    assert program(np.ones((3, 0), np.float32))[0].shape == (3, 0)
    with pytest.raises(ValueError, match="c"):
        program(np.ones((3, 4), np.float32))


@pytest.mark.parametrize("picked", [0, 3])
def test_ranks_of_numbers_that_were_searched_for(picked: int) -> None:
    """A padded read at an index from another input was to be copied with a border."""
    model = make_model([node("NonZero", "x", "places"),
                        node("GatherElements", "places i", "found", axis=0),
                        node("TopK", "found k", "y z", axis=-1)],
                       [value_info("x", np.int64, [5])], ["y", "z"],
                       {"i": np.zeros((1, picked), np.int64), "k": np.array([min(2, picked)])})
    program = compiler.compile(memory_model(model), cache="off", threads=1)
    values, places = program(np.array([3, 0, 5, 0, 6]))
    np.testing.assert_array_equal(values, np.array([[4, 2]])[:, :picked])
    np.testing.assert_array_equal(places, np.array([[2, 1]])[:, :picked])
