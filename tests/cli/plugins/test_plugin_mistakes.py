"""A plugin's mistake is told as the plugin's: one message with file and line, exit status 1."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from compiler.pipeline.plan import plan
from compiler.plugins.plugin_files import load_plugins
from tests.cli.conftest import Run

A_PASS = """
from dataclasses import dataclass
from passes.base import StrataPass

@dataclass(frozen=True)
class Mine(StrataPass):
    name = "{name}"
    place = "{place}"
    def run(self, context, module):
        {body}
"""


def a_pass(name: str = "mine", place: str = "after(graph-cse)", body: str = "pass") -> str:
    return A_PASS.format(name=name, place=place, body=body)


IMPORTER = """
from compiler.frontend.onnx.ops import onnx_op

@onnx_op("Own", domain="com.example")
def own(n, x):
    return {result}
"""
LEVEL = """
from compiler.pipeline.levels import Level
LEVEL = Level("mine", "a level", ("host.*",), after="{after}", steps=({step!r},))
"""
TARGET = """
from targets.parts import Emission, Running
from targets.reference import ReferenceTarget
class WrongEmission(Emission):
    def emit(self, module, level):
        return 3
class WrongRunning(Running):
    def load(self, module, weights, report):
        return None
class Wrong(ReferenceTarget):
    emission, running = WrongEmission, WrongRunning
TARGET = Wrong("{name}", ("text",), "wrong", lowers=False)
"""
WITHOUT_PARTS = """
from targets.base import Target
class Wrong(Target): pass
TARGET = Wrong("wrong", ())
"""
LOWERING = """
from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition, operand_def, result_def
from dialects.graph.base import GraphOp
from dialects.strata.types import TensorType
from passes.graph_to_loop.rules import lowers

@irdl_op_definition
class OwnOp(GraphOp):
    name = "own.op"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    @classmethod
    def infer(cls, types, attributes):
        return types

@lowers(OwnOp)
def lower(op, at):
    return 3

OWN = Dialect("own", [OwnOp])
"""
FRONTEND = """
DESCRIPTION = "nothing"
def accepts(model):
    return model.endswith(".own")
def load_model(model, options):
    return {}
"""

CASES = {
    "raises while imported": (["x = 1\n1 / 0\n"], ["ZeroDivisionError", "one.py, line 2"]),
    "is no Python": (["def f(:\n"], ["SyntaxError", "one.py, line 1"]),
    "imports what is not there": (["import no_such_module\n"], ["no_such_module", "line 1"]),
    "defines nothing": (["x = 1\n"], ["defines no pass"]),
    "defines a pass twice": ([a_pass(), a_pass()], ["'mine' is defined twice", "two.py, line 5"]),
    "defines an operator twice": (
        [IMPORTER.format(result="x") + IMPORTER.format(result="x").replace("own(", "other(")],
        ["'com.example.Own' is defined twice", "one.py, line 10"]),
    "takes a pass's name": ([a_pass("graph-cse")], ["'graph-cse' is one of Strata's own"]),
    "takes a target's name": ([TARGET.format(name="cpu")], ["'cpu' is one of Strata's own"]),
    "has a target without parts": (
        [WITHOUT_PARTS], ["Wrong.scheduling must be a class that defines schedule", "line 4"]),
    "has a target that is asked itself": (
        [WITHOUT_PARTS.replace("base", "reference").replace("Target", "ReferenceTarget").replace(
            "pass", "load = None")],
        ["Wrong defines load, which is asked of Wrong.running", "one.py, line 4"]),
    "takes an operator's name": (
        [IMPORTER.format(result="x").replace("Own", "Gelu").replace("com.example", "")],
        ["'Gelu' is one of Strata's own", "one.py, line 4"]),
    "has a place after no step": ([a_pass(place="after(graph-csee)")],
                                  ["after(graph-csee)", "graph-cse", "one.py, line 5"]),
    "has no place": ([a_pass(place="graph-cse")], ["place 'graph-cse'", "the pipeline lacks"]),
    "has no run": ([a_pass().replace("def run", "def walk")], ["lacks run"]),
    "has no name": ([a_pass().replace('"mine"', "3")], ["must have a string as its name"]),
    "has a level after no level": ([LEVEL.format(after="hots", step="loop-fuse")],
                                   ["'hots'", "host"]),
    "has a level with no pass": ([LEVEL.format(after="host", step="loop-fusee")],
                                 ["'loop-fusee'", "loop-fuse"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_plugin_that_cannot_be_used(
    strata: Run, small_model: Path, tmp_path: Path, case: str
) -> None:
    sources, expected = CASES[case]
    words = list[object]()
    for name, source in zip(("one.py", "two.py"), sources, strict=False):
        (tmp_path / name).write_text(source)
        words += ["--plugin", name]
    done = strata("lower", small_model, "--target", "reference", "--to", "graph", *words)
    assert done.status == 1, done.err
    assert done.err.count("error:") == 1
    assert all(text in done.err for text in expected), done.err
    assert "fault of the compiler" not in done.err
    assert not list(tmp_path.glob("reproducer*"))


def own_model(folder: Path) -> Path:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy")
    node = helper.make_node("Own", ["x"], ["y"], domain="com.example")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(helper.make_graph([node], "own", [x], [y]), opset_imports=opsets,
                                ir_version=8), folder / "own.onnx")
    return folder / "own.onnx"


TEXT = """\
strata.func @main(%x: f32[4]) -> (f32[4]) inputs ["x"] outputs ["y"] {
  %y = own.op %x : f32[4]
  strata.return %y
}
"""
WRONG = {
    "importer": (IMPORTER.format(result="3"), ["run", "own.onnx", "--target", "cpu"],
                 ["what own returns must be a Value", "is int", "one.py, line 4"]),
    "importer that raises": (IMPORTER.format(result="x.nothing"),
                             ["run", "own.onnx", "--target", "cpu"],
                             ["AttributeError", "one.py, line 6", "return x.nothing"]),
    "frontend": (FRONTEND, ["run", "m.own", "--target", "cpu"],
                 ["load_model returns must be an ImportedModel", "one.py, line 5"]),
    "target's load": (TARGET.format(name="wrong"), ["run", "small.onnx", "--target", "wrong"],
                      ["Running.load returns must be an Executable", "one.py, line 8"]),
    "target's emit": (TARGET.format(name="wrong"), ["lower", "small.onnx", "--target", "wrong"],
                      ["Emission.emit returns must be text", "is int", "one.py, line 5"]),
    "lowering": (LOWERING, ["run", "own.mlir", "--target", "cpu"],
                 ["lower must return", "returned int", "one.py, line 17"]),
    "pass": (a_pass(body="[][1]"),
             ["lower", "small.onnx", "--target", "cpu", "--passes", "default,mine"],
             ["IndexError", "one.py, line 10", "[][1]"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_a_plugin_returns_or_raises(
    strata: Run, small_model: Path, tmp_path: Path, case: str
) -> None:
    source, words, expected = WRONG[case]
    own_model(tmp_path)
    (tmp_path / "small.onnx").write_bytes(small_model.read_bytes())
    (tmp_path / "own.mlir").write_text(TEXT)
    (tmp_path / "one.py").write_text(source)
    done = strata(*words, "--plugin", "one.py")
    assert done.status == 1, done.err
    assert all(text in done.err for text in expected), done.err
    assert "fault of the compiler" not in done.err


def test_a_pass_says_where_it_stands(strata: Run, small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(a_pass())
    words = ("lower", small_model, "--target", "cpu", "--to", "graph", "--plugin", "one.py")
    assert strata(*words, "--passes", "default,mine").status == 0
    planned = plan("default,mine", "graph", (), None, "graph", load_plugins([Path("one.py")]))
    labels = [step.label for step in planned]
    assert labels[labels.index("mine") - 1] == "graph-cse"
    (tmp_path / "one.py").write_text(a_pass(place=""))
    done = strata(*words, "--passes", "default,mine")
    assert done.status == 1 and "default,after(PASS)=mine" in done.err
