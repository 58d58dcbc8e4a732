"""Who is at fault, and how it is told: exit status, one message, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

BROKEN = '''
from dataclasses import dataclass
from dialects.graph import MatmulOp
from passes.base import StrataPass

@dataclass(frozen=True)
class Break(StrataPass):
    """Fails half way, or leaves a module that is not valid."""
    name = "break"
    how: str = "raise"

    def run(self, context, module):
        for op in module.walk():
            if isinstance(op, MatmulOp):
                op.properties.clear()
                if self.how == "raise":
                    op.result.name_hint = "half_done"
                    raise KeyError("lost")
                op.result._type = op.operands[0].type
'''

VALID = """\
strata.func @main(%x: f32[n]) -> (f32[n]) inputs ["x"] outputs ["y"] {
  %y = graph.exp %x : f32[n]
  strata.return %y
}
"""


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    return path


@pytest.mark.parametrize(("words", "status", "part"), [
    (["lower", "nothing.onnx"], 1, "no such file"),
    (["lower", "nothing.mlir"], 1, "no file nothing.mlir"),
    (["lower", "nothing.txt"], 1, "cannot tell what kind of model"),
    (["lower", "SMALL", "--target", "nothing"], 1, "there is no target 'nothing'"),
    (["lower", "SMALL", "--target", "wasm", "--triple", "wasm"], 1, "--target cpu --triple wasm"),
    (["lower", "SMALL", "--target", "aarch64-linux", "--triple", "wasm"], 1,
     "code for aarch64-linux is made by"),
    (["lower", "SMALL", "--to", "nothing"], 1, "there are: graph, loop, host, block"),
    (["lower", "SMALL", "--passes", "default,without(nothing)"], 1, "no pass 'nothing'"),
    (["lower", "SMALL", "--passes", "grph-dce"], 1, "did you mean graph-dce"),
    (["lower", "SMALL", "--passes", "graph-dce{x=1}"], 1, "cannot read the pass 'graph-dce{x=1}'"),
    (["lower", "SMALL", "--passes", "graph-dce{x=", "--to", "graph"], 2, "--passes: cannot read"),
    (["lower", "SMALL", "--passes", "graph-dce,after(a)=b"], 2, "--passes: cannot read"),
    (["lower", "SMALL", "--passes", "default,without(graph-to-loop)", "--to", "loop"], 2,
     "leaves out what is needed"),
    (["lower", "SMALL", "--dim", "batch=3"], 1, "batch"),
    (["lower", "SMALL", "--plugin", "nothing.py"], 1, "no plugin file nothing.py"),
    (["lower", "SMALL", "--to", "graph", "-o", "no/such/folder/x"], 1, "cannot write"),
    (["lower", "SMALL", "--dim", "n"], 2, "NAME=8"),
    (["lower", "SMALL", "--shape", "x=1xx2"], 2, "NAME=1x3x224x224"),
    (["lower"], 2, "MODEL"),
    (["nothing"], 2, "invalid choice"),
    (["lower", "SMALL", "--precision", "f8"], 2, "invalid choice"),
])
def test_faults_of_the_user(
    strata: Run, small_model: Path, words: list[str], status: int, part: str
) -> None:
    if "--target" not in words and words[0] == "lower" and len(words) > 1:
        words = [*words, "--target", "reference"]
    done = strata(*[small_model if word == "SMALL" else word for word in words])
    assert done.status == status
    assert part in done.err
    assert "Traceback" not in done.err
    assert not list(Path.cwd().glob("reproducer-*"))


@pytest.mark.parametrize(("old", "new", "part"), [
    ("graph.exp %x", "graph.exq %x", "line 2"),
    ("graph.exp %x", "graph.exp %z", "used before it is defined"),
    (": f32[n]\n", ": f32[m]\n", "graph.exp"),
    ("f32[n]", "f33[n]", "line 1"),
    ("strata.return %y", "", "not a terminator"),
    ('inputs ["x"]', "inputs []", "C1"),
    ("strata.func", "strata.fun", "line 1"),
    ("}", "", "line"),
])
def test_texts_that_cannot_be_read(
    strata: Run, tmp_path: Path, old: str, new: str, part: str
) -> None:
    path = tmp_path / "bad.mlir"
    path.write_text(VALID.replace(old, new, 1))
    done = strata("run", path, "--target", "reference")
    assert done.status == 1, done.err
    assert part in done.err
    assert len(done.err.splitlines()) < 12
    assert "Traceback" not in done.err


@pytest.mark.parametrize(("content", "part"), [
    ("x = (", "line 1"), ("import nothing_like_that", "line 1"), ("x = 1", "no pass, dialect")])
def test_plugins_that_cannot_be_loaded(
    strata: Run, small_model: Path, tmp_path: Path, content: str, part: str
) -> None:
    (tmp_path / "plugin.py").write_text(content)
    done = strata("lower", small_model, "--target", "reference", "--plugin", "plugin.py")
    assert done.status == 1
    assert part in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("how", ["raise", "invalid"])
def test_a_pass_of_a_plugin_that_fails(
    strata: Run, small_model: Path, broken: Path, how: str
) -> None:
    """It is the plugin's fault: the line is told, and a reproducer is written for its author."""
    done = strata("lower", small_model, "--target", "reference", "--to", "graph", "--plugin",
                  broken, "--passes", f"default,after(graph-simplify)=break{{how={how}}}")
    assert done.status == 1
    assert "fault of the compiler" not in done.err
    line = 18 if how == "raise" else 6
    assert f"{broken.resolve()}, line {line}" in done.err, done.err
    assert "reproducer-small-break has the traceback" in done.err


@pytest.mark.parametrize("how", ["raise", "invalid"])
def test_a_fault_of_a_pass_leaves_a_reproducer(
    strata: Run, small_model: Path, broken: Path, how: str
) -> None:
    done = strata("lower", small_model, "--target", "reference", "--to", "graph", "--plugin",
                  broken, "--passes", f"default,after(graph-simplify)=break{{how={how}}}")
    assert done.status == 1
    folder = Path("reproducer-small-break")
    assert str(folder) in done.err
    before = (folder / "before.mlir").read_text()
    assert "half_done" not in before
    assert "broken.py" in (folder / "command.txt").read_text()
    assert "Traceback" in (folder / "traceback.txt").read_text() or how == "invalid"
    assert "xdsl 0." in (folder / "versions.txt").read_text()
    again = strata("opt", folder / "before.mlir", "--target", "reference", "--plugin", broken,
                   "--passes", f"break{{how={how}}}")
    assert again.status == 1


def test_a_fault_of_ours(
    strata: Run, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("passes.graph.dce.GraphDce.run", fail)
    done = strata("lower", small_model, "--target", "reference", "--to", "graph")
    assert done.status == 3
    assert len(done.err.splitlines()) == 1
    assert "fault of the compiler in graph-dce" in done.err
    assert "reproducer: reproducer-small-graph-dce" in done.err


def test_a_traceback_is_shown_on_request(
    strata: Run, small_model: Path, broken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATA_DEBUG", "1")
    done = strata("lower", small_model, "--target", "reference", "--to", "graph", "--plugin",
                  broken, "--passes", "default,after(graph-simplify)=break")
    assert done.status == 1
    assert "KeyError" in done.err
    assert "Traceback" in done.err


def test_debug_verifies_between_all_passes(
    strata: Run, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATA_DEBUG", "1")
    assert strata("lower", small_model, "--target", "reference", "--to", "graph").status == 0
