"""What commands print of names that a terminal would obey: escapes, never the characters.

Every name of the model moves the cursor, recolours, rings, ends a line, or turns the direction of
what follows. JSON has the names as they are.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.diagnostics import Problem, StrataError, visible
from compiler.io.printing import Painted, show
from tests.cli.conftest import Run

ROOT = Path(compiler.__file__).parent
HOSTILE = "\x1b[31m\x1b]0;t\x07\x9b2J\r\n\u202e\u2066\u200f\u2028\x00\x7f"
PRINTING = {"io/printing.py", "io/output.py", "cli/standard_streams.py", "faults.py"}
"""The modules that write to streams: lines, data, and tracebacks for developers."""


def hostile(name: str) -> str:
    return f"{name}{HOSTILE}"


def make_model(known: bool = True) -> onnx.ModelProto:
    """softmax(x @ w)[rows] + softmax's shape, all of whose names are hostile. If not `known`, with
    an operator that nobody supports."""
    h = hostile
    x = helper.make_tensor_value_info(h("x"), TensorProto.FLOAT, [h("n"), 8])
    rows = helper.make_tensor_value_info(h("rows"), TensorProto.INT64, [h("m")])
    y = helper.make_tensor_value_info(h("y"), TensorProto.FLOAT, [h("m"), 32])
    w = np.random.default_rng(0).standard_normal((8, 32), np.float32)
    nodes = [helper.make_node("MatMul", [h("x"), h("w")], [h("scores")], name=h("project")),
             helper.make_node("Identity", [h("scores")], [h("same")], name=h("copy")),
             helper.make_node("Softmax", [h("same")], [h("shares")], name=h("normalize")),
             helper.make_node("Gather", [h("shares"), h("rows")], [h("picked")], name=h("pick")),
             helper.make_node("Relu" if known else h("Odd"), [h("picked")], [h("y")],
                              name=h("last"), domain="" if known else h("domain"))]
    graph = helper.make_graph(nodes, h("g"), [x, rows], [y], [numpy_helper.from_array(w, h("w"))])
    opsets = [helper.make_opsetid("", 17), *([] if known else [
        helper.make_opsetid(h("domain"), 1)])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name=h("maker"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "m.onnx"
    onnx.save(make_model(), path)
    return path


def check(text: str) -> None:
    obeyed = {c for c in text if not c.isprintable() and c != "\n"}
    assert not obeyed, (obeyed, text)


COMMANDS: Sequence[tuple[int, Sequence[str]]] = (
    (0, ("inspect",)), (0, ("inspect", "--json")), (0, ("explain",)),
    (0, ("explain", "--json", "-")), (0, ("explain", "--node", hostile("normalize"))),
    (0, ("explain", "--node", hostile("copy"))), (1, ("explain", "--node", hostile("normalise"))),
    (1, ("explain", "--kernel", hostile("k"))),
    (0, ("explain", "--node", hostile("project"), "--lines", "asm")),
    (0, ("explain", "--node", hostile("project"), "--lines", "block")),
    (0, ("profile", "--seconds", "0.05")), (0, ("profile", "--seconds", "0.05", "--json", "-")),
    (0, ("compare", "--groups", "fuse", "--rounds", "2")),
    (0, ("verify", "--verbose")), (0, ("verify", "--ring", "--levels-only")),
    (0, ("report", "--terminal", "--seconds", "0.05")), (0, ("run", "--verbose")),
    (0, ("bench", "--rounds", "2")), (1, ("bisect", "--seeds", "1")),
    (1, ("reduce", "-o", "small.onnx")),
    (0, ("lower", "--to", "graph")), (0, ("lower", "--to", "block", "--print-locations")),
    (0, ("lower",)), (0, ("lower", "--to", "llvm")), (0, ("lower", "--print-changes")),
    (1, ("run", "--input", f"{hostile('z')}=1")), (1, ("run", "--dim", f"{hostile('q')}=3")),
    (1, ("lower", "--to", hostile("level"))), (2, ("run", f"--{hostile('option')}")),
    (2, ("run", "--target", hostile("cpu"), hostile("more"))),
)


@pytest.mark.parametrize("status, words", COMMANDS, ids=lambda value: (
    "-".join(map(visible, value))[:60] if isinstance(value, tuple) else None))
def test_a_command_prints_no_character_that_terminals_obey(
    strata: Run, model: Path, status: int, words: Sequence[str]
) -> None:
    pytest.importorskip("llvmlite")
    done = strata(words[0], model, *words[1:])
    assert done.status == status, done.err
    assert done.out + done.err
    check(done.out + done.err)


def test_what_is_not_supported_is_told_with_escapes(strata: Run, tmp_path: Path) -> None:
    path = tmp_path / "odd.onnx"
    onnx.save(make_model(known=False), path)
    for words in (("inspect", path), ("lower", path), ("report", path, "--terminal")):
        done = strata(*words)
        assert "Odd" in done.out + done.err
        check(done.out + done.err)
    check(strata("inspect", path, "--json").out)


def test_diff_shows_names_with_escapes(strata: Run, model: Path) -> None:
    assert strata("lower", model, "--dump-dir", "dumps", "--to", "loop").status == 0
    for words in ((), ("--all",), ("loop-fuse",), (hostile("pass"),)):
        done = strata("diff", "dumps", *words)
        assert done.out + done.err
        check(done.out + done.err)


def test_json_has_the_names_as_they_are(strata: Run, model: Path) -> None:
    """In bytes that no terminal obeys."""
    names = {hostile(n) for n in ("project", "copy", "normalize", "pick", "last")}
    explained = strata("explain", model, "--json", "-").out
    assert {n["name"] for n in json.loads(explained)["nodes"]} >= names
    profiled = json.loads(strata("profile", model, "--seconds", "0.05", "--json", "-").out)
    assert {n for k in profiled["kernels"] for n in k["nodes"]} <= names
    assert hostile("x") in {i["name"] for i in json.loads(
        strata("inspect", model, "--json").out)["inputs"]}


def test_python_shows_names_with_escapes(model: Path) -> None:
    check("\n".join(compiler.explain(str(model)).lines()))


def test_errors_show_escapes_and_keep_names() -> None:
    error = StrataError(hostile("what"), [Problem(hostile("x"), node=hostile("n"),
                                                  nodes=(hostile("m"),), excerpt=hostile("e"))])
    check(str(error))
    assert error.problems[0].node == hostile("n")


class Terminal(list[str]):
    """A stream that shows colours."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.append(text)


def test_colours_are_those_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = Terminal()
    show(Painted("a\x1b[32mb", "31"), "c\x1b[32md", file=shown)
    assert shown == ["\x1b[31ma\\x1b[32mb\x1b[0m\n", "c\\x1b[32md\n"]


def test_everything_is_printed_by_one_function() -> None:
    """No module calls `print`, or writes to a standard stream, but those that are named above."""
    found = {f"{path.relative_to(ROOT)}:{call.lineno}" for path in ROOT.rglob("*.py")
             if path.relative_to(ROOT).as_posix() not in PRINTING
             for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
             if isinstance(call, ast.Call) and _prints(call)}
    assert not found


def _prints(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    return name == "print" or name.startswith(("sys.stdout.write", "sys.stderr.write"))


def test_code_for_other_machines_has_comments_without_controls(strata: Run, model: Path) -> None:
    pytest.importorskip("triton")
    done = strata("lower", model, "--target", "cuda", "--to", "triton")
    assert done.status == 0 and "# from project\\1B" in done.out
    check(done.out + done.err)
    lines = strata("explain", model, "--target", "cuda", "--node", hostile("project"), "--lines",
                   "triton").out
    assert "tl.dot" in lines or "tl.sum" in lines
    check(lines)
