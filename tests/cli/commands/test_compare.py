"""`compare`: strategies, groups of passes and peers side by side, and what goes wrong in rows."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.diagnostics import StrataError
from compiler.measuring import contest
from compiler.measuring.contest import Interval
from compiler.measuring.contrast import calls_to_pay, ms_saved
from compiler.measuring.contrast_table import lines_of
from compiler.pipeline.driver import Compiler
from compiler.pipeline.strategies import BLOCK, GROUPS, PER_OP, STRATEGIES, WHOLE_GRAPH
from tests.cli.conftest import Run

KEYS = {"kernels", "launches", "bytes", "flops", "arena", "compile_s", "ms"}
N, K, M = 6, 5, 7


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """A product, an addition of constants, a sign, and a softmax over rows of an open number."""
    weights = [numpy_helper.from_array(np.full((K, M), 0.5, np.float32), "w"),
               numpy_helper.from_array(np.full(M, 0.25, np.float32), "b")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]),
             helper.make_node("Add", ["p", "b"], ["a"]), helper.make_node("Relu", ["a"], ["r"]),
             helper.make_node("Softmax", ["r"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", K])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", M])], weights)
    file = tmp_path / "chain.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    file.write_bytes(model.SerializeToString())
    return file


def report(strata: Run, model: object, *more: object, status: int = 0) -> dict[str, Any]:
    done = strata("compare", model, "--threads", 1, "--rounds", 3, "--json", "f.json", *more)
    assert done.status == status, done.err
    return json.loads(Path("f.json").read_text())


# ---------------------------------------------------------------------- what is counted
def test_counts_of_a_chain(strata: Run, chain: Path) -> None:
    """All counts by hand, at the size of the inputs."""
    found = report(strata, chain, "--dim", f"n={N}", "--groups", "none")["strategies"]
    assert list(found) == list(STRATEGIES) and all(row.keys() >= KEYS for row in found.values())
    per_op, block = found[PER_OP], found[BLOCK]
    assert (per_op["launches"], block["launches"]) == (4, 2)
    x, w, b, out = 4 * N * K, 4 * K * M, 4 * M, 4 * N * M
    assert per_op["bytes"] == (x + w + out) + (out + b + out) + 2 * (out + out)
    assert block["bytes"] == (x + w + b + out) + (out + out)
    product, elements = 2 * N * K * M, N * M
    softmax = 5 * elements  # max, difference, exp, sum, quotient
    assert per_op["flops"] == block["flops"] == product + 2 * elements + softmax
    for row in found.values():
        assert row["compile_s"] > 0 and row["ms"] == sorted(row["ms"]) and row["ms"][0] > 0
        assert row["difference"] < 1e-6 and row["arena"] >= 0


def test_open_sizes_count_as_the_inputs_have_them(strata: Run, chain: Path) -> None:
    few, many = (report(strata, chain, "--groups", "none", "--input", f"x={n}x{K}xf32=random")
                 ["strategies"][PER_OP] for n in (3, 30))
    assert many["flops"] == 10 * few["flops"] and many["launches"] == few["launches"]
    assert few["bytes"] < many["bytes"] < 10 * few["bytes"]  # weights stay as they are


# ---------------------------------------------------------------------- the ablation
def test_every_group_is_left_out_and_added(strata: Run, chain: Path) -> None:
    found = report(strata, chain, "--dim", "n=3", "--rounds", 1)
    rows = {row["group"]: row for row in found["ablation"]}
    assert list(rows) == list(GROUPS)
    whole, per_op = (found["strategies"][s] for s in (WHOLE_GRAPH, PER_OP))
    for group, row in rows.items():
        assert row["strategies"] == [s for s, groups in STRATEGIES.items() if group in groups]
        assert row["without_ms"] > 0 and row["alone_ms"] > 0
        if row["without_same"]:
            assert row["without_ms"] == whole["ms"][1]
        if group in STRATEGIES[PER_OP]:
            assert row["alone_same"] and row["alone_ms"] == per_op["ms"][1]
    assert rows["winograd"]["without_same"] and rows["winograd"]["alone_same"]
    assert rows["fuse"]["without_launches"] > whole["launches"]
    assert rows["fuse"]["alone_launches"] < per_op["launches"]


def test_tables(strata: Run, chain: Path) -> None:
    done = strata("compare", chain, "--dim", "n=3", "--threads", 1, "--rounds", 2, "--groups",
                  "fuse,winograd")
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    starts = [line.split()[0] for line in lines if line]
    assert starts[:4] == ["strategy", *STRATEGIES]
    assert starts[4:7] == ["group", "fuse", "winograd"]
    assert "the same" in next(line for line in lines if line.startswith("winograd"))
    assert all(len(line) == len(line.rstrip()) for line in lines)


@pytest.mark.parametrize(("others", "told"), [(0.0, False), (0.04, False), (0.62, True)])
def test_a_busy_machine_is_told(strata: Run, chain: Path, others: float, told: bool) -> None:
    found = report(strata, chain, "--dim", "n=3", "--rounds", 1, "--groups", "none")
    assert 0 <= found["others"] <= 1
    [*_, last] = lines_of({**found, "others": others})
    assert last.startswith("other programs had the processor for 62% ") == told


def test_a_busy_machine_makes_no_call_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time in which others have the processor, here a sleep, is no time of a call."""
    def call() -> Sequence[Any]:
        started = time.process_time()
        while time.process_time() - started < 0.004:
            pass
        time.sleep(0.02)
        return ()

    waiting, share = contest.Waiting(), 0.0
    monkeypatch.setattr(contest.Waiting, "share", property(lambda self: share))
    assert contest.intervals({"one": call}, 3, 1, waiting=waiting)["one"].median > 20
    share = 0.8
    assert 3.9 < contest.intervals({"one": call}, 3, 1, waiting=waiting)["one"].median < 15
    for threads, watched in ((2, waiting), (1, None)):
        found = contest.intervals({"one": call}, 3, threads, waiting=watched)
        assert found["one"].median > 20


# ---------------------------------------------------------------------- peers
def test_peers_stand_beside(strata: Run, chain: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = report(strata, chain, "--dim", "n=3", "--groups", "none", "--against", "onnxruntime")
    row = found["peers"]["onnxruntime"]
    assert row["ms"] == sorted(row["ms"]) and row["difference"] < 1e-5 and row["first_result_s"] > 0


def test_eager_pytorch_stands_beside(strata: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "m.py").write_text("import torch\ndef make():\n"
                                   "    return torch.nn.Softmax(-1), (torch.ones(4, 8),)\n")
    found = report(strata, f"{tmp_path}/m.py:make", "--groups", "none", "--against", "torch")
    assert found["peers"]["torch"]["difference"] < 1e-6
    assert found["strategies"][PER_OP]["launches"] == 1


@pytest.mark.gpu
def test_strategies_and_peers_are_timed_on_a_gpu(strata: Run, tmp_path: Path) -> None:
    """In fp16, beside eager PyTorch and Inductor."""
    pytest.importorskip("torch")
    file = tmp_path / "half.py"
    file.write_text("""
import torch

def make():
    torch.manual_seed(0)
    layers = (torch.nn.Linear(128, 128), torch.nn.GELU(), torch.nn.LayerNorm(128))
    return torch.nn.Sequential(*layers).half().eval(), (torch.randn(64, 128).half(),)
""")
    done = strata("compare", f"{file}:make", "--target", "cuda", "--against", "torch,inductor",
                  "--groups", "fuse,one-launch", "--rounds", "7", "--json", "c.json")
    assert done.status == 0, done.err
    found = json.loads(Path("c.json").read_text())
    rows = {**found["strategies"], **found["peers"]}
    assert set(rows) == {"per-op", "block", "whole-graph", "torch", "inductor"}
    for name, row in rows.items():
        low, median, high = row["ms"]
        assert 0 < low <= median <= high and row["difference"] < 1e-2, name
    assert rows["whole-graph"]["launches"] < rows["per-op"]["launches"]
    assert all(row["without_ms"] and row["alone_ms"] for row in found["ablation"])


@pytest.mark.parametrize(("peer", "package", "install"), [
    ("tvm", "tvm", "apache-tvm"), ("xla", "jax", "jax")])
def test_peers_that_are_missing(
    strata: Run, chain: Path, peer: str, package: str, install: str
) -> None:
    if find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    done = strata("compare", chain, "--against", peer)
    assert done.status == 1 and f"{peer} is not installed" in done.err
    assert f"pip install {install}" in done.err


# ---------------------------------------------------------------------- without the device
def test_without_a_gpu_all_but_times(strata: Run, chain: Path) -> None:
    for package in ("triton", "onnxruntime"):
        pytest.importorskip(package)
    from targets.cuda.runtime import driver
    if driver.is_available():
        pytest.skip("there is a GPU")
    found = report(strata, chain, "--dim", "n=3", "--target", "cuda", "--groups", "none",
                   "--against", "onnxruntime", status=1)
    assert "no NVIDIA driver" in found["cannot_run"]
    for row in found["strategies"].values():
        assert row["launches"] > 0 and row["compile_s"] > 0 and row["ms"] is None
    assert "onnxruntime is not measured" in found["problems"]["onnxruntime"]


# ---------------------------------------------------------------------- bad input, failing rows
@pytest.mark.parametrize(("more", "status", "parts"), [
    (["--against", "onnxruntim"], 1, ["no peer 'onnxruntim'", "did you mean onnxruntime?"]),
    (["--groups", "fusion"], 2, ["'fusion'", "fuse"]),
    (["--target", "reference"], 1, ["no strategies to compare"]),
    (["--strategy", "block"], 2, ["no option '--strategy'"]),
    (["--passes", "graph-dce"], 2, ["a strategy has no effect"]),
    (["--dim", "m=3"], 1, ["'m'"]),
    (["--input", "x=3x4xf32=random"], 1, ["x"]),
])
def test_bad_input(
    strata: Run, chain: Path, more: Sequence[str], status: int, parts: Sequence[str]
) -> None:
    done = strata("compare", chain, "--threads", 1, "--rounds", 1, *more)
    assert done.status == status and all(part in done.err for part in parts), done.err


def test_a_strategy_that_fails_is_named_in_its_row(
    strata: Run, chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others have figures."""
    prepare = Compiler.prepare

    def failing(self: Compiler) -> Any:
        if self.options.strategy == BLOCK:
            raise StrataError("blocks are broken today")
        return prepare(self)

    monkeypatch.setattr(Compiler, "prepare", failing)
    found = report(strata, chain, "--dim", "n=3", "--groups", "none", status=1)
    assert "broken today" in found["strategies"][BLOCK]["problem"]
    assert found["strategies"][WHOLE_GRAPH]["ms"] and not found["strategies"][BLOCK]["ms"]
    done = strata("compare", chain, "--dim", "n=3", "--threads", 1, "--rounds", 1, "--groups",
                  "none")
    assert done.status == 1 and "failed: blocks are broken today" in done.out


# ---------------------------------------------------------------------- statistics
def test_intervals_hold_the_median_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    for count in (7, 20, 40):
        found = [Interval.of(list(rng.exponential(size=count))) for _ in range(4000)]
        hits = np.mean([low <= math.log(2) <= high for low, _, high in found])
        assert 0.945 <= hits <= 0.99, (count, hits)
    assert Interval.of([3.0, 1.0, 2.0]) == (1.0, 2.0, 3.0)


def test_the_hopeless_take_few_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variant that takes ten times as long costs no minutes, however many rounds there are."""
    monkeypatch.setattr(contest, "_HOPELESS_SECONDS", 0.05)
    calls = {"fast": 0, "same": 0, "slow": 0}

    def run(name: str, seconds: float) -> list[Any]:
        calls[name] += 1
        time.sleep(seconds)
        return []

    found = contest.intervals({
        "fast": lambda: run("fast", 0.001), "same": lambda: run("same", 0.002),
        "slow": lambda: run("slow", 0.04)}, 9, 1)
    assert calls["slow"] <= 2 + 2 * 3 and min(calls["fast"], calls["same"]) >= 2 + 9
    assert found["slow"].median >= 40


@pytest.mark.parametrize(("seconds", "saved", "calls"), [
    (1.0, 2.0, 500), (0.0, 1.0, 0), (-1.0, 1.0, 0), (1.0, 0.0, None), (1.0, -1.0, None),
    (-1.0, -1.0, None)])
def test_calls_to_pay(seconds: float, saved: float, calls: int | None) -> None:
    assert calls_to_pay(seconds, saved) == calls


def test_what_lies_within_the_intervals_saves_nothing() -> None:
    slow, near, fast = Interval(9, 10, 11), Interval(8.5, 9.5, 10.5), Interval(4, 5, 6)
    assert [ms_saved(x, slow) for x in (fast, near)] == [5, 0] and ms_saved(slow, fast) == -5
