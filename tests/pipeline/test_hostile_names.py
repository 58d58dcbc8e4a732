"""Names that look like something else: through every level, its text, and execution on each target.

Sizes, values, nodes, inputs and outputs of a model may be called anything. A size called `in0` is
no gathered input, one called `i0` no axis, and what cannot be written bare is quoted.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from xdsl.printer import Printer

import compiler
from compiler.__main__ import main
from compiler.diagnostics import StrataError
from compiler.pipeline.text import _Printer
from dialects.strata.types import ELEMENTS
from dialects.symbolic.expr import Expr
from dialects.symbolic.expr_syntax import expr_of, symbol_of
from dialects.symbolic.symbol import RESERVED_WORDS, Kind, Symbol, quoted, unquoted
from dialects.text.syntax import distinct_identifiers

LONG = "x" * 10_000
HOSTILE = (
    "in0", "in1", "i0", "i0_part", "t0", "d0", "%0", "@0", "$0", "max", "floordiv", "index", "f32",
    "true", "func", "builtin.module", "loc", "a b", "a_b", "a-b", 'a"b', "a\nb", "a\tb", "//",
    "\\", "\\0A", " ", "é", "٣", "\u2028", LONG, LONG + "y", "_x", "__", "x", "in00", "0x1", "[",
    "2*n", "size.n", "v1",
)
TARGETS = ("reference", "cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    find_spec("triton") is None, reason="needs Triton")))


# ---------------------------------------------------------------------- symbols and their text
@pytest.mark.parametrize("kind", Kind)
@given(name=st.one_of(st.sampled_from((*HOSTILE, "")), st.text()))
def test_text_reads_back(kind: Kind, name: str) -> None:
    symbol = Symbol(kind, name)
    assert symbol_of(symbol.text) is symbol
    other = Expr.symbol(symbol) * Expr.size("n") // 3 + Expr.axis("i0") + 2
    assert expr_of(str(other)) == other


@given(st.text())
def test_quoted_text_is_one_printable_token(text: str) -> None:
    assert unquoted(quoted(text)) == text
    assert quoted(text).isprintable()


def test_kinds_stay_apart() -> None:
    """One name, as many symbols as kinds, each with its own text."""
    for name in (*HOSTILE, "0", "1"):
        symbols = [Symbol(kind, name) for kind in Kind]
        assert len({s.text for s in symbols}) == len({*symbols}) == len(Kind)


def test_words_of_elements_are_reserved() -> None:
    signless = {f"i{n}" for n in (1, 2, 4, 8, 16, 32, 64)}  # these look like axes
    assert {str(e) for e in ELEMENTS} - signless <= RESERVED_WORDS


def test_symbols_do_not_change_and_travel() -> None:
    import pickle

    symbol = Symbol.size("in0")
    assert pickle.loads(pickle.dumps(symbol)) is symbol
    with pytest.raises(AttributeError):
        symbol.name = "n"  # type: ignore[misc]


def test_identifiers_are_distinct() -> None:
    found = distinct_identifiers(HOSTILE)
    assert len({*found}) == len(HOSTILE)
    assert all(n.isidentifier() and n.isascii() and len(n) < 100 for n in found)


# ---------------------------------------------------------------------- models
def _model(rows: str, columns: str, names: Sequence[str]) -> onnx.ModelProto:
    """Broadcasting, a gather, sums, a slice, a reshape and a product over two sizes of these names.

    `names`: of the input, the output, and of nodes and the values between.
    """
    x, y, *between = names
    v = iter(between)
    a, b, c, d, e, f = (next(v) for _ in range(6))
    nodes = [
        helper.make_node("Mul", [x, "weights"], [a], name=a),
        helper.make_node("Gather", ["table", "ids"], [b], name=b),
        helper.make_node("ReduceSum", [a, "one"], [c], name=c, keepdims=1),
        helper.make_node("Add", [a, c], [d], name=d),
        helper.make_node("MatMul", [d, b], [e], name=e),
        helper.make_node("Reshape", [e, "flat"], [f], name=f),
        helper.make_node("Slice", [f, "begin", "end"], [y], name=y),
    ]
    constants = {
        "weights": np.float32([1.5]), "one": np.int64([1]), "flat": np.int64([-1]),
        "begin": np.int64([1]), "end": np.int64([2**31 - 1]),
        "table": np.arange(24, dtype=np.float32).reshape(6, 4)}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [rows, columns]),
         helper.make_tensor_value_info("ids", TensorProto.INT64, [columns])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(a, n) for n, a in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _expected(x: Any, ids: Any) -> Any:
    table = np.arange(24, dtype=np.float64).reshape(6, 4)
    scaled = x.astype(np.float64) * 1.5
    return ((scaled + scaled.sum(1, keepdims=True)) @ table[ids]).reshape(-1)[1:]


def _inputs() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((3, 5)).astype(np.float32), rng.integers(0, 6, 5)


def _rounds() -> list[list[str]]:
    """Each name once as a row, a column, an input, an output and a node."""
    names = list(HOSTILE)
    return [list(itertools.islice(itertools.cycle(names), k, k + 10))
            for k in range(0, len(names), 5)]


ROUNDS = _rounds()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("names", ROUNDS, ids=[ascii(names[0][:8]) for names in ROUNDS])
def test_models(names: list[str], target: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_model(names[0], names[1], names[2:]), path)
    exe = compiler.compile(str(path), target=target, cache="off", interpret=target == "cuda")
    x, ids = _inputs()
    assert exe.signature.input_names == (names[2], "ids")
    assert [s.name for s in exe.signature.symbols()] == names[:2]
    [y] = exe.run([x, ids])
    np.testing.assert_allclose(y, _expected(x, ids), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["in0", "a b", "é", "_x", LONG], ids=lambda n: ascii(n[:8]))
def test_the_user_says_the_models_own_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_model(name, "n", HOSTILE[:8]), path)
    exe = compiler.compile(str(path), target="reference", cache="off", dims={name: 3})
    assert [s.name for s in exe.signature.symbols()] == ["n"]
    x, ids = _inputs()
    np.testing.assert_allclose(exe.run([x, ids])[0], _expected(x, ids), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("names", "step"), [
    (ROUNDS[0], 6), *(pytest.param(r, 1, marks=pytest.mark.slow) for r in ROUNDS)],
    ids=lambda value: ascii(value[0][:8]) if isinstance(value, list) else f"every {value}")
def test_dumps_are_read_again(names: list[str], step: int, tmp_path: Path) -> None:
    """Dumps go on to the same numbers: each, or every sixth."""
    path, folder = tmp_path / "model.onnx", tmp_path / "dump"
    onnx.save(_model(names[0], names[1], names[2:]), path)
    assert main(["lower", str(path), "--target", "cpu", "--to", "block", "--dump-dir",
                 str(folder), "-o", str(tmp_path / "all.mlir")]) == 0
    x, ids = _inputs()
    dumps = sorted(folder.glob("*.mlir"))
    assert len(dumps) > 5
    for dump in (*dumps[::step], dumps[-1]):
        exe = compiler.compile(str(dump), target="reference", cache="off")
        assert exe.signature.input_names == (names[2], "ids")
        np.testing.assert_allclose(exe.run([x, ids])[0], _expected(x, ids), rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------------- no names
@pytest.mark.parametrize("target", TARGETS)
def test_nodes_and_results_without_names(target: str, tmp_path: Path) -> None:
    """Nodes need no name, and an empty result or operand is absent."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["", "places"], name="", kernel_shape=[2], strides=[2]),
        helper.make_node("Dropout", ["x"], ["y", ""], name=""),
        helper.make_node("Clip", ["y", "", "most"], ["z"], name=""),
    ]
    graph = helper.make_graph(
        nodes, "", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["", 1, 4])],
        [helper.make_tensor_value_info("places", TensorProto.INT64, None),
         helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.array(0.5, np.float32), "most")])
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    exe = compiler.compile(str(path), target=target, cache="off", interpret=target == "cuda")
    x = np.array([[[0, 2, 1, -1]], [[3, 0, 0, 0]]], np.float32)
    places, z = exe.run([x])
    assert places.tolist() == [[[1, 2]], [[4, 6]]]
    np.testing.assert_array_equal(z, np.minimum(x, 0.5))


@pytest.mark.parametrize(("place", "message"), [
    ("input", "Add needs its input 0"), ("initializer", "Add needs its input 1"),
    ("output", "no node defines graph output ''"),
])
def test_a_value_of_a_model_without_a_name(place: str, message: str, tmp_path: Path) -> None:
    """ONNX takes the empty name for an absent value, so a model that gives it one is refused."""
    x, y, c = ("" if place == name else name for name in ("input", "output", "initializer"))
    graph = helper.make_graph(
        [helper.make_node("Add", [x, c], [y])], "g",
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [2])],
        [onnx.numpy_helper.from_array(np.ones(2, np.float32), c)])
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    with pytest.raises(StrataError, match=message):
        compiler.compile(str(path), target="reference", cache="off")


# ---------------------------------------------------------------------- control flow
@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["in0", "_step", "a\nb", *(
    pytest.param(name, marks=pytest.mark.slow) for name in ("i0", "%0", "é", LONG))],
    ids=lambda n: ascii(n[:8]))
def test_loops_and_branches(name: str, target: str, tmp_path: Path) -> None:
    """A loop that adds its number to rows, then a branch on a sum."""
    body = helper.make_graph(
        [helper.make_node("Cast", ["k"], ["kf"], to=TensorProto.FLOAT),
         helper.make_node("Add", [f"{name}.in", "kf"], [f"{name}.out"], name=name),
         helper.make_node("Identity", ["going"], ["on"])], name,
        [helper.make_tensor_value_info("k", TensorProto.INT64, []),
         helper.make_tensor_value_info("going", TensorProto.BOOL, []),
         helper.make_tensor_value_info(f"{name}.in", TensorProto.FLOAT, [name, 4])],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []),
         helper.make_tensor_value_info(f"{name}.out", TensorProto.FLOAT, [name, 4])])

    def branch(op: str) -> onnx.GraphProto:
        return helper.make_graph([helper.make_node(op, ["rows"], [f"{op} {name}"], name=name)],
                                 name, [], [helper.make_tensor_value_info(
                                     f"{op} {name}", TensorProto.FLOAT, [name, 4])])

    graph = helper.make_graph(
        [helper.make_node("Loop", ["count", "", name], ["rows"], name=name, body=body),
         helper.make_node("ReduceSum", ["rows"], ["sum"], keepdims=0),
         helper.make_node("Greater", ["sum", "zero"], ["large"]),
         helper.make_node("If", ["large"], ["y"], name="//", then_branch=branch("Neg"),
                          else_branch=branch("Exp"))],
        "g", [helper.make_tensor_value_info(name, TensorProto.FLOAT, [name, 4]),
              helper.make_tensor_value_info("count", TensorProto.INT64, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.float32(0), "zero")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    exe = compiler.compile(str(path), target=target, cache="off")
    x = np.ones((3, 4), np.float32)
    for count, want in ((3, -(x + 3)), (0, -x)):
        np.testing.assert_allclose(exe.run([x, np.int64(count)])[0], want, rtol=1e-6)


# ---------------------------------------------------------------------- functions and kernels
def _branches_text(kernels: Sequence[str], functions: Sequence[str]) -> str:
    """Two branches in turn, at block level, with these names: y = |x| * 2 if x[0] > 0, else -x."""
    def function(name: str, kernel: str) -> str:
        return f"""
        host.func @{quoted(name)}(%x: f32[n]) inputs ["x"] outputs ["y": f32[n]] sizes(n) {{
          %y = host.alloc : f32[n]
          host.launch @{quoted(kernel)}(%x, %y) sizes(n)
          host.return %y
        }}"""

    def kernel(name: str, factor: float) -> str:
        return f"""
        block.kernel @{quoted(name)}(%x: f32[n], %y: f32[n]) grid(%p: n) sizes(n) {{
          %v = block.load %x[%p] : tile<f32>
          %w = block.map (%v[]) : tile<f32> {{
          ^bb0(%a: f32):
            %c = arith.constant {factor} : f32
            %r = arith.mulf %a, %c : f32
            block.yield %r
          }}
          block.store %w, %y[%p]
          block.yield
        }}"""

    calls = [f"%y{k} = strata.if %c then @{quoted(then)} else @{quoted(other)} (%y{k - 1}) "
             "buffers f32[n]"
             for k, (then, other) in enumerate(zip(functions[::2], functions[1::2], strict=True))]
    body = "\n".join(calls).replace("%y-1", "%x")
    return f"""// strata: level=block
    builtin.module {{
      host.func @main(%x: f32[n], %c: i1[]) inputs ["x", "c"] outputs ["y": f32[n]] sizes(n) {{
        {body}
        host.return %y{len(calls) - 1}
      }}
      {"".join(function(name, kernels[k % 2]) for k, name in enumerate(functions))}
      {"".join(kernel(name, factor) for name, factor in zip(kernels, (2.0, -1.0), strict=True))}
    }}"""


SPELLINGS = ("a b", "a-b", "a.b", "a_b", "é", "٣", "strata_body", "a_b_2", "main.", LONG)
"""Names of functions that differ only in what identifiers cannot hold, and others."""


@pytest.mark.parametrize("kernels", [("a?b", "a!b"), ("strata_run", "è"), ("٣٣", "main!")])
@pytest.mark.parametrize("target", TARGETS)
def test_functions_and_kernels(target: str, kernels: Sequence[str], tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(_branches_text(kernels, SPELLINGS), encoding="utf-8")
    exe = compiler.compile(str(path), target=target, cache="off", interpret=target == "cuda")
    x = np.array([1, -2, 3], np.float32)
    for condition, factor in ((True, 2.0), (False, -1.0)):
        [y] = exe.run([x, np.array(condition)])
        np.testing.assert_array_equal(y, x * factor ** (len(SPELLINGS) // 2))


@pytest.mark.parametrize(("target", "level"), [("cpu", "llvm"), ("cpu", "asm"),
                                               ("cuda", "triton")])
def test_code_of_functions_and_kernels(target: str, level: str, tmp_path: Path) -> None:
    path, code = tmp_path / "model.mlir", tmp_path / "code"
    path.write_text(_branches_text(("a?b", "strata_run"), SPELLINGS), encoding="utf-8")
    assert main(["lower", str(path), "--target", target, "--to", level, "-o", str(code)]) == 0
    assert code.stat().st_size > 1000


# ---------------------------------------------------------------------- long texts
def test_strings_are_printed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text as xDSL's, by a number of steps that does not grow with it."""
    own, theirs, pieces = StringIO(), StringIO(), list[str]()
    every = bytes(range(256)) * 40
    Printer(theirs).print_bytes_literal(every)
    printer = _Printer(own, False)
    whole = printer.print_string
    monkeypatch.setattr(printer, "print_string", lambda s: (pieces.append(s), whole(s)))
    printer.print_bytes_literal(every)
    assert own.getvalue() == theirs.getvalue()
    assert len(pieces) == 1


def test_messages_and_descriptions_cut_long_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "m" * 100_000
    nodes = [helper.make_node("GridSample", ["x", "x"], [f"y{k}"], mode=long + str(k),
                              name=f"{k}{long}") for k in range(9)]
    infos = [helper.make_tensor_value_info("x", 1, [long, 4, 4, 2])]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y0", 1, None)])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, producer_name=long, ir_version=8,
                                opset_imports=[helper.make_opsetid("", 17)]), path)
    assert main(["inspect", str(path)]) == 0
    assert len(capsys.readouterr().out) < 40_000
    assert main(["lower", str(path)]) == 1
    assert len(capsys.readouterr().err) < 40_000
