"""Models as people find them: what onnxruntime runs with a warning, Strata runs with a warning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import ImportOptions, MemoryModel, load_model
from dialects.strata.assumptions import SizeError
from tests.frontend.onnx_models import (
    assert_close,
    make_model,
    run_imported,
    run_reference,
    value_info,
)

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


def imported(model: onnx.ModelProto, options: ImportOptions | None = None) -> Any:
    return load_model(MemoryModel("model.onnx", model.SerializeToString()), options)


def compiled(model: onnx.ModelProto, **options: Any) -> compiler.Executable:
    return compiler.compile(MemoryModel("model.onnx", model.SerializeToString()), cache="off",
                            **options)


def warnings(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(r.getMessage() for r in caplog.records)


# ---------------------------------------------------------------------- names
def test_the_last_of_equal_initializers_counts(caplog: pytest.LogCaptureFixture):
    model = make_model([helper.make_node("Add", ["x", "w"], ["y"])],
                       [value_info("x", np.float32, [2, 3])], ["y"], {"w": X[0]})
    model.graph.initializer.append(numpy_helper.from_array(X[1], "w"))
    assert_close(run_imported(imported(model), {"x": X}), run_reference(model, {"x": X}), 1e-6)
    assert "initializer 'w' is given more than once" in warnings(caplog)


@pytest.mark.parametrize(("domain", "op_type"), [
    ("com.microsoft", "Gelu"), ("ai.onnx.ml", "Normalizer"),
])
def test_a_domain_that_is_not_imported(
    domain: str, op_type: str, caplog: pytest.LogCaptureFixture
):
    model = make_model([helper.make_node(op_type, ["x"], ["y"], domain=domain)],
                       [value_info("x", np.float32, [2, 3])], ["y"])
    assert_close(run_imported(imported(model), {"x": X}), run_reference(model, {"x": X}), 1e-5)
    assert f"operators of domain '{domain}', and does not import" in warnings(caplog)


def test_an_input_without_a_use():
    model = make_model([helper.make_node("Relu", ["x"], ["y"])],
                       [value_info("x", np.float32, [2, "n"]),
                        value_info("u", np.int64, ["k"])], ["y"])
    given = {"x": X, "u": np.arange(5)}
    assert_close(compiled(model)(**given), run_reference(model, given), 0)


# ---------------------------------------------------------------------- branches and loops
def branches(then: str, otherwise: str, more: str = "", result: str = "y") -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + f"""
        g (float[n] x, bool c) => ({result}) {{
            one = Constant<value_ints = [1]>()
            wrong = Constant<value_ints = [7, 5]>()
            y = If(c) <then_branch = t () => (a) {{ {then} }},
                       else_branch = e () => (b) {{ {otherwise} }}>
            {more}
        }}""")


def test_single_elements_of_branches_may_differ_in_rank():
    """`i1[]` and `i1[1]` decide what a later If does."""
    model = branches("s = ReduceSum<keepdims = 0>(x) z = Sub(s, s) a = Less(z, s)",
                     "s = ReduceSum<keepdims = 1>(x) z = Sub(s, s) b = Less(s, z)",
                     "w = If(y) <then_branch = t2 () => (p) { p = Neg(x) },"
                     "           else_branch = e2 () => (q) { q = Abs(x) }>", "w")
    run = compiled(model)
    for c in (True, False):
        given = {"x": X[0], "c": np.array(c)}
        assert_close(run(**given), run_reference(model, given), 1e-6)


@pytest.mark.parametrize(("first", "body"), [
    ("Constant<value_float = 1.0>()", "h = Add(v, v) w = Reshape(h, one)"),
    ("Constant<value_floats = [1.0]>()", "h = Add(v, v) w = ReduceSum<keepdims = 0>(h)"),
])
def test_a_single_element_that_a_loop_gives_another_rank(first: str, body: str):
    model = onnx.parser.parse_model(HEADER + f"""
        g (float[n] x, int64 m) => (y) {{
            one = Constant<value_ints = [1]>()
            number = Constant<value_int = 1>()
            true = Cast<to = 9>(number)
            first = {first}
            last = Loop(m, true, first) <body = b (int64 i, bool c, float v) => (d, w) {{
                d = Identity(c) {body} }}>
            y = Mul(x, last)
        }}""")
    run = compiled(model)
    for m in (0, 1, 3):
        given = {"x": X[0], "m": np.array(m)}
        assert_close(run(**given), run_reference(model, given), 1e-6)


WRONG_BRANCHES = [
    ("a = Reshape(x, wrong)", "b = Neg(x)", False),
    ("a = Neg(x)", "b = Reshape(x, wrong)", True),
    ("h = Reshape(x, wrong) a = ReduceSum<keepdims = 0>(h)",
     "b = ReduceMax<keepdims = 0>(x)", False),
    ("a = Reshape(x, wrong)", "i = NonZero(x) b = Cast<to = 1>(i)", False),
    ("k = Not(c) a = If(k) <then_branch = t2 () => (p) { p = Reshape(x, wrong) },"
     "                      else_branch = e2 () => (q) { q = Abs(x) }>", "b = Neg(x)", True),
]


@pytest.mark.parametrize(("then", "otherwise", "taken"), WRONG_BRANCHES)
def test_a_branch_that_is_wrong_for_fixed_sizes_and_not_taken(
    then: str, otherwise: str, taken: bool, caplog: pytest.LogCaptureFixture
):
    model = branches(then, otherwise)
    run = compiled(model, shapes={"x": [3]})
    given = {"x": X[0], "c": np.array(taken)}
    assert_close(run(**given), run_reference(model, given), 1e-6)
    assert "cannot be computed, and must not be taken: Reshape" in warnings(caplog)


def test_taking_a_wrong_branch_is_an_error_that_says_why():
    run = compiled(branches("a = Reshape(x, wrong)", "b = Neg(x)"), shapes={"x": [3]})
    with pytest.raises(SizeError, match=r"If#2/then/Reshape#0.*has 3 elements, \[7, 5\] has 35"):
        run(x=X[0], c=np.array(True))
    np.testing.assert_array_equal(run(x=X[0], c=np.array(False))[0], -X[0])


def test_an_lstm_that_does_not_fit_in_a_branch_that_is_not_taken():
    """For one feature the model takes its short cut."""
    model = recurrent_model()
    for features, options in ((3, {}), (1, {"dims": {"features": 1}})):
        x = np.random.default_rng(1).standard_normal((4, 2, features)).astype(np.float32)
        given = {"x": x, "c": np.array(features == 3)}
        assert_close(compiled(model, **options)(**given), run_reference(model, given), 1e-5)


def recurrent_model() -> onnx.ModelProto:
    weights = {"w": (1, 8, 3), "r": (1, 8, 2)}
    rng = np.random.default_rng(2)
    inner = [helper.make_node("LSTM", ["x", "w", "r"], ["h"], hidden_size=2),
             helper.make_node("ReduceSum", ["h"], ["a"], keepdims=0)]
    nodes = [helper.make_node(
        "If", ["c"], ["y"], then_branch=helper.make_graph(inner, "t", [], outputs("a")),
        else_branch=helper.make_graph(
            [helper.make_node("ReduceMax", ["x"], ["b"], keepdims=0)], "e", [], outputs("b")))]
    return make_model(nodes, [value_info("x", np.float32, ["steps", "batch", "features"]),
                              value_info("c", np.bool_, [])], ["y"],
                      {n: rng.standard_normal(s).astype(np.float32) for n, s in weights.items()})


def outputs(*names: str) -> Sequence[onnx.ValueInfoProto]:
    return [onnx.ValueInfoProto(name=name) for name in names]


def test_two_wrong_branches_are_both_told():
    model = branches("a = Reshape(x, wrong)", "b = Reshape(x, wrong)")
    with pytest.raises(StrataError, match=r"(?s)2 problems.*If#2/then.*If#2/else"):
        imported(model, ImportOptions(shapes={"x": (3,)}))




# ---------------------------------------------------------------------- sparse tensors
def sparse(name: str, values: list[float], indices: Any, dims: list[int]) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.array(values, np.float32), name),
        numpy_helper.from_array(np.array(indices, np.int64), f"{name}_indices"), dims)


@pytest.mark.parametrize(("values", "indices"), [
    ([2.0, 3.0], [1, 7]), ([2.0, 3.0], [[0, 1], [2, 3]]), ([], []),
])
@pytest.mark.parametrize("is_constant", [False, True])
def test_sparse_weights(values: list[float], indices: Any, is_constant: bool):
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = make_model([product], [value_info("x", np.float32, [2, 3])], ["y"])
    if is_constant:
        model.graph.node.insert(0, helper.make_node(
            "Constant", [], ["w"], sparse_value=sparse("", values, indices, [3, 4])))
    else:
        model.graph.sparse_initializer.append(sparse("w", values, indices, [3, 4]))
    assert_close(run_imported(imported(model), {"x": X}), run_reference(model, {"x": X}), 1e-6)


# ---------------------------------------------------------------------- strings
LABELS = helper.make_tensor("labels", onnx.TensorProto.STRING, [3], [b"cat", b"dog", b"cow"])
WORDS = np.array([["a", "\u00f6"], ["", "dd"]], object)


def typed(name: str, kind: int, shape: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def strings_model(
    nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: dict[str, int],
    **constants: Any,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "g", inputs, [typed(n, kind, None) for n, kind in outputs.items()],
        [LABELS, *(numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items())])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def strings_agree(model: onnx.ModelProto, given: dict[str, Any]) -> None:
    """Against onnxruntime, which needs the types of outputs here."""
    onnxruntime: Any = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    for got, want in zip(compiled(model)(**given), session.run(None, given), strict=True):
        assert got.shape == want.shape and got.tolist() == want.tolist()


TEXT = onnx.TensorProto.STRING


def test_labels_are_gathered():
    nodes = [helper.make_node("ArgMax", ["x"], ["i"], axis=1, keepdims=0),
             helper.make_node("Gather", ["labels", "i"], ["y"])]
    strings_agree(strings_model(nodes, [value_info("x", np.float32, ["n", 3])], {"y": TEXT}),
                  {"x": X})


def test_strings_are_moved_and_compared():
    """Also such that the model does not know."""
    nodes = [helper.make_node("Reshape", ["s", "flat"], ["r"]),
             helper.make_node("Concat", ["r", "labels"], ["c"], axis=0),
             helper.make_node("Equal", ["r", "q"], ["e"]),
             helper.make_node("Where", ["e", "r", "q"], ["w"]),
             helper.make_node("Transpose", ["s"], ["t"]), helper.make_node("Shape", ["c"], ["z"])]
    model = strings_model(nodes, [typed("s", TEXT, ["n", "m"]), typed("q", TEXT, ["k"])],
                          {"c": TEXT, "e": onnx.TensorProto.BOOL, "w": TEXT, "t": TEXT,
                           "z": onnx.TensorProto.INT64}, flat=[-1])
    strings_agree(model, {"s": WORDS, "q": np.array(["a", "cat", "", "zz"], object)})


def test_strings_of_branches():
    body = [helper.make_graph([helper.make_node("Constant", [], [name], value_strings=words)], name,
                              [], [typed(name, TEXT, None)])
            for name, words in (("a", [b"u", b"v"]), ("b", [b"w"]))]
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=body[0], else_branch=body[1])]
    model = strings_model(nodes, [typed("c", onnx.TensorProto.BOOL, [])], {"y": TEXT})
    for c in (True, False):
        strings_agree(model, {"c": np.array(c)})


def test_strings_that_nothing_uses():
    model = strings_model([helper.make_node("Relu", ["x"], ["y"])],
                          [value_info("x", np.float32, [2, 3]), typed("u", TEXT, ["n"])],
                          {"y": onnx.TensorProto.FLOAT})
    strings_agree(model, {"x": X, "u": WORDS[0]})


@pytest.mark.parametrize("op_type", ["Cast", "Add", "SequenceConstruct", "Max"])
def test_what_computes_on_strings_is_refused_by_name(op_type: str):
    attributes = {"to": 1} if op_type == "Cast" else {}
    nodes = [helper.make_node(op_type, ["s", "s"][:1 if op_type == "Cast" else 2], ["y"],
                              name="reader", **attributes)]
    model = strings_model(nodes, [typed("s", TEXT, ["n"])], {"y": TEXT})
    with pytest.raises(StrataError, match=r"(?s)computes on strings.*node 'reader'"):
        imported(model)
