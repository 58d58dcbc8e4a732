"""`run --mesh` in several processes, and what goes wrong there: errors on all ranks, soon."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler.__main__ import main
from tests import processes
from tests.ranks.running import ROOT, free_port

SOON = 30.0
"""Seconds within which all ranks must end if one fails."""


def model(scale: float, rows: int = 4) -> str:
    """A perceptron whose first weight is annotated by hand."""
    numbers = ", ".join(str(scale * (k % 5 - 2.0)) for k in range(16))
    return f"""builtin.module {{
  strata.func @main(%x: f32[{rows}, 4]) -> (f32[{rows}, 4]) inputs ["x"] outputs ["y"] {{
    %w0 = graph.constant {{value = literal[{numbers}]}} : f32[4, 4]
    %w = graph.shard_as %w0 {{axes = "_,tp"}} : f32[4, 4]
    %d = graph.shard_as %x {{axes = "dp,_"}} : f32[{rows}, 4]
    %h = graph.matmul %d, %w : f32[{rows}, 4]
    %r = graph.relu %h : f32[{rows}, 4]
    %y = graph.matmul %r, %w0 : f32[{rows}, 4]
    strata.return %y
  }}
}}
"""


def start(words: Sequence[Sequence[object]], cache: Path) -> list[processes.Child]:
    """A process per rank, as torchrun starts them; the command and other words of each."""
    pytest.importorskip("torch")
    variables = {**os.environ, "WORLD_SIZE": str(len(words)), "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": str(free_port()), "STRATA_CACHE": str(cache),
                 "OMP_NUM_THREADS": "1"}
    return [processes.start([sys.executable, "-m", "compiler", *own], 120.0, text=True,
                            env={**variables, "RANK": str(k), "LOCAL_RANK": str(k)}, cwd=ROOT,
                            stdout=-1, stderr=-1) for k, own in enumerate(words)]


@pytest.mark.parametrize("mesh", ["tp=2", pytest.param("dp=2,tp=2", marks=pytest.mark.slow)])
def test_ranks_give_what_one_process_gives(mesh: str, tmp_path: Path) -> None:
    file, one, all_ = tmp_path / "model.mlir", tmp_path / "one.npz", tmp_path / "all.npz"
    file.write_text(model(1.0))
    processes.run([sys.executable, "-m", "compiler", "run", file, "-o", one], check=True, cwd=ROOT,
                  env={**os.environ, "STRATA_CACHE": str(tmp_path)}, capture_output=True)
    count = 4 if "dp" in mesh else 2
    words = ["run", file, "--mesh", mesh, "--precision", "bf16", "-o", all_]
    children = start([words] * count, tmp_path)
    found = [child.communicate() for child in children]
    assert [child.returncode for child in children] == [0] * count, found
    assert ["outputs differ from f32 by" in errors for _, errors in found] == [
        True, *[False] * (count - 1)]
    np.testing.assert_allclose(np.load(all_)["y"], np.load(one)["y"], 0.02, 0.1)
    assert found[0][0].startswith("y  float32[4, 4]")
    assert [output for output, _ in found[1:]] == [""] * (count - 1)  # the first rank speaks


def test_a_mesh_needs_its_processes(tmp_path: Path) -> None:
    file = tmp_path / "model.mlir"
    file.write_text(model(1.0))
    done = processes.run([sys.executable, "-m", "compiler", "run", file, "--mesh", "tp=2"],
                         cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "the mesh tp=2 has 2 ranks, and 1 process is running" in done.stderr
    assert "torchrun --nproc-per-node 2" in done.stderr


@pytest.mark.parametrize(("words", "status", "told"), [
    (["compare"], 1, "compare measures programs of one process"),
    (["bench", "--sizes", "none.jsonl"], 1, "--sizes measures programs of one process"),
    (["explain"], 0, "all_reduce in group 'tp' of f32[4, 4]"),
    (["explain"], 0, "divided for tp=2: 1 exchanges"),
    (["verify"], 0, "executions agree"),
    pytest.param(["tune", "--seconds", "1"], 0, "it runs on several ranks",
                 marks=pytest.mark.slow),
])
def test_commands_of_one_process(
    words: list[str], status: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They work on the program of a rank, or say why not."""
    file = tmp_path / "model.mlir"
    file.write_text(model(1.0))
    monkeypatch.setenv("STRATA_CACHE", str(tmp_path))
    assert main([words[0], str(file), "--mesh", "tp=2", *words[1:]]) == status
    assert told in "".join(capsys.readouterr())


def told_by_both(command: str, folder: Path, *options: str | Path) -> list[tuple[str, str]]:
    """What a command prints on each of two ranks, which end well."""
    file = folder / "model.mlir"
    file.write_text(model(1.0))
    children = start([[command, file, "--mesh", "tp=2", *options]] * 2, folder)
    told = [child.communicate() for child in children]
    assert [child.returncode for child in children] == [0, 0], told
    return told


@pytest.mark.slow
def test_bench_makes_the_same_calls_on_all_ranks(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    told = told_by_both("bench", tmp_path, "--rounds", "4", "--json", found)
    [row] = json.loads(found.read_text())["results"]
    assert len(row["ranks"]) == 2 and row["median_ms"] == max(row["ranks"])
    assert "slowest of 2 ranks" in told[0][0] and told[1][0] == ""


def test_profile_shows_exchanges_and_all_ranks(tmp_path: Path) -> None:
    traced = tmp_path / "trace.json"
    told = told_by_both("profile", tmp_path, "--seconds", "0.1", "--trace", traced)
    assert "all_reduce(tp)" in told[0][0] and "2 ranks" in told[0][0] and told[1][0] == ""
    events = json.loads(traced.read_text())["traceEvents"]
    exchanged = {e["pid"] for e in events if e["name"] == "all_reduce(tp)"}
    assert exchanged == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--against", "torch"], ["--specialize"]])
def test_what_ranks_do_not_measure_is_refused(words: list[str], tmp_path: Path) -> None:
    file = tmp_path / "model.mlir"
    file.write_text(model(1.0))
    children = start([["bench", file, "--mesh", "tp=2", *words]] * 2, tmp_path)
    for rank, child in enumerate(children):
        _, errors = child.communicate()
        assert child.returncode == 1
        assert f"error on rank {rank}: {words[0]} measures programs of one process" in errors


@pytest.mark.slow
def test_torchrun_ends_with_the_message_of_the_rank_that_failed(tmp_path: Path) -> None:
    """One rank has other weights, whose program has the same exchanges."""
    pytest.importorskip("torch")
    files = [tmp_path / f"model{k}.mlir" for k in range(2)]
    for k, file in enumerate(files):
        file.write_text(model(1.0 + k))
    words = f'exec {sys.executable} -m compiler run {tmp_path}/model$RANK.mlir --mesh tp=2'
    done = processes.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python",
         "--master-port", str(free_port()), "sh", "-c", words], cwd=ROOT, capture_output=True,
        text=True, env={**os.environ, "STRATA_CACHE": str(tmp_path)})
    assert done.returncode == 1
    message = "the ranks have different programs"
    assert f"error on rank 0: {message}" in done.stderr or f"error on rank 1: {message}" in (
        done.stderr)
    assert message in done.stderr.rpartition("compiler FAILED")[2] or message in (
        done.stderr.rpartition("sh FAILED")[2])


@pytest.mark.slow
def test_no_rank_outlives_one_that_is_killed(tmp_path: Path) -> None:
    """Nobody but the ranks themselves notices: they are started without torchrun."""
    file = tmp_path / "model.mlir"
    file.write_text(model(1.0))
    words = ["bench", file, "--mesh", "tp=2", "--rounds", "1000000"]
    children = start([words] * 2, tmp_path)
    time.sleep(12)
    assert [child.poll() for child in children] == [None, None]
    children[1].kill()
    started = time.perf_counter()
    _, errors = children[0].communicate()
    assert time.perf_counter() - started < SOON and children[0].returncode == 1
    assert "error on rank 0" in errors and "all_reduce in group 'tp'" in errors


@pytest.mark.slow
def test_other_programs_are_refused_before_they_hang(tmp_path: Path) -> None:
    files = [tmp_path / f"model{k}.mlir" for k in range(2)]
    for k, file in enumerate(files):
        file.write_text(model(1.0 + k, rows=4 + 4 * k))
    children = start([["run", file, "--mesh", "tp=2"] for file in files], tmp_path)
    for child in children:
        _, errors = child.communicate()
        assert child.returncode == 1
        assert "the ranks have different programs" in errors and "inputs and outputs" in errors


@pytest.mark.slow
def test_a_lost_rank_ends_the_others_with_the_name_of_a_collective(tmp_path: Path) -> None:
    file, script = tmp_path / "model.mlir", tmp_path / "rank.py"
    file.write_text(model(1.0))
    script.write_text(
        "import os, sys\n"
        "import numpy as np, torch.distributed as dist\n"
        "import compiler\n"
        "from datetime import timedelta\n"
        "dist.init_process_group('gloo', timeout=timedelta(seconds=20))\n"
        "exe = compiler.compile(sys.argv[1], mesh='tp=2', threads=1)\n"
        "exe(np.ones((4, 4), np.float32))\n"
        "if dist.get_rank() == 1: os.kill(os.getpid(), 9)\n"
        "exe(np.ones((4, 4), np.float32))\n")
    pytest.importorskip("torch")
    variables = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": str(free_port()), "STRATA_CACHE": str(tmp_path)}
    children = [processes.start([sys.executable, script, file], 120.0, text=True, cwd=ROOT,
                                env={**variables, "RANK": str(k)}, stdout=-1, stderr=-1)
                for k in range(2)]
    children[1].wait()
    started = time.perf_counter()
    _, errors = children[0].communicate()
    assert time.perf_counter() - started < SOON
    assert children[0].returncode == 1
    assert "rank 0: all_reduce in group 'tp'" in errors and "failed" in errors
