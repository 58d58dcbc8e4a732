"""What makes a model fail is named: faults planted in passes, emitters, the runtime, the importer.

Each is found in seconds, and `reduce` makes a model of at most five nodes of it in less than a
minute of processor time.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest

from compiler.__main__ import main
from compiler.bisection.arguments import add_arguments
from compiler.bisection.outcome import NOTHING, Finding
from compiler.bisection.trials import Phases, Trials
from tests import processes
from tests.bisection.conftest import PLANTED, Done

ROOT = PLANTED.parents[2]
Bisect = Callable[..., Done]
FOUND = {
    "wrong_rule": ("graph-simplify", 1, "graph.reciprocal", "o"),
    "wrong_lowering": ("graph-to-loop", 12, "graph.sqrt", "h"),
    "wrong_fusion": ("loop-fuse", 5, "loop.nest", "d"),
    "wrong_tiles": ("loop-to-block", 4, "loop.kernel @contract_3", "t"),
    "overlap": ("host-plan-buffers", 1, "host.func @main", "g"),
    "dead_code": ("graph-dce", 1, "graph.sigmoid", "m"),
    "invalid": ("graph-cse", 1, "graph.sin", "i"),
    "raising_rule": ("graph-simplify", 1, "graph.erf", "k"),
    "wrong_code": ("cpu", None, "math.sin", "i"),
    "raising_emitter": ("cpu", None, "math.log", "t"),
    "tail": ("cpu", None, "block.kernel @contract_0", "a"),
    "crashing_code": ("cpu", None, "math.erf", "k"),
    "runtime": ("cpu", None, "host.func @main", None),
    "raising_import": ("import", 13, "Sigmoid", "m"),
    "wrong_import": ("import", 8, "Sqrt", "h"),
}
"""Fault -> pass, rewrite, operation, and one of the nodes."""
QUICK = {"wrong_rule", "raising_rule", "wrong_code"}
KINDS = {"invalid": "invalid", "raising_rule": "fault", "raising_emitter": "fault",
         "crashing_code": "crash", "raising_import": "fault", "wrong_import": "peer"}


def spent() -> float:
    """The processor time of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def marked(fault: str) -> object:
    return pytest.param(fault, marks=() if fault in QUICK else pytest.mark.slow)


def test_all_faults_are_tried() -> None:
    planted = re.findall(r"^@fault\ndef (\w+)", PLANTED.read_text(), re.MULTILINE)
    assert {*planted} == {*FOUND, "seeds"}


def test_all_faults_can_be_planted() -> None:
    """What they replace is there; a process of its own keeps them all."""
    plant = "import runpy, sys\nfor f in runpy.run_path(sys.argv[1])['FAULTS'].values(): f()"
    done = processes.run([sys.executable, "-c", plant, PLANTED], text=True, capture_output=True,
                         env={**os.environ, "PLANTED": "seeds", "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("fault", [marked(fault) for fault in FOUND])
def test_a_fault_is_found(bisect: Bisect, model: Path, fault: str) -> None:
    if fault == "wrong_import":
        pytest.importorskip("onnxruntime")
    done = bisect(model, fault=fault)
    assert done.status == 0, done.err
    pass_, rewrite, operation, node = FOUND[fault]
    assert (done.found["pass"], done.found["operation"]) == (pass_, operation)
    assert done.found["rewrite"] == rewrite
    assert (node in done.found["nodes"]) if node else done.found["node"] is None
    assert done.found["kind"] == KINDS.get(fault, "wrong")
    assert f"pass:      {pass_}" in done.out


@pytest.mark.slow
@pytest.mark.parametrize("fault", FOUND)
def test_a_found_fault_becomes_small(
    model: Path, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "wrong_import":
        pytest.importorskip("onnxruntime")
    monkeypatch.setenv("PLANTED", fault)
    monkeypatch.chdir(tmp_path)
    started, small = spent(), tmp_path / "small.onnx"
    words = ["--seconds", "600", "--plugin", str(PLANTED)]
    assert main(["reduce", str(model), "-o", str(small), *words]) == 0
    assert len(onnx.load(str(small)).graph.node) <= 5
    assert spent() - started < 60


def test_a_fault_that_only_some_inputs_show(bisect: Bisect, model: Path) -> None:
    done = bisect(model, "--seed", "5", "--seeds", "2", fault="seeds")
    assert (done.found["pass"], done.found["node"]) == ("graph-simplify", "p")
    assert done.found["seed"] == 6


def test_nothing_differs(bisect: Bisect, model: Path) -> None:
    done = bisect(model, "--seed", "3", "--seeds", "1", fault="seeds")
    assert done.status == 1 and "nothing differs with seed 3" in done.err
    assert {done.found[key] for key in ("pass", "rewrite", "operation", "node")} == {None}
    assert done.found["kind"] == "right"


def test_json_has_the_same_keys_whatever_is_found() -> None:
    assert NOTHING.keys() == Finding("", "", "", 0).json.keys()


def test_later_seeds_run_only_the_code(model: Path, tmp_path: Path) -> None:
    """Passes see no inputs, so those of the first seed stand for all."""
    phases = Phases(tmp_path / "phase")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = parser.parse_args([str(model)])
    first = Trials(given, 0, phases)
    assert first.whole().kind == "right"
    told = list[str]()
    later = Trials(given, 1, phases, first)
    later.phases = SimpleNamespace(tell=lambda outcome, words="": told.append(words))
    assert later.whole(quick=True).kind == "right"
    assert later.snapshots is first.snapshots and told[1:] == ["the target's code", "onnxruntime"]
    assert not any(a is b for a, b in zip(first.verify.inputs, later.verify.inputs, strict=True))


def test_progress_is_shown(
    bisect: Bisect, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compiler.instrument.progress.PATIENCE", 0.0)
    monkeypatch.setattr("compiler.reduction.process.LOOK", 0.001)
    done = bisect(model, "--seeds", "2", "--progress")
    assert "seed 0, trial 1: loop-fuse (" in done.err
    assert "seed 1, trial 2: the target's code (" in done.err


def test_a_peer_may_round_bounded_functions_coarsely(bisect: Bisect, tmp_path: Path) -> None:
    """onnxruntime computes sigmoids to a unit in the last place of 1, which is all of small ones;
    that is no fault of the import."""
    pytest.importorskip("onnxruntime")
    path = tmp_path / "small.onnx"
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 17]> g (float[97] x) => (float[97] z) '
        "<float low = {-19}> { y = Add(x, low)  s = Sigmoid(y)  z = Neg(s) }")
    onnx.save(proto, path)
    done = bisect(path, "--seeds", "1")
    assert (done.status, done.found["kind"]) == (1, "right"), done.out


@pytest.mark.slow
def test_a_hang_is_found(bisect: Bisect, tmp_path: Path) -> None:
    path = tmp_path / "hang.onnx"
    onnx.save(onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y) '
        "{ a = Exp(x)  y = Softplus(a) }"), path)
    passes = "default,after(graph-sink-constants)=hanging-softplus"
    done = bisect(path, "--timeout", "4", "--plugin",
                  str(PLANTED.parents[1] / "reduction" / "planted.py"), "--passes", passes)
    assert (done.found["pass"], done.found["kind"]) == ("hanging-softplus", "timeout")


@pytest.mark.slow
def test_a_text_is_searched(
    bisect: Bisect, tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dump has no importer; its passes are searched all the same."""
    text = tmp_path / "model.mlir"
    assert main(["lower", str(model), "--to", "graph"]) == 0
    text.write_text(capsys.readouterr().out)
    done = bisect(text, "--weights", str(model), fault="wrong_fusion")
    assert done.found["pass"] == "loop-fuse" and done.found["rewrite"] == 5


@pytest.mark.parametrize("words, text", [
    (["none.onnx"], "no such file"), (["-"], "give files"),
    (["none.onnx", "--plugin", "none.py"], "no plugin file"),
    (["none.onnx", "--inputs", "none.npz"], "none.npz")])
def test_what_cannot_be_searched(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bisect", *words]) == 1
    assert text in capsys.readouterr().err

