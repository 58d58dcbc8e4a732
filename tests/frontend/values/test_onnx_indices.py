"""Indices that data bring: in range they do what onnxruntime does, others end a run in an error."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from xdsl.ir import BlockArgument, Operation, SSAValue

import compiler
from compiler.__main__ import main
from compiler.frontend import MemoryModel, load_model
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text
from dialects.graph.gather import GatherElementsOp, GatherNdOp, GatherOp
from dialects.graph.scatter import ScatterElementsOp, ScatterNdOp
from dialects.graph.shape import BroadcastOp, ConcatOp, ReshapeOp, SliceOp, TransposeOp
from dialects.graph.unary import CastOp
from dialects.strata.assumptions import IndexRangeError
from dialects.strata.func import FuncOp
from dialects.strata.requirements import RequireOp
from dialects.strata.types import Array
from tests.frontend.onnx_models import model_of as sample_model
from tests.frontend.operators.onnx_contrib_samples import SAMPLES as CONTRIB_SAMPLES
from tests.frontend.operators.onnx_ml_samples import SAMPLES as ML_SAMPLES
from tests.frontend.operators.onnx_more_samples import MORE_SAMPLES
from tests.frontend.operators.onnx_samples import SAMPLES

HEADER = '<ir_version: 10, opset_import: ["" : 17, "com.microsoft" : 1]>\n'


def model_of(text: str, opset: int = 17) -> MemoryModel:
    header = HEADER.replace(": 17", f": {opset}")
    return MemoryModel("m.onnx", onnx.parser.parse_model(header + text).SerializeToString())


def numbers(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


class Case(NamedTuple):
    """A model of one input `i` of indices among others, and what they may be."""

    text: str
    feeds: Mapping[str, Any]
    shape: tuple[int, ...]
    low: int
    high: int
    dtype: type = np.int64
    opset: int = 17

    def inputs(self, wrong: int | None) -> dict[str, Array]:
        """Random indices, of which one at a random place is `wrong`."""
        random = np.random.default_rng(7)
        indices = random.integers(self.low, self.high, self.shape).astype(self.dtype)
        if wrong is not None:
            place = random.integers(indices.size)
            indices.reshape(-1)[place] = wrong
        return {**self.feeds, "i": indices}


CASES = {
    "gather": Case("a (float[r, 5] x, int64[p, q] i) => (float[a, b, c] y) { y = Gather(x, i) }",
                   {"x": numbers(7, 5)}, (3, 11), -7, 7),
    "gather32": Case("a (float[r, 5] x, int32[p] i) => (float[a, b] y) "
                     "{ y = Gather<axis = 1>(x, i) }", {"x": numbers(2, 5)}, (131,), -5, 5,
                     np.int32),
    "gather_scalar": Case("a (float[7, 5] x, int64 i) => (float[5] y) { y = Gather(x, i) }",
                          {"x": numbers(7, 5)}, (), -7, 7),
    "gather_elements": Case("a (float[4, n] x, int64[4, m] i) => (float[a, b] y) "
                            "{ y = GatherElements<axis = 1>(x, i) }",
                            {"x": numbers(4, 6)}, (4, 97), -6, 6),
    "gather_nd": Case("a (float[r, r2] x, int64[p, 2] i) => (float[a] y) { y = GatherND(x, i) }",
                      {"x": numbers(5, 5)}, (31, 2), -5, 5),
    "scatter_elements": Case(
        "a (float[n, 3] x, int64[m, 3] i, float[m, 3] u) => (float[a, b] y) "
        "{ y = ScatterElements<axis = 0, reduction = \"add\">(x, i, u) }",
        {"x": numbers(9, 3), "u": numbers(67, 3)}, (67, 3), -9, 9),
    "scatter_nd": Case(
        "a (float[n, 3] x, int64[m, 1] i, float[m, 3] u) => (float[a, b] y) "
        "{ y = ScatterND<reduction = \"add\">(x, i, u) }",
        {"x": numbers(9, 3), "u": numbers(13, 3)}, (13, 1), -9, 9),
    "computed": Case(  # the index goes through arithmetic that is fused with the gather
        "a (float[r, 5] x, int64[p] i) => (float[a, c] y) "
        "{ one = Constant<value = int64 {1}>() j = Sub(i, one) k = Abs(j) y = Gather(x, k) }",
        {"x": numbers(7, 5)}, (70,), -5, 8),
    "reverse_sequence": Case(
        "a (float[t, n] x, int64[n] i) => (float[a, b] y) "
        "{ y = ReverseSequence<time_axis = 0, batch_axis = 1>(x, i) }",
        {"x": numbers(6, 4)}, (4,), 0, 7),
    "sequence_at": Case(
        "a (float[r, 5] x, int64 i) => (float[a, b] y) "
        "{ s = SplitToSequence<axis = 0>(x) y = SequenceAt(s, i) }",
        {"x": numbers(6, 5)}, (), -6, 6),
    "sequence_insert": Case(
        "a (float[r, 5] x, float[1, 5] z, int64 i) => (float[a, b] y) "
        "{ s = SplitToSequence<axis = 0>(x) t = SequenceInsert(s, z, i) "
        "y = ConcatFromSequence<axis = 0>(t) }",
        {"x": numbers(6, 5), "z": numbers(1, 5)}, (), -6, 7),
    "sequence_erase": Case(
        "a (float[r, 5] x, int64 i) => (float[a, b] y) "
        "{ s = SplitToSequence<axis = 0>(x) t = SequenceErase(s, i) "
        "y = ConcatFromSequence<axis = 0>(t) }", {"x": numbers(6, 5)}, (), -6, 6),
    "max_unpool": Case(
        "a (float[1, 1, 3, 3] x, int64[1, 1, 3, 3] i) => (float[a, b, c, d] y) "
        "{ y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, i) }",
        {"x": np.ones((1, 1, 3, 3), np.float32)}, (1, 1, 3, 3), 0, 36),
    "roi_align": Case(
        "a (float[3, 2, 8, 8] x, float[n, 4] r, int64[n] i) => (float[a, b, c, d] y) "
        "{ y = RoiAlign<output_height = 2, output_width = 2, sampling_ratio = 2>(x, r, i) }",
        {"x": numbers(3, 2, 8, 8), "r": np.array([[0, 0, 5, 5]] * 5, np.float32)}, (5,), 0, 3),
    "embed_layer_norm": Case(
        "a (int32[b, s] i, float[9, 4] w, float[8, 4] p, float[4] g, float[4] h) "
        "=> (float[b, s, 4] y, int32[b] m) { y, m = com.microsoft.EmbedLayerNormalization"
        "(i, , w, p, , g, h) }",
        {"w": numbers(9, 4), "p": numbers(8, 4), "g": numbers(4), "h": numbers(4)}, (2, 5), 0, 9,
        np.int32),
    "in_loop": Case(
        "a (float[r, 5] x, int64[4, 3] i) => (float[a, b, c] y) "
        "{ t = Constant<value = int64 {4}>() e = Constant<value = bool {1}>() "
        "y = Loop(t, e) <body = b (int64 k, bool c) => (bool d, float[u, 5] v) "
        "{ d = Identity(c) row = Gather(i, k) v = Gather(x, row) }> }",
        {"x": numbers(7, 5)}, (4, 3), -7, 7),
    "in_branch": Case(
        "a (float[r, 5] x, bool f, int64[p] i) => (float[a, b] y) "
        "{ y = If(f) <then_branch = t () => (float[u, 5] v) { v = Gather(x, i) }, "
        "else_branch = e () => (float[u2, 5] w) { w = Identity(x) }> }",
        {"x": numbers(7, 5), "f": np.array(True)}, (7,), -7, 7),
    "sliced_after": Case(  # what is gathered is padded, and read in parts by others
        "a (float[r, 4] x, int64[p] i) => (float[a, b] y, float[c] z) "
        "{ g = Gather(x, i) w = Constant<value = int64[4] {1, 0, 2, 0}>() y = Pad(g, w) "
        "o = Constant<value = int64[1] {1}>() z = ReduceSum<keepdims = 0>(g, o) }",
        {"x": numbers(7, 4)}, (70,), -7, 7),
}
def wrong_values(case: Case) -> list[int]:
    far = [10**6, -10**6] if case.dtype is np.int32 else [2**40, -2**63, 2**63 - 1]
    return [case.high, case.low - 1, *far]


@pytest.fixture(scope="module", params=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(scope="module")
def session(case: Case) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model_of(case.text, case.opset).data, options)


@pytest.fixture(scope="module", params=["cpu", "reference"])
def program(case: Case, request: pytest.FixtureRequest) -> compiler.Executable:
    return compiler.compile(model_of(case.text, case.opset), target=request.param, cache="off")


def test_indices_in_range_do_what_onnxruntime_does(
    case: Case, program: compiler.Executable, session: onnxruntime.InferenceSession
) -> None:
    feeds = case.inputs(None)
    found = program(**feeds)
    for got, want in zip(found, session.run(None, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_an_index_out_of_range_is_an_error(
    case: Case, program: compiler.Executable, session: onnxruntime.InferenceSession
) -> None:
    for value in wrong_values(case):
        feeds = case.inputs(value)
        with pytest.raises(Exception, match=r"range|bounds|[Ii]nvalid"):
            session.run(None, feeds)
        with pytest.raises(IndexRangeError, match="it must be from") as caught:
            program(**feeds)
        if case is not CASES["computed"]:
            assert f" is {value} at node '" in str(caught.value)
    program(**case.inputs(None))  # an error leaves nothing behind


def test_the_error_names_node_indices_and_range() -> None:
    program = compiler.compile(model_of(
        "a (float[r, 5] x, int64[p] ids) => (float[a, b] y) { y = Gather(x, ids) }"), cache="off")
    with pytest.raises(IndexError) as caught:
        program(numbers(7, 5), np.array([1, 9, 2]))
    assert str(caught.value) == (
        "an index of 'ids' is 9 at node 'Gather#0'; it must be from -7 to 6")


def test_one_hot_defines_what_is_out_of_range() -> None:
    program = compiler.compile(model_of(
        "a (int64[n] i) => (float[a, b] y) { d = Constant<value = int64 {3}>() "
        "v = Constant<value = float[2] {0.0, 1.0}>() y = OneHot(i, d, v) }"), cache="off")
    [found] = program(np.array([0, 3, -3, -4, 2**40, 2]))
    assert found.argmax(1).tolist() == [0, 0, 0, 0, 0, 2]
    assert found.sum(1).tolist() == [1, 0, 1, 0, 0, 1]


# ---------------------------------------------------------------------- which operators
PLACES = {GatherOp: 1, GatherElementsOp: 1, GatherNdOp: 1, ScatterElementsOp: 1, ScatterNdOp: 1}
MOVES = (CastOp, ReshapeOp, BroadcastOp, TransposeOp, SliceOp, ConcatOp)


def unchecked_inputs(function: FuncOp) -> list[SSAValue]:
    """The function's arguments that are indices as they are, and of which nothing is required."""
    found: list[SSAValue] = []
    for op in function.body.block.ops:
        if type(op) in PLACES:
            found += unchecked(op.operands[PLACES[type(op)]])
    return found


def unchecked(value: SSAValue) -> list[SSAValue]:
    if any(isinstance(use.operation, RequireOp) for use in value.uses):
        return []
    if isinstance(value, BlockArgument):
        return [value]
    owner = value.owner
    return [v for o in owner.operands for v in unchecked(o)] if isinstance(owner, MOVES) else []


ALL = [*SAMPLES, *MORE_SAMPLES, *CONTRIB_SAMPLES, *ML_SAMPLES]


def test_every_operator_that_indexes_by_an_input_requires_something_of_it(
    tmp_path: Path
) -> None:
    """A new operator is found here, too, by its sample."""
    tried = 0
    for sample in ALL:
        if any(getattr(o, "dtype", None) in (np.int32, np.int64) for o in sample.operands):
            model, _ = sample_model(sample, sample.opsets[-1], symbolic=False)
            imported = load_model(MemoryModel("m.onnx", model.SerializeToString()))
            for op in imported.module.walk():
                if isinstance(op, FuncOp):
                    names = [v.name_hint for v in unchecked_inputs(op)]
                    assert not names, f"{sample.op_type} {sample.attributes}: {names}"
            tried += 1
    assert tried > 50


def test_indices_that_are_known_need_no_check() -> None:
    def requirements(text: str) -> list[Operation]:
        module = load_model(model_of(text)).module
        return [op for op in module.walk() if isinstance(op, RequireOp)]

    assert not requirements(
        "a (float[7, 5] x) => (float[a, b] y) "
        "{ i = Constant<value = int64[3] {6, -7, 0}>() y = Gather(x, i) }")
    assert not requirements(  # sizes, in the place of the tensor's own
        "a (float[r, 5] x) => (float[a, b] y) { s = Shape(x) o = Constant<value = int64[1] {1}>() "
        "z = Constant<value = int64 {0}>() n = Gather(s, z) f = Neg(n) y = Gather(x, f) }")
    [op] = requirements(
        "a (float[7, 5] x) => (float[a, b] y) "
        "{ i = Constant<value = int64[3] {6, -8, 0}>() y = Gather(x, i) }")
    assert op.name == "strata.require"


def test_a_constant_beyond_a_size_of_the_run_is_found_before_anything_runs() -> None:
    program = compiler.compile(model_of(
        "a (float[r, 5] x) => (float[a, b] y) "
        "{ i = Constant<value = int64[3] {2, -3, 0}>() y = Gather(x, i) }"), cache="off")
    assert program(numbers(3, 5))[0].shape == (3, 5)
    with pytest.raises(ValueError, match=r"at node .Gather#.*which is"):
        program(numbers(2, 5))


# ---------------------------------------------------------------------- options and targets
GATHER = "a (float[r, 5] x, int64[p] i) => (float[a, b] y) { y = Gather(x, i) }"


def test_without_checks_memory_is_safe_all_the_same() -> None:
    program = compiler.compile(model_of(GATHER), cache="off", check=False)
    x = numbers(7, 5)
    [found] = program(x, np.array([2**62, -2**62, 3, -2**63, 2**63 - 1]))
    np.testing.assert_array_equal(found, x[[6, 0, 3, 0, 6]])


def test_cuda_checks_indices_on_demand() -> None:
    x, wrong = numbers(7, 5), np.array([1, 7])
    for check, is_there in ((None, False), (True, True), (False, False)):
        options = CompileOptions(target="cuda", features="sm_90", check=check)
        text = lower_to_text(Compiler(model_of(GATHER), options), "block")
        assert ("strata.require" in text) is is_there
    pytest.importorskip("triton")
    interpreted = compiler.compile(model_of(GATHER), target="cuda", cache="off", check=True,
                                   interpret=True)
    with pytest.raises(IndexRangeError, match="is 7 at node 'Gather#0'"):
        interpreted(x, wrong)
    np.testing.assert_array_equal(interpreted(x, np.array([1, -7]))[0], x[[1, 0]])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_agree_on_an_error(threads: int) -> None:
    program = compiler.compile(model_of(GATHER), cache="off", threads=threads)
    x, right = numbers(1000, 5), np.arange(200_000) % 1000
    for place in (0, 100_003, 199_999):
        wrong = right.copy()
        wrong[place] = 1000
        with pytest.raises(IndexRangeError, match="is 1000 at node"):
            program(x, wrong)
    np.testing.assert_array_equal(program(x, right)[0], x[right])


def test_a_program_from_the_cache_checks_too(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(GATHER).data)
    for _ in range(2):
        program = compiler.compile(path, cache=tmp_path / "cache")
        with pytest.raises(IndexRangeError, match="an index of 'i' is -8 at node 'Gather#0'"):
            program(numbers(7, 5), np.array([-8]))


def test_the_command_tells_a_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, inputs = tmp_path / "m.onnx", tmp_path / "inputs.npz"
    path.write_bytes(model_of(GATHER).data)
    np.savez(inputs, x=numbers(7, 5), i=np.array([7]))
    for command in ("run", "verify"):
        assert main([command, str(path), "--inputs", str(inputs), "--cache", "off"]) == 1
        assert "an index of 'i' is 7 at node 'Gather#0'" in capsys.readouterr().err
    assert main(["run", str(path), "--inputs", str(inputs), "--cache", "off", "--no-check"]) == 0
