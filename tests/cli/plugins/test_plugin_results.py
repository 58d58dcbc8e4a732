"""What a plugin's operations, targets, levels and importers do wrong is told as the plugin's.

Each mistake is made by a file for `--plugin` and by an installed package's entry point: one message
with file and line, exit status 1, and never a fault of the compiler.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from test_plugin_mistakes import CASES, FRONTEND, IMPORTER, TEXT, WRONG, a_pass, own_model

from tests.cli.conftest import Outcome, Run

OPERATION = """
import numpy as np
from xdsl.ir import Dialect
from xdsl.irdl import irdl_op_definition, operand_def, result_def
from dialects.graph.base import GraphOp
from dialects.strata.types import TensorType
from passes.graph_to_loop.nests import pointwise, type_of
from passes.graph_to_loop.rules import lowers

@irdl_op_definition
class OwnOp(GraphOp):
    name = "own.op"
    x = operand_def(TensorType)
    result = result_def(TensorType)
    @classmethod
    def infer(cls, types, attributes):
        return INFER
    def evaluate(self, context, x):
        return EVALUATE

@lowers(OwnOp)
def lower(op, at):
    return pointwise(at, [op.x], type_of(op.result), lambda x: x + x)

OWN = Dialect("own", [OwnOp])
"""
TARGET = """
from dialects.strata.schedule import Level, Schedule
from targets.parts import Emission, Running
from targets.reference import ReferenceExecutable, ReferenceTarget
class Exe(ReferenceExecutable):
    def run(self, inputs):
        RUN
class Scheduler(ReferenceTarget.scheduling):
    def schedule(self, kernel):
        SCHEDULE
class Emitter(Emission):
    def emit(self, module, level):
        EMIT
class Runner(Running):
    def load(self, module, weights, report):
        LOAD
class Wrong(ReferenceTarget):
    scheduling, emission, running = Scheduler, Emitter, Runner
TARGET = Wrong("wrong", LEVELS, "wrong", lowers=True)
"""
LEVEL = """
from compiler.pipeline.levels import Level
LEVEL = Level("mine", "a level", OPERATIONS, after="host", steps=STEPS, exits=())
"""


class Mistake(NamedTuple):
    """A plugin's source, a command, and what its message must contain besides the file."""

    source: str
    words: str
    line: int
    texts: tuple[str, ...]


def operation(line: int, *texts: str, infer: str = "types", evaluate: str = "x + x",
              words: str = "verify own.mlir --target cpu") -> Mistake:
    return Mistake(OPERATION.replace("INFER", infer).replace("EVALUATE", evaluate), words, line,
                   texts)


def target(line: int, *texts: str, run: str = "return super().run(inputs)",
           schedule: str = "return super().schedule(kernel)",
           emit: str = "return 'text'", load: str = "return Exe(module, weights)",
           levels: str = "('text',)", words: str = "run small.onnx --target wrong") -> Mistake:
    parts = {"RUN": run, "SCHEDULE": schedule, "EMIT": emit, "LOAD": load, "LEVELS": levels}
    source = TARGET
    for name, text in parts.items():
        source = source.replace(name, text)
    return Mistake(source, words, line, texts)


def level(*texts: str, operations: str = "('host.*',)", steps: str = "()") -> Mistake:
    source = LEVEL.replace("OPERATIONS", operations).replace("STEPS", steps)
    return Mistake(source, "lower small.onnx --target cpu", 3, texts)


MISTAKES = {
    "evaluate raises": operation(19, "IndexError", "x[7, 7]", evaluate="x[7, 7]"),
    "evaluate raises what we raise": operation(19, "ValueError", "not in list",
                                               evaluate="[].remove('no')"),
    "evaluate, other shape": operation(18, "float32[2]", "f32[4]", evaluate="x[:2]"),
    "evaluate, other dtype": operation(18, "int64[4]", "f32[4]", evaluate="x.astype(np.int64)"),
    "evaluate, nothing": operation(18, "gives object[]", evaluate="None"),
    "evaluate, other count": operation(18, "2 arrays", "1 results", evaluate="[x, x]"),
    "evaluate, other numbers": operation(10, "WrongNumbers", "graph-to-loop", evaluate="x * 3"),
    "evaluate, on the reference": operation(
        18, "float32[2]", evaluate="x[:2]", words="run own.mlir --target reference"),
    "infer raises": operation(17, "IndexError", "types[3]", infer="types[3]"),
    "infer, no list": operation(15, "infer of own.op", "is int", infer="3"),
    "infer, no types": operation(15, "infer of own.op", "is list", infer="[3]"),
    "schedule raises": target(10, "IndexError", "[][1]", schedule="[][1]"),
    "schedule, no schedule": target(9, "Scheduling.schedule", "is int", schedule="return 3"),
    "schedule, nothing": target(9, "is NoneType", schedule="return None"),
    "schedule, illegal": target(17, "unknown axes nope", "the target 'wrong' makes these",
                                schedule="return Schedule((Level('grid', 'nope', 4),))"),
    "emit raises": target(13, "IndexError", emit="[][1]", words="lower small.onnx --target wrong"),
    "load raises": target(16, "IndexError", load="[][1]"),
    "load, no executable": target(15, "Running.load", "is int", load="return 3"),
    "run raises": target(7, "IndexError", run="[][1]"),
    "run, no list": target(6, "Executable.run", "is int", run="return 3"),
    "run, other count": target(6, "0 arrays", "1 outputs", run="return []"),
    "run, other numbers": target(17, "WrongNumbers", run="return [inputs[0]]",
                                 words="verify small.onnx --target wrong"),
    "target, levels": target(19, "`levels` must be a tuple", levels="3", words="list targets"),
    "level, steps are a text": level("`steps` must be a tuple", steps="'loop-fuse'"),
    "level, steps are numbers": level("`steps` must be a tuple", steps="(3,)"),
    "level, operations": level("`operations` must be a tuple", operations="'host.*'"),
    "level, other option": level("loop-fuse has no option 'nope'", steps="('loop-fuse{nope=3}',)"),
    "level, bad syntax": level("cannot be read", steps="('loop-fuse{',)"),
    "level, wrong order": level("breaks the contract of mine level",
                                steps="('graph-to-loop',)"),
    "pass, place": Mistake(a_pass().replace('"after(graph-cse)"', "3"), "list passes", 5,
                           ("`place` must be a text",)),
    "frontend, description": Mistake(FRONTEND.replace('"nothing"', "3"), "list frontends", 0,
                                     ("DESCRIPTION must be a text",)),
    "importer, other inputs": Mistake(
        IMPORTER.format(result="x").replace("(n, x)", "(n, x, y, z)"),
        "run own.onnx --target cpu", 4, ("does not take the inputs", "'y'")),
    "leaves Python": Mistake("import sys\nsys.exit(3)\n", "list targets", 2, ("SystemExit: 3",)),
}

Installed = Callable[[dict[str, str]], None]
_NUMBER = itertools.count()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Installs modules as the plugins of a package: name -> source."""
    def write(sources: dict[str, str]) -> None:
        site = tmp_path / "site"
        info = site / f"mistaken_{next(_NUMBER)}-1.0.dist-info"
        info.mkdir(parents=True)
        for name, source in sources.items():
            (site / f"{name}.py").write_text(source)
        entries = "".join(f"{name} = {name}\n" for name in sources)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {info.name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[strata.plugins]\n{entries}")
        monkeypatch.syspath_prepend(site)  # pyright: ignore[reportUnknownMemberType]
    return write


@pytest.fixture
def folder(small_model: Path, tmp_path: Path) -> Path:
    """A folder with models for the commands."""
    own_model(tmp_path)
    (tmp_path / "small.onnx").write_bytes(small_model.read_bytes())
    (tmp_path / "own.mlir").write_text(TEXT)
    (tmp_path / "m.own").write_text("")
    return tmp_path


def told(done: Outcome, place: str, texts: tuple[str, ...]) -> None:
    assert done.status == 1, done.err
    assert done.err.count("error:") == 1
    assert all(text in done.err for text in (place, *texts)), done.err
    assert "fault of the compiler" not in done.err


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_file(strata: Run, folder: Path, mistake: str) -> None:
    source, words, line, texts = MISTAKES[mistake]
    (folder / "one.py").write_text(source)
    done = strata(*words.split(), "--plugin", "one.py")
    told(done, f"one.py, line {line}" if line else "one.py", texts)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_entry_point(strata: Run, folder: Path, install: Installed, mistake: str) -> None:
    source, words, line, texts = MISTAKES[mistake]
    name = f"installed_mistake_{next(_NUMBER)}"
    install({name: source})
    done = strata(*words.split())
    told(done, f"{name}.py, line {line}" if line else f"{name}.py", texts)


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_used_as_an_entry_point(
    strata: Run, folder: Path, install: Installed, case: str
) -> None:
    sources, expected = CASES[case]
    names = {own: f"installed_{own}_{next(_NUMBER)}" for own in ("one", "two")}
    install(dict(zip(names.values(), sources, strict=False)))
    done = strata("lower", "small.onnx", "--target", "reference", "--to", "graph")
    for own, name in names.items():
        expected = [text.replace(f"{own}.py", f"{name}.py") for text in expected]
    told(done, "", tuple(expected))


@pytest.mark.parametrize("case", WRONG)
def test_what_an_entry_point_returns_or_raises(
    strata: Run, folder: Path, install: Installed, case: str
) -> None:
    source, words, expected = WRONG[case]
    name = f"installed_wrong_{next(_NUMBER)}"
    install({name: source})
    done = strata(*words)
    told(done, "", tuple(text.replace("one.py", f"{name}.py") for text in expected))
