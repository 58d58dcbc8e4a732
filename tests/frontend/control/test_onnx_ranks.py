"""Ranks and sizes that only a run decides: If with branches of different rank, and Loop and Scan
whose values change their shape after the first iteration. onnxruntime decides what is right.

A loop-carried value begins as a placeholder of any rank, as exporters write it, and the body
replaces it or lets it grow. Without an iteration, it keeps its own shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.frontend import MemoryModel
from dialects.strata.types import Array
from tests.frontend.onnx_models import run_reference

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
TARGETS = ("cpu", "reference")


def numbers(*shape: int, dtype: Any = np.float32) -> Array:
    found = np.random.default_rng(shape).integers(-9, 9, shape)
    return (found > 0 if dtype == np.bool_ else found).astype(dtype)


def compiled(model: onnx.ModelProto, target: str) -> compiler.Executable:
    return compiler.compile(MemoryModel("model.onnx", model.SerializeToString()), target=target,
                            cache="off", tuned="off", threads=1)


def check(model: onnx.ModelProto, target: str, *cases: dict[str, Any]) -> compiler.Executable:
    """Compile once; each call gives what onnxruntime gives, in its own shape."""
    executable = compiled(model, target)
    for case in cases:
        feeds = {name: np.asarray(value) for name, value in case.items()}
        expected = run_reference(model, feeds)
        for got, want in zip(executable(**feeds), expected, strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype), case
            np.testing.assert_array_equal(got, want)
    return executable


# ---------------------------------------------------------------------- if
SQUEEZED = """
    g (float[n, m] x, bool c) => (y) {
        k = Constant<value_ints = [1]>()
        r = If(c) <then_branch = t () => (a) { a = ReduceSum<keepdims = 0>(x, k) },
                   else_branch = e () => (b) { b = Identity(x) }>
        y = Neg(r)
    }"""
BY_SIZE = """
    g (float[n, m] x) => (y) {
        shape = Shape(x)
        one = Constant<value_int = 1>()
        two = Constant<value_int = 2>()
        size = Gather(shape, one)
        c = OP(size, two)
        y = If(c) <then_branch = t () => (a) { k = Constant<value_ints = [1]>()
                                               a = ReduceSum<keepdims = 0>(x, k) },
                   else_branch = e () => (b) { b = Identity(x) }>
    }"""


@pytest.mark.parametrize("target", TARGETS)
def test_data_decide_between_ranks(target: str) -> None:
    executable = check(onnx.parser.parse_model(HEADER + SQUEEZED), target, *[
        {"x": numbers(n, m), "c": c} for c in (True, False, True, False)
        for n, m in ((3, 2), (1, 1), (0, 4))])
    assert len(executable.specializations) == 1


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("operator", ["Equal", "Less", "GreaterOrEqual"])
def test_sizes_decide_between_ranks(operator: str, target: str) -> None:
    check(onnx.parser.parse_model(HEADER + BY_SIZE.replace("OP", operator)), target,
          *[{"x": numbers(3, m)} for m in (1, 2, 3, 2, 1, 0)])


def test_ranks_that_change_within_a_run_are_refused_by_name() -> None:
    model = onnx.parser.parse_model(HEADER + """
        g (float[n] x, bool[k] cs) => (y) {
            zero = Constant<value_float = 0.0>()
            y = Scan<num_scan_inputs = 1, body = b (float[] s, bool c) => (t) {
                r = If(c) <then_branch = p () => (u) { u = ReduceSum<keepdims = 0>(x) },
                           else_branch = q () => (v) { v = Identity(x) }>
                t = ReduceSum<keepdims = 0>(r)
            }>(zero, cs)
        }""")
    executable = compiled(model, "cpu")
    x = numbers(3)
    for cs in ([True, True], [False], [True], []):
        want = x.sum() if cs else 0
        assert executable(x, np.array(cs, np.bool_))[0] == want
    with pytest.raises(ValueError, match=r"(?s)If.*needs other code.*in one branch and"):
        executable(x, np.array([True, False]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("second", [0, 1, 2])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_single_elements_keep_the_rank_of_their_branch(
    first: int, second: int, target: str
) -> None:
    """Each branch has its own, also where a reshape would make them equal."""
    shapes = [f"Constant<value = int64[{rank}] {{{', '.join('1' * rank)}}}>()"
              for rank in (first, second)]
    check(onnx.parser.parse_model(HEADER + f"""
        g (float[1] x, bool c) => (y, z) {{
            r = If(c) <then_branch = t () => (a) {{ s = {shapes[0]} a = Reshape(x, s) }},
                       else_branch = e () => (b) {{ s = {shapes[1]} u = Neg(x) b = Reshape(u, s) }}>
            y = Neg(r)
            z = Shape(r)
        }}"""), target, *[{"x": numbers(1), "c": c} for c in (True, False, True)])


@pytest.mark.parametrize("target", TARGETS)
def test_single_elements_of_both_branches_in_one_run(target: str) -> None:
    """The number is right; in a run that takes both branches it has the higher rank."""
    executable = compiled(onnx.parser.parse_model(HEADER + """
        g (float[1] x, bool[k] cs) => (y, ys) {
            zero = Constant<value_float = 0.0>()
            y, ys = Scan<num_scan_inputs = 1, body = b (float[] s, bool c) => (t, u) {
                r = If(c) <then_branch = p () => (a) { a = ReduceSum<keepdims = 0>(x) },
                           else_branch = q () => (d) { d = Neg(x) }>
                v = ReduceSum<keepdims = 0>(r)
                t = Add(s, v)
                u = Identity(t)
            }>(zero, cs)
        }"""), target)
    for cs in ([1], [0, 0], [1, 0, 1, 1], []):
        y, ys = executable(np.array([3], np.float32), np.array(cs, np.bool_))
        np.testing.assert_array_equal(ys, np.cumsum([3 if c else -3 for c in cs]))
        assert y.shape == () and y == (ys[-1] if cs else 0)


# ---------------------------------------------------------------------- loops
PLACEHOLDERS = [(), (1,), (0,), (3,), (1, 1), (0, 5), (2, 5), (1, 2, 5)]
REPLACED, GROWN = "replaced", "grown"


def loop(kind: str, placeholder: Array, stacks: bool = False) -> onnx.ModelProto:
    """x replaces the value; or the value is x after the first iteration, and grows by x."""
    node = helper.make_node
    value = helper.make_tensor_value_info
    element = helper.np_dtype_to_tensor_dtype(placeholder.dtype)

    def graph(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
        result = value(nodes[-1].output[0], element, None)
        return helper.make_graph(list(nodes), name, [], [result])

    first = graph("first", node("Identity", ["x"], ["a"]))
    grown = graph("grown", node("Concat", ["v", "x"], ["b"], axis=0))
    nodes = {REPLACED: [node("Identity", ["x"], ["row"])],
             GROWN: [node("Equal", ["i", "zero"], ["f"]),
                     node("If", ["f"], ["row"], then_branch=first, else_branch=grown)]}[kind]
    outputs = [value("c_out", TensorProto.BOOL, []), value("row", element, None)]
    outputs += [value("x_out", element, None)] if stacks else []
    nodes = [*nodes, node("Identity", ["c"], ["c_out"]), node("Identity", ["x"], ["x_out"])]
    body = helper.make_graph(nodes, "body", [
        value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []),
        value("v", element, None)], outputs, [numpy_helper.from_array(np.array(0), "zero")])
    results = ["y", *(["s"] if stacks else [])]
    main = helper.make_graph(
        [node("Loop", ["trips", "yes", "start"], results, body=body)], "g",
        [value("x", element, ["b", 5]), value("trips", TensorProto.INT64, [])],
        [value(r, element, None) for r in results],
        [numpy_helper.from_array(np.array(True), "yes"),
         numpy_helper.from_array(placeholder, "start")])
    return helper.make_model(main, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("kind", [REPLACED, GROWN])
@pytest.mark.parametrize("shape", PLACEHOLDERS, ids=str)
def test_placeholders(shape: tuple[int, ...], kind: str) -> None:
    model = loop(kind, numbers(*shape))
    cases = [{"x": numbers(b, 5), "trips": trips} for trips in (1, 0, 3, 2) for b in (2, 1, 0)]
    check(model, "reference", *cases)
    if len(shape) != 2:
        check(model, "cpu", *cases)


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.float64, np.uint8])
def test_types_of_placeholders(dtype: Any) -> None:
    for kind in (REPLACED, GROWN):
        check(loop(kind, numbers(dtype=dtype)), "reference", *[
            {"x": numbers(2, 5, dtype=dtype), "trips": trips} for trips in (0, 1, 2)])


SINGLE = """
    g (float[1] x, float[DIMS] start, int64 trips) => (y) <bool yes = {1}> {
        y = Loop(trips, yes, start) <body = b (int64 i, bool c, float[] v) => (d, r) {
            d = Identity(c) shape = Constant<value = int64[RANK] {ONES}>() r = Reshape(x, shape) }>
    }"""
UNSQUEEZED = """
    g (float[b, 3] x, int64 trips) => (y) <bool yes = {1}> {
        y = Loop(trips, yes, x) <body = b (int64 i, bool c, float[] v) => (d, r) {
            d = Identity(c) axis = Constant<value_ints = [0]>() r = Unsqueeze(v, axis) }>
    }"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_single_elements_have_their_own_rank(before: int, after: int, target: str) -> None:
    """In the loop, they may have a higher one."""
    text = SINGLE.replace("RANK", str(after)).replace("ONES", ", ".join("1" * after))
    text = text.replace("float[DIMS]", "float" + f"[{', '.join('1' * before)}]" * bool(before))
    check(onnx.parser.parse_model(HEADER + text), target, *[
        {"x": numbers(1), "start": np.full([1] * before, 3, np.float32), "trips": trips}
        for trips in (1, 0, 2)])


CHAIN = """
    g (float[1] x, int64 trips) => (y, z, w)
    <bool yes = {1}, float[1, 1] a = {2}, float b = {3}, float[N] d = {ROW}> {
        y, z, w = Loop(trips, yes, a, b, d) <
            body = h (int64 i, bool c, float[] u, float[] v, float[] s) => (f, r, t, k) {
            f = Identity(c) r = FIRST t = Identity(u) k = LAST }>
    }"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("last", ["Identity(v)", "Add(v, s)", "Add(u, s)"])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("first", ["ReduceSum<keepdims = 0>(x)", "Identity(x)", "Identity(v)"])
def test_ranks_that_arrive_some_iterations_later(
    first: str, size: int, last: str, target: str
) -> None:
    """Single elements that are handed on from value to value, and a row that gets their rank."""
    text = CHAIN.replace("FIRST", first).replace("LAST", last).replace("N]", f"{size}]")
    check(onnx.parser.parse_model(HEADER + text.replace("ROW", ", ".join("567"[:size]))), target, *[
        {"x": numbers(1), "trips": trips} for trips in (1, 3, 0, 2, 5)])


@pytest.mark.parametrize("target", TARGETS)
def test_ranks_that_each_iteration_changes(target: str) -> None:
    check(onnx.parser.parse_model(HEADER + UNSQUEEZED), target, *[
        {"x": numbers(b, 3), "trips": trips} for trips in (2, 0, 4, 1, 3) for b in (2, 0)])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("limit", ["trips", ""])
def test_a_condition_decides_whether_there_is_an_iteration(limit: str, target: str) -> None:
    check(onnx.parser.parse_model(HEADER + """
        g (float[b, 3] x, int64 end) => (y, s) <float start = {7}, int64 trips = {5}> {
            zero = Constant<value_int = 0>()
            one = Constant<value_int = 1>()
            some = Less(zero, end)
            y, s = Loop(LIMIT, some, start) <body = b (int64 i, bool c, float[] v) => (d, r, t) {
                t = Add(i, one) d = Less(t, end) r = Neg(x) }>
        }""".replace("LIMIT", limit)), target, *[
        {"x": numbers(2, 3), "end": end} for end in (3, 1, 0, -4, 5, 9 if limit else 6)])


@pytest.mark.parametrize("target", TARGETS)
def test_loops_in_loops(target: str) -> None:
    check(onnx.parser.parse_model(HEADER + """
        g (float[b, 3] x, int64 n, int64 m) => (y) <float start = {7}, bool yes = {1}> {
            y = Loop(n, yes, start) <body = b (int64 i, bool c, float[] v) => (d, r) {
                d = Identity(c)
                w = Loop(m, c, start) <body = e (int64 k, bool f, float[] u) => (h, p) {
                    h = Identity(f) p = Add(x, u) }>
                r = Add(w, v) }>
        }"""), target, *[{"x": numbers(2, 3), "n": n, "m": m}
                         for n in (2, 0, 1) for m in (1, 0, 2)])


@pytest.mark.parametrize("target", TARGETS)
def test_stacked_values(target: str) -> None:
    executable = check(loop(GROWN, numbers(), stacks=True), target, *[
        {"x": numbers(b, 5), "trips": trips} for trips in (2, 1, 3) for b in (2, 0)])
    y, stacked = executable(numbers(2, 5), np.array(0))
    assert (y.shape, stacked.shape) == ((), (0, 2, 5))
