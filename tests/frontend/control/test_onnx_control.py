"""If, Loop and Scan: small models in ONNX's text form, one import each, run at several sizes.

What is expected comes from onnxruntime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from compiler.diagnostics import StrataError
from compiler.frontend import ImportedModel, MemoryModel, load_model
from compiler.pipeline.text import format_module
from dialects.strata.assumptions import ChoiceError
from dialects.strata.control import IfOp, LoopOp
from dialects.strata.types import Array
from tests.frontend.onnx_models import assert_close, run_imported, run_reference

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + text)


def imported(model: onnx.ModelProto) -> ImportedModel:
    return load_model(MemoryModel("model.onnx", model.SerializeToString()))


def check(text: str, *cases: Mapping[str, Any]) -> ImportedModel:
    """Import once; every case gives what onnxruntime gives."""
    model = parsed(text)
    ours = imported(model)
    for case in cases:
        feeds = {name: np.asarray(value) for name, value in case.items()}
        assert_close(run_imported(ours, feeds), run_reference(model, feeds), 1e-5)
    return ours


def count(module: ImportedModel, op: type) -> int:
    return sum(isinstance(o, op) for o in module.module.walk())


def numbers(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


# ---------------------------------------------------------------------- if
def test_a_known_condition_takes_its_branch():
    """The branches differ in rank, which is no matter: one is never built."""
    module = check("""
        g (float[n, 1] x) => (y) {
            shape = Shape(x)
            rank = Size(shape)
            two = Constant<value_int = 2>()
            c = Equal(rank, two)
            y = If(c) <
                then_branch = t () => (a) { k = Constant<value_ints = [1]>() a = Squeeze(x, k) },
                else_branch = e () => (b) { b = Identity(x) }>
        }""", {"x": numbers(3, 1)}, {"x": numbers(5, 1)})
    assert not count(module, IfOp)


IF = """
    g (float[n, 4] x, bool c) => (y) {
        k = Constant<value_ints = [2]>()
        zero = Constant<value_ints = [0]>()
        twice = Add(x, x)
        y = If(c) <
            then_branch = t () => (a) { a = Relu(twice) },
            else_branch = e () => (b) { b = Slice(x, zero, k, zero) }>
    }"""


def test_branches_become_functions_and_sizes_that_differ_get_names():
    cases = [{"x": numbers(n, 4), "c": c} for n in (3, 5) for c in (True, False)]
    module = check(IF, *cases)
    assert count(module, IfOp) == 1
    assert "defines(_size)" in format_module(module.module, False)


def test_sizes_that_both_branches_have_stay():
    module = check("""
        g (float[n, 4] x, bool c) => (y) {
            y = If(c) <then_branch = t () => (a) { a = Relu(x) },
                       else_branch = e () => (b) { b = Neg(x) }>
        }""", {"x": numbers(2, 4), "c": True}, {"x": numbers(2, 4), "c": False})
    assert "defines" not in format_module(module.module, False)


def test_what_both_branches_share_needs_no_operation():
    module = check("""
        g (float[n] x, bool c) => (y) {
            y = If(c) <then_branch = t () => (a) { a = Identity(x) },
                       else_branch = e () => (b) { b = Identity(x) }>
        }""", {"x": numbers(2), "c": True})
    assert not count(module, IfOp)


def test_conditions_within_conditions_capture_through_levels():
    cases = [{"x": numbers(3), "c": c, "d": d} for c in (True, False) for d in (True, False)]
    check("""
        g (float[n] x, bool c, bool d) => (y) {
            k = Constant<value_float = 3.0>()
            z = Mul(x, k)
            y = If(c) <
                then_branch = t () => (a) {
                    w = Add(z, x)
                    a = If(d) <then_branch = tt () => (p) { p = Mul(w, z) },
                               else_branch = te () => (q) { q = Sub(w, k) }>
                },
                else_branch = e () => (b) { b = Neg(x) }>
        }""", *cases)


def test_a_size_that_decides_between_ranks_is_a_choice():
    """Squeeze where a dim is 1, as exporters write it; another size needs other code."""
    module = imported(parsed("""
        g (float[n, m] x) => (y) {
            shape = Shape(x)
            one = Constant<value_int = 1>()
            size = Gather(shape, one)
            c = Equal(size, one)
            y = If(c) <
                then_branch = t () => (a) { k = Constant<value_ints = [1]>() a = Squeeze(x, k) },
                else_branch = e () => (b) { b = Identity(x) }>
        }"""))
    x = numbers(3, 1)
    assert_close(run_imported(module, {"x": x}), [x[:, 0]], 0)
    with pytest.raises(ChoiceError, match="compiled for m == 1, and needs other code for m = 2"):
        run_imported(module, {"x": numbers(3, 2)})


# ---------------------------------------------------------------------- loop
def test_a_known_number_of_iterations_stacks_to_that():
    module = check("""
        g (float[n, 4] x) => (last, all) {
            trips = Constant<value_int = 3>()
            last, all = Loop(trips, , x) <body = b (int64 i, bool c, float[] h) =>
                                                   (c_out, h_out, s) {
                c_out = Identity(c)
                h_out = Add(h, x)
                s = ReduceSum(h_out)
            }>
        }""", {"x": numbers(2, 4)}, {"x": numbers(5, 4)})
    text = format_module(module.module, False)
    assert "trip 3" in text and "while" not in text


def test_a_loop_ends_by_its_condition():
    cases = [{"x": numbers(2), "limit": np.float32(v), "n": n}
             for v in (0.5, 40.0) for n in (0, 3, 50)]
    check("""
        g (float[m] x, float limit, int64 n) => (y, all) {
            true = Constant<value = bool {1}>()
            y, all = Loop(n, true, x) <body = b (int64 i, bool c, float[] h) => (c_out, h_out, s) {
                two = Constant<value_float = 2.0>()
                h_out = Mul(h, two)
                square = Mul(h_out, h_out)
                total = ReduceSum<keepdims = 0>(square)
                c_out = Less(total, limit)
                s = Identity(total)
            }>
        }""", *cases)


def test_carried_sizes_may_grow():
    cases = [{"x": numbers(2, 3), "n": n} for n in (0, 1, 4)]
    check("""
        g (float[m, 3] x, int64 n) => (y) {
            y = Loop(n, , x) <body = b (int64 i, bool c, float[] h) => (c_out, h_out) {
                c_out = Identity(c)
                h_out = Concat<axis = 0>(h, x)
            }>
        }""", *cases)


def test_what_a_body_hands_on_untouched_stays_a_constant():
    """The axes of Squeeze must be constant, also where a loop carries them."""
    check("""
        g (float[m, 1] x) => (y, axes_out) {
            trips = Constant<value_int = 2>()
            axes = Constant<value_ints = [1]>()
            y, axes_out = Loop(trips, , x, axes) <
                    body = b (int64 i, bool c, float[] h, int64[1] a) => (c_out, h_out, a_out) {
                c_out = Identity(c)
                flat = Squeeze(h, a)
                back = Unsqueeze(flat, a)
                h_out = Add(back, x)
                a_out = Identity(a)
            }>
        }""", {"x": numbers(3, 1)})


def test_a_counter_that_is_compared_counts_the_iterations():
    """`while k < size of x`, with slices at k: no condition is left, and the slices are affine."""
    module = check("""
        g (float[m, 3] x) => (y) {
            shape = Shape(x)
            first = Constant<value_ints = [0]>()
            zero = Constant<value_int = 0>()
            size = Gather(shape, zero)
            start = Less(zero, size)
            none = Constant<value_ints = [0]>()
            end, y = Loop(, start, zero) <body = b (int64 i, bool c, int64 k) => (c_out, k_out, s) {
                one = Constant<value_int = 1>()
                minus = Constant<value_ints = [-1]>()
                at = Reshape(k, minus)
                k_out = Add(k, one)
                behind = Reshape(k_out, minus)
                s = Slice(x, at, behind, first)
                c_out = Less(k_out, size)
            }>
        }""", {"x": numbers(4, 3)}, {"x": numbers(1, 3)})
    text = format_module(module.module, False)
    assert "while" not in text and "strata.size" not in text
    assert "starts = [_step, 0], sizes = [1, 3]" in text


def test_loops_within_loops_and_branches():
    cases = [{"x": numbers(3), "n": n, "m": m} for n in (1, 2) for m in (0, 3)]
    check("""
        g (float[k] x, int64 n, int64 m) => (y, all) {
            half = Constant<value_float = 0.5>()
            y, all = Loop(n, , x) <body = outer (int64 i, bool c, float[] h) => (c_out, h_out, s) {
                c_out = Identity(c)
                inner = Loop(m, , h) <body = inner (int64 j, bool d, float[] g) => (d_out, g_out) {
                    d_out = Identity(d)
                    same = Equal(i, j)
                    g_out = If(same) <then_branch = t () => (p) { p = Add(g, x) },
                                      else_branch = e () => (q) { q = Mul(g, half) }>
                }>
                h_out = Add(inner, h)
                s = Shape(h_out)
            }>
        }""", *cases)


def test_trial_imports_leave_nothing_behind():
    """A body is built several times; names, functions and weights are those of the last time."""
    module = check("""
        g (float[m, 3] x, int64 n) => (y) {
            y = Loop(n, , x) <body = b (int64 i, bool c, float[] h) => (c_out, h_out) {
                c_out = Identity(c)
                shape = Constant<value_ints = [3]>()
                w = ConstantOfShape<value = float[1] {0.5}>(shape)
                wider = Concat<axis = 0>(h, x)
                h_out = Mul(wider, w)
            }>
        }""", {"x": numbers(1, 3), "n": 2})
    text = format_module(module.module, False)
    assert text.count("strata.func") == 2 and "_step_2" not in text


def test_faults_in_bodies_have_paths_and_come_at_once():
    model = parsed("""
        g (float[n, 4] x, bool c, int64 m) => (y, z) {
            y = If(c) <then_branch = t () => (a) { a = Transpose<perm = [0]>(x) },
                       else_branch = e () => (b) { b = Transpose<perm = [1]>(x) }>
            z = Loop(m, , x) <body = b (int64 i, bool d, float[] h) => (d_out, h_out) {
                d_out = Identity(d)
                h_out = Transpose<perm = [0]>(h)
            }>
        }""")
    for k, node in enumerate(model.graph.node):
        node.name = f"node{k}"
    model.graph.node[0].attribute[1].g.node[0].name = "turned"
    with pytest.raises(StrataError) as caught:
        imported(model)
    nodes = {p.node for p in caught.value.problems}
    assert nodes == {"node0/then/Transpose#0", "node0/else/turned", "node1/body/Transpose#1"}


@pytest.mark.parametrize(("body", "message"), [
    ("a = Nonsense(x)", "Nonsense"),
    ("a = Relu(nowhere)", "value 'nowhere', which nothing defines"),
    ("a = Relu(x) a = Neg(x)", "value 'a' is defined more than once"),
    ("p = Relu(q) q = Relu(p) a = Neg(q)", "depend on each other in a cycle"),
    ("p = Relu(x)", "no node defines output 'a'"),
])
def test_validation_looks_into_subgraphs(body: str, message: str):
    with pytest.raises(StrataError, match=message):
        imported(parsed(f"""
            g (float[n] x, bool c) => (y) {{
                y = If(c) <then_branch = t () => (a) {{ {body} }},
                           else_branch = e () => (b) {{ b = Neg(x) }}>
            }}"""))


def test_nodes_are_sorted_by_what_their_subgraphs_use():
    model = parsed("""
        g (float[n] x, bool c) => (y) {
            late = Relu(x)
            y = If(c) <then_branch = t () => (a) { a = Add(late, x) },
                       else_branch = e () => (b) { b = Neg(late) }>
        }""")
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(nodes[::-1])
    x = numbers(3)
    assert_close(run_imported(imported(model), {"x": x, "c": np.array(False)}),
                 [-np.maximum(x, 0)], 0)


# ---------------------------------------------------------------------- scan
SCAN = """
    g (float[2, n, 3] x, float[2, 4, n] w, float[2] h) => (last, all) {
        last, all = Scan<num_scan_inputs = 2, scan_input_axes = [1, 2],
                         scan_input_directions = [%d, %d], scan_output_axes = [1],
                         scan_output_directions = [%d], body = b (s, a, v) => (s_out, r) {
            axes = Constant<value_ints = [1]>()
            row = ReduceSum<keepdims = 0>(a, axes)
            top = ReduceMax<axes = [1], keepdims = 0>(v)
            sum = Add(s, row)
            s_out = Mul(sum, top)
            r = Add(v, v)
        }>(h, x, w)
    }"""


@pytest.mark.parametrize("directions", [(0, 0, 0), (1, 0, 1), (0, 1, 0)])
def test_scan_goes_along_axes_in_directions(directions: Sequence[int]):
    cases = [{"x": numbers(2, n, 3), "w": numbers(2, 4, n), "h": numbers(2)} for n in (1, 5)]
    model_text = SCAN % tuple(directions)
    check(model_text, *cases)


# ---------------------------------------------------------------------- recurrent layers
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_recurrent_layers_of_any_length_are_loops(op: str, direction: str):
    gates, two = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 1 + (direction == "bidirectional")
    sizes = f"float[{two}, {5 * gates}, 3] w, float[{two}, {5 * gates}, 5] r"
    module = check(f"""
        g (float[s, n, 3] x, {sizes}, int32[n] lengths) => (y, h) {{
            y, h = {op}<hidden_size = 5, direction = "{direction}">(x, w, r, , lengths)
        }}""", *[{"x": numbers(s, n, 3), "w": numbers(two, 5 * gates, 3),
                  "r": numbers(two, 5 * gates, 5),
                  "lengths": np.arange(1, n + 1).astype(np.int32)} for s, n in ((3, 2), (6, 4))])
    assert count(module, LoopOp) == two
