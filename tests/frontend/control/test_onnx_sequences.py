"""Sequences and optionals: known lists, and lists that only a run knows, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import ImportedModel, MemoryModel, load_model
from compiler.io.structures import gather, spread, structures_of
from dialects.strata.control import LoopOp
from dialects.strata.func import main_function
from dialects.strata.types import Array, TensorType
from tests.frontend.onnx_models import run_imported, run_reference

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


def numbers(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def imported(text: str) -> tuple[onnx.ModelProto, ImportedModel]:
    model = onnx.parser.parse_model(HEADER + text)
    return model, load_model(MemoryModel("model.onnx", model.SerializeToString()))


def run(model: onnx.ModelProto, module: ImportedModel, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs by the model's own names, sequences as lists."""
    function, structures = main_function(module.module), structures_of(module.module)
    types = {name: a.type for name, a in zip(
        function.input_names, function.body.block.args, strict=True)
        if isinstance(a.type, TensorType)}
    arrays = run_imported(module, spread(feeds, structures, types))
    named = dict(zip(function.output_names, arrays, strict=True))
    return gather([o.name for o in model.graph.output], named, structures)


def assert_same(got: Any, want: Any) -> None:
    if isinstance(want, list):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert_same(a, b)
    elif want is None:
        assert got is None
    else:
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def check(text: str, *cases: Mapping[str, Any]) -> ImportedModel:
    model, module = imported(text)
    for case in cases:
        feeds = {name: np.asarray(v) if not isinstance(v, list) else v for name, v in case.items()}
        for got, want in zip(run(model, module, feeds).values(), run_reference(model, feeds),
                             strict=True):
            assert_same(got, want)
    return module


# ---------------------------------------------------------------------- known lists
def test_known_sequences_vanish():
    module = check("""
        g (float[n] x, float[n, 2] y) => (a, b, c) {
            zero = Constant<value_int = 0>()
            last = Constant<value_int = -1>()
            first = SequenceConstruct(x, x)
            more = SequenceInsert(first, y, zero)
            fewer = SequenceErase(more, last)
            a = SequenceAt(fewer, zero)
            b = SequenceLength(fewer)
            c = SequenceAt(fewer, last)
        }""", {"x": numbers(3), "y": numbers(3, 2)})
    assert all(not op.name.startswith("strata.loop") for op in module.module.walk())


@pytest.mark.parametrize(("axis", "new"), [(0, 0), (1, 0), (-1, 0), (0, 1), (1, 1), (-1, 1)])
def test_joining(axis: int, new: int):
    check(f"""
        g (float[n, 3] x) => (y) {{
            z = Neg(x)
            s = SequenceConstruct(x, z, x)
            y = ConcatFromSequence<axis = {axis}, new_axis = {new}>(s)
        }}""", {"x": numbers(2, 3)}, {"x": numbers(4, 3)})


def test_splitting_into_known_parts():
    check("""
        g (float[6, n] x) => (a, b, c) {
            sizes = Constant<value_ints = [1, 3, 2]>()
            four = Constant<value_int = 4>()
            a = SplitToSequence<axis = 0>(x, sizes)
            b = SplitToSequence<axis = 0>(x, four)
            c = SplitToSequence<axis = 0, keepdims = 0>(x)
        }""", {"x": numbers(6, 2)}, {"x": numbers(6, 5)})


# ---------------------------------------------------------------------- lists of a run
GROW = """
    g (float[m, 3] x, int64 n) => (s, length, y) {
        none = SequenceEmpty()
        s = Loop(n, , none) <body = b (int64 i, bool c, seq(float[]) t) => (c_out, t_out) {
            c_out = Identity(c)
            one = Constant<value_ints = [1]>()
            zero = Constant<value_ints = [0]>()
            axes = Constant<value_ints = [0]>()
            k = Reshape(i, one)
            k1 = Add(k, one)
            part = Slice(x, zero, k1, axes)
            t_out = SequenceInsert(t, part)
        }>
        length = SequenceLength(s)
        y = ConcatFromSequence<axis = 0>(s)
    }"""


def test_sequences_grow_in_loops():
    check(GROW, *({"x": numbers(4, 3), "n": n} for n in (1, 2, 4)))


@pytest.mark.parametrize(("axis", "new"), [(0, 0), (1, 0), (0, 1), (2, 1)])
def test_joining_what_a_loop_made(axis: int, new: int):
    check(f"""
        g (float[m, 3] x, int64 n) => (y) {{
            none = SequenceEmpty()
            s = Loop(n, , none) <body = b (int64 i, bool c, seq(float[]) t) => (c_out, t_out) {{
                c_out = Identity(c)
                f = Cast<to = 1>(i)
                part = Add(x, f)
                t_out = SequenceInsert(t, part)
            }}>
            y = ConcatFromSequence<axis = {axis}, new_axis = {new}>(s)
        }}""", *({"x": numbers(2, 3), "n": n} for n in (1, 3)))


def test_positions_that_only_a_run_knows():
    cases = [{"x": numbers(3, 2), "y": numbers(4, 2), "at": np.array(k)} for k in (0, 1, -1, -2)]
    check("""
        g (float[n, 2] x, float[m, 2] y, int64 at) => (a, b, c) {
            s = SequenceConstruct(x, y)
            a = SequenceAt(s, at)
            b = SequenceErase(s, at)
            c = SequenceInsert(s, x, at)
        }""", *cases)


def test_branches_with_sequences_of_different_lengths():
    check("""
        g (float[n] x, bool c) => (s) {
            s = If(c) <then_branch = t () => (a) { a = SequenceConstruct(x) },
                       else_branch = e () => (b) { y = Neg(x) b = SequenceConstruct(x, y) }>
        }""", *({"x": numbers(n), "c": c} for n in (2, 5) for c in (True, False)))


def test_pieces_of_an_open_axis():
    module = check("""
        g (float[2, n] x) => (a, b) {
            two = Constant<value_int = 2>()
            a = SplitToSequence<axis = 1>(x, two)
            b = SplitToSequence<axis = 1, keepdims = 0>(x)
        }""", {"x": numbers(2, 5)}, {"x": numbers(2, 4)})
    assert sum(isinstance(op, LoopOp) for op in module.module.walk()) == 2


MAP = """
    g (%s, float[1] y) => (p, q) {
        %s
        p, q = SequenceMap <body = f (float[a] v, float[b] w) => (r, s) {
            r = Add(v, w) s = Neg(v)
        }> (t, y)
    }"""


def test_map_over_a_known_list():
    model, module = imported(MAP % ("float[n] x", "z = Neg(x) t = SequenceConstruct(x, z)"))
    x, y = numbers(3), numbers(1)
    found = run(model, module, {"x": x, "y": y})
    assert_same(list(found.values()), [[x + y, y - x], [-x, x]])


def test_map_over_a_list_of_a_run():
    model, module = imported(MAP % ("seq(float[n]) t", ""))
    y = numbers(1)
    for given in ([numbers(3), numbers(1), numbers(4)], [numbers(2)], []):
        found = run(model, module, {"t": given, "y": y})
        assert_same(list(found.values()), [[v + y for v in given], [-v for v in given]])


def test_what_stays_the_same_stays_known():
    """A sequence that a loop hands on: its items stay items."""
    check("""
        g (float[n] x, int64 m) => (y, s_out) {
            s = SequenceConstruct(x, x)
            y, s_out = Loop(m, , x, s) <body = b (int64 i, bool c, float[] h, seq(float[]) t)
                                        => (c_out, h_out, t_out) {
                c_out = Identity(c)
                one = Constant<value_int = 1>()
                v = SequenceAt(t, one)
                h_out = Add(h, v)
                t_out = Identity(t)
            }>
        }""", {"x": numbers(2), "m": 2})


# ---------------------------------------------------------------------- borders and optionals
def test_sequence_inputs_and_outputs():
    text = "g (seq(float[n, 2]) s, int64 k) => (a, t) { a = SequenceAt(s, k) t = Identity(s) }"
    model, module = imported(text)
    assert structures_of(module.module) == {"s": "run", "t": "run"}
    given = [numbers(3, 2), numbers(1, 2)]
    for k in (0, -1):
        found = run(model, module, {"s": given, "k": np.array(k)})
        assert_same(found["a"], given[k])
        assert_same(found["t"], given)
    assert_same(run(model, module, {"s": given, "k": np.array(0)})["a"], given[0])


OPTIONAL = """
    g (float[n] x, bool c) => (there, y) {
        o = If(c) <then_branch = t () => (a) { a = Optional(x) },
                   else_branch = e () => (b) { b = Optional() }>
        there = OptionalHasElement(o)
        y = If(there) <then_branch = tt () => (p) { p = OptionalGetElement(o) },
                       else_branch = te () => (q) { q = Neg(x) }>
    }"""


def test_optionals_that_only_a_run_knows():
    model = onnx.parser.parse_model(HEADER + OPTIONAL)
    branch = model.graph.node[0].attribute[1].g.node[0]
    type_ = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, ["n"])
    branch.attribute.append(onnx.helper.make_attribute("type", type_))
    module = load_model(MemoryModel("model.onnx", model.SerializeToString()))
    x = numbers(3)
    assert_same(list(run(model, module, {"x": x, "c": np.array(True)}).values()),
                [np.array(True), x])
    assert_same(list(run(model, module, {"x": x, "c": np.array(False)}).values()),
                [np.array(False), -x])


@pytest.mark.parametrize(("text", "message"), [
    ("g (float[n] x) => (y) { s = SequenceConstruct(x) y = Relu(s) }", "is not a tensor"),
    ("g (float[n] x) => (y) { k = Constant<value_int = 3>() s = SequenceConstruct(x) "
     "y = SequenceAt(s, k) }", "position 3 is outside of its sequence of 1"),
    ("g (float[n] x) => (y) { y = SequenceLength(x) }", "its input is not a sequence"),
    ("g (float[n] x, int64 k) => (y) { z = Reshape(x, k1) s = SequenceConstruct(x, z) "
     "y = SequenceAt(s, k) }", "different numbers of dims"),
    ("g (float[n] x) => (y) { s = SequenceEmpty() y = ConcatFromSequence<axis = 0>(s) }",
     "its sequence is empty"),
])
def test_faults(text: str, message: str):
    text = text.replace("{ z =", "{ k1 = Constant<value_ints = [-1, 1]>() z =")
    with pytest.raises(StrataError, match=message):
        imported(text)


# ---------------------------------------------------------------------- the Python interface
def test_lists_and_none_at_the_python_interface() -> None:
    """Native code takes and gives lists of arrays; what is optional may be None."""
    model = onnx.parser.parse_model(HEADER + """
        agraph (seq(float[n, 2]) xs, float[k, 2] y, optional(float[2]) maybe)
            => (seq(float[m, 2]) more, float[j, 2] all, bool there)
        {
            more = SequenceInsert (xs, y)
            all = ConcatFromSequence <axis = 0> (more)
            there = OptionalHasElement (maybe)
        }""")
    exe = compiler.compile(MemoryModel("model.onnx", model.SerializeToString()), target="cpu")
    xs, y = [numbers(3, 2), numbers(1, 2)], numbers(2, 2)
    for maybe in (None, numbers(2)):
        more, everything, there = exe(xs, y, maybe)
        assert_same(more, [*xs, y])
        assert_same(everything, np.concatenate([*xs, y]))
        assert bool(there) == (maybe is not None)
    assert_same(exe([], y, maybe=None)[0], [y])
