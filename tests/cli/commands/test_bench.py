"""`bench` and its peers: the same model, inputs and sizes for all, and what no peer can run."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.diagnostics import StrataError
from compiler.measuring.contest import Contest, difference, rounds_within, take_turns
from compiler.measuring.trial import trial
from compiler.peers import Request, parse_peers
from tests.cli.conftest import Run

CLOSE = 1e-5
MODULE = """
import torch

class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 16)  # its weights are random: all must run the same ones

    def forward(self, x, factor, shift=None):
        return torch.relu(self.inner(x)) * factor, x.sum(1) + shift

def make():
    return Scaled(), (torch.ones(4, 8), 3), {"shift": torch.ones(4)}, None

def again():
    return torch.nn.Softmax(-1), (torch.ones(4, 8),)
"""


def figures(strata: Run, model: object, against: str, *more: object) -> list[dict[str, Any]]:
    """What `bench` writes, on the cheapest target."""
    done = strata("bench", model, "--target", "reference", "--against", against, "--threads", 1,
                  "--rounds", 2, "--json", "figures.json", *more)
    assert done.status == 0, done.err
    return json.loads(Path("figures.json").read_text())["results"]


def agree(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    assert [row["name"] for row in rows] == ["strata", *names]
    assert all(row["difference"] < CLOSE for row in rows), rows
    assert all(row["median_ms"] >= row["best_ms"] > 0 for row in rows)


# ---------------------------------------------------------------------- .onnx
@pytest.mark.parametrize("peer", ["onnxruntime", "openvino"])
def test_runtimes_of_onnx(strata: Run, small_model: Path, peer: str) -> None:
    """Open sizes stay open for a peer; a name that is no identifier finds its input."""
    pytest.importorskip(peer)
    agree(figures(strata, small_model, peer), [peer])
    agree(figures(strata, small_model, peer, "--dim", "n=5"), [peer])


def test_a_name_that_stands_for_several_sizes(strata: Run) -> None:
    """Some exporters call every open size `?`."""
    pytest.importorskip("onnxruntime")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["?", "?"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                ir_version=8), "open.onnx")
    agree(figures(strata, "open.onnx", "onnxruntime", "--shape", "x=2x3"), ["onnxruntime"])


# ---------------------------------------------------------------------- PyTorch
@pytest.fixture
def module(strata: Run) -> str:
    pytest.importorskip("torch")
    Path("model.py").write_text(MODULE)
    return "model.py"


@pytest.mark.parametrize(("peer", "needs"), [
    ("torch", "torch"), ("openvino", "openvino"), ("onnxruntime", "onnxscript")])
def test_models_of_pytorch(strata: Run, module: str, peer: str, needs: str) -> None:
    """Arguments by name, and arguments that are no tensors."""
    pytest.importorskip(needs)
    agree(figures(strata, f"{module}:make", peer), [peer])


@pytest.mark.slow
def test_inductor(strata: Run, module: str) -> None:
    agree(figures(strata, f"{module}:make", "inductor"), ["inductor"])


def test_an_archive(strata: Run, module: str) -> None:
    torch = pytest.importorskip("torch")
    program = torch.export.export(torch.nn.Tanh(), (torch.ones(3),))
    torch.export.save(program, "tanh.pt2")
    agree(figures(strata, "tanh.pt2", "torch"), ["torch"])


def test_a_twin_in_another_framework(strata: Run, module: str) -> None:
    """A peer's own file for the same model; inputs go by their order."""
    x = helper.make_tensor_value_info("in", TensorProto.FLOAT, [4, 8])
    y = helper.make_tensor_value_info("out", TensorProto.FLOAT, [4, 8])
    graph = helper.make_graph([helper.make_node("Softmax", ["in"], ["out"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                ir_version=8), "softmax.onnx")
    agree(figures(strata, "softmax.onnx", f"torch={module}:again"), ["torch"])


def test_bf16_is_allowed_to_peers(strata: Run, module: str) -> None:
    """Their results are then near, and no longer the same."""
    rows = figures(strata, f"{module}:make", "torch", "--precision", "bf16")
    assert CLOSE < rows[1]["difference"] < 0.05


# ---------------------------------------------------------------------- what cannot be
@pytest.mark.parametrize("peer", ["torch", "inductor"])
def test_pytorch_runs_no_onnx(strata: Run, small_model: Path, peer: str) -> None:
    pytest.importorskip("torch")
    done = strata("bench", small_model, "--target", "reference", "--against", peer)
    assert done.status == 1
    assert f"{peer} runs models of PyTorch, not {small_model}" in done.err
    assert f"--against {peer}=FILE.py:FUNCTION" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("peer", ["onnxruntime", "openvino"])
def test_a_text_is_for_us_alone(strata: Run, small_model: Path, peer: str) -> None:
    pytest.importorskip(peer)
    lowered = strata("lower", small_model, "--target", "reference", "--to", "graph",
                     "--dump-dir", "dumps")
    assert lowered.status == 0
    text = sorted(Path("dumps").glob("*.mlir"))[0]
    done = strata("bench", text, "--weights", small_model, "--target", "reference",
                  "--against", peer)
    assert done.status == 1
    assert f"{peer} runs .onnx files and models of PyTorch" in done.err


@pytest.mark.parametrize(("fault", "told"), [
    ("ctypes.string_at(0)", "SIGSEGV (signal 11)"), ("os._exit(7)", "exited with status 7"),
    ("raise SystemExit(3)", "SystemExit: 3"), ("1 / 0", "ZeroDivisionError")])
def test_a_peer_that_crashes_is_left_out(
    strata: Run, small_model: Path, monkeypatch: pytest.MonkeyPatch, fault: str, told: str
) -> None:
    """The others are measured, it is named, and the exit status says so."""
    pytest.importorskip("onnxruntime")
    from compiler.peers import openvino

    def load(request: Request) -> Any:
        return exec(f"import ctypes, os; {fault}")

    monkeypatch.setattr(openvino, "load", load)
    monkeypatch.setattr("compiler.peers._check_installed", lambda name: None)
    done = strata("bench", small_model, "--target", "reference", "--threads", 1, "--rounds", 2,
                  "--against", "openvino,onnxruntime", "--json", "figures.json")
    assert done.status == 1
    assert told in done.err
    assert "openvino" in done.err
    report = json.loads(Path("figures.json").read_text())
    assert [row["name"] for row in report["results"]] == ["strata", "onnxruntime"]
    assert told in report["problems"]["openvino"]


_COLOURED = "\x1b[1;31mRed\x1b[0m\r\x1b]8;;http://x\x1b\\link\x1b]8;;\x07 \x9b4mon\x08\x00"


@pytest.mark.parametrize("fault", [
    "raise ValueError(text)", "os.write(2, text.encode()); os._exit(7)",
    "from compiler.diagnostics import *; raise StrataError(text, [Problem(text, hint=text)])"])
def test_colours_of_a_peer_are_left_out(
    strata: Run, small_model: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """In what is printed and in JSON, whether it raises or dies with last words."""
    from compiler.peers import openvino

    def load(request: Request) -> Any:
        return exec(f"import os; {fault}", {"text": _COLOURED})

    monkeypatch.setattr(openvino, "load", load)
    monkeypatch.setattr("compiler.peers._check_installed", lambda name: None)
    for words in (("bench", "--target", "reference"), ("compare", "--groups", "none")):
        done = strata(*words, small_model, "--threads", 1, "--rounds", 2, "--against", "openvino",
                      "--json", "figures.json")
        assert done.status == 1
        problem = json.loads(Path("figures.json").read_text())["problems"]["openvino"]
        for text in (done.err, problem):
            assert "link on" in text
            assert all(c.isprintable() or c == "\n" for c in text), repr(text)


def test_a_peer_that_hangs_is_ended() -> None:
    error = trial("slow", lambda: lambda: time.sleep(60) or [], seconds=0.5)
    assert "takes too long" in str(error)
    assert trial("fine", lambda: lambda: [], seconds=30) is None


def test_a_peer_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told before anything is compiled."""
    monkeypatch.setattr("compiler.peers.importlib.util.find_spec",
                        lambda name: None if name == "openvino" else find_spec(name))
    with pytest.raises(StrataError, match="pip install openvino"):
        parse_peers("openvino")


def test_peers_and_their_twins() -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("torch")
    assert parse_peers("onnxruntime,torch=a.py:make") == {"onnxruntime": None, "torch": "a.py:make"}
    assert parse_peers("") == {}


# ---------------------------------------------------------------------- contests
def test_inputs_go_by_name_else_in_order() -> None:
    a, b = np.zeros(1), np.ones(2)
    request = Request("m.onnx", None, ["a", "b"], [a, b], [(1,), (None,)], 1)
    assert list(request.named(["b", "a"]).values()) == [b, a]
    assert list(request.named(["x", "y"]).values()) == [a, b]
    assert request.named_shapes(["b"]) == {"b": (None,)}
    assert request.is_dynamic
    with pytest.raises(StrataError, match="3 inputs, ours has 2"):
        request.named(["x", "y", "z"])


def test_turns() -> None:
    """Long calls alternate; a short one is repeated within its turn."""
    calls: list[str] = []

    def long(name: str) -> list[Any]:
        calls.append(name)
        time.sleep(0.006)
        return []

    timings = take_turns({"a": lambda: long("a"), "b": lambda: long("b")}, 3, threads=1)
    assert "".join(calls) == "ab" + "ab" * 3
    assert 6 <= timings["a"].best_ms <= timings["a"].median_ms
    assert timings["a"].cpu_ms < 6  # who sleeps takes no CPU time
    calls.clear()
    take_turns({"short": lambda: calls.append("s") or []}, 2, threads=1)
    assert len(calls) > 10
    assert rounds_within({"a": lambda: long("a")}, seconds=0.0) == 5


def test_a_peer_that_fails_is_a_problem() -> None:
    contest = Contest(1)
    contest.add("strata", lambda: [np.ones(2, np.float32)], 0.0)
    contest.add_peer("broken", lambda: lambda: [1 / 0])
    contest.add_peer("other", lambda: lambda: [np.full(2, 2, np.float32)])
    assert [row["difference"] for row in contest.rows(1)] == [0.0, 1.0]
    assert "ZeroDivisionError" in str(contest.problems["broken"])


def test_differences() -> None:
    ours = [np.array([1.0, 2.0], np.float32), np.array([3])]
    assert difference([np.array([1.0, 2.0]), np.array([3])], ours) == 0.0
    assert difference([ours[0] + np.float32(0.5), ours[1]], ours) == 0.25
    assert difference(ours[:1], ours) == np.inf
    assert difference([ours[0], np.array([4])], ours) == 1.0


def test_rounds_are_counted_as_they_go() -> None:
    told: list[tuple[int, int]] = []
    contest = Contest(1)
    contest.add("strata", lambda: [np.ones(2)], 0.0)
    contest.rows(3, lambda done, total: told.append((done, total)))
    assert told == [(0, 3), (1, 3), (2, 3)]
