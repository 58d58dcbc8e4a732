"""Ranks in processes of their own, which torch.distributed connects through gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import processes

ROOT = Path(__file__).parents[2]
LIMIT = 240.0
QUICK, OTHERS = ("tensor_parallel", "ddp"), ("tensor_parallel_training", "fsdp")


def on_ranks(
    count: int, jobs: Sequence[str], folder: Path, device: str = "cpu", limit: float = LIMIT
) -> list[dict[str, Any]]:
    """The results of jobs on each rank. Fails after `limit` seconds, with what ranks have logged:
    how long each job took, and where they are."""
    torch = pytest.importorskip("torch")
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("this PyTorch has no gloo")
    words = [sys.executable, "-m", "tests.ranks.jobs", folder / "store", device, *jobs]
    variables = {**os.environ, "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
                 "OMP_NUM_THREADS": "1",
                 "STRATA_CACHE": str(folder)}
    logs = [folder / f"rank-{rank}.log" for rank in range(count)]
    children: list[processes.Child] = []
    try:
        for rank, log in enumerate(logs):
            with log.open("w") as errors:
                children.append(processes.start(
                    words, limit, env={**variables, "RANK": str(rank)}, text=True, cwd=ROOT,
                    stdout=-1, stderr=errors))
        found = [child.communicate()[0] for child in children]
    except subprocess.TimeoutExpired:
        said = "\n\n".join(f"{log.name}:\n{log.read_text()[-4000:]}" for log in logs)
        pytest.fail(f"not done after {limit:g} s\n{said}")
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
    for child, log in zip(children, logs, strict=True):
        assert child.returncode == 0, log.read_text()
    return [json.loads(output.splitlines()[-1]) for output in found]


def check(results: Sequence[dict[str, Any]], job: str) -> list[dict[str, Any]]:
    """The results of a job, which has succeeded on all ranks."""
    found = [result[job] for result in results]
    for result in found:
        assert "failed" not in result, result["failed"]
    return found


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return on_ranks(2, ["collectives", *QUICK, "wrong_group"], tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return on_ranks(2, OTHERS, tmp_path_factory.mktemp("others"))


def test_native_code_computes_what_collectives_mean(two: list[dict[str, Any]]) -> None:
    assert [r["collectives"] for r in two] == [[], []]


def check_numbers(results: Sequence[dict[str, Any]], job: str) -> None:
    """All is compiled, and computes what one process does."""
    for result in check(results, job):
        assert max(result["errors"]) < 1e-5
        assert result["eager"] == []
        assert result["kinds"]


@pytest.mark.parametrize("job", QUICK)
def test_ranks_compute_what_one_process_does(job: str, two: list[dict[str, Any]]) -> None:
    check_numbers(two, job)


@pytest.mark.slow
@pytest.mark.parametrize("job", OTHERS)
def test_other_ways_of_training(job: str, others: list[dict[str, Any]]) -> None:
    check_numbers(others, job)


def test_collectives_of_tensor_parallelism_are_in_the_program(two: list[dict[str, Any]]) -> None:
    for result in check(two, "tensor_parallel"):
        assert result["breaks"] == 0
        assert all(kinds == ["all_reduce", "all_reduce"] for kinds in result["kinds"])


@pytest.mark.slow
def test_collectives_of_training_are_in_both_programs(others: list[dict[str, Any]]) -> None:
    for result in check(others, "tensor_parallel_training"):
        forward, backward = result["kinds"]
        assert forward.count("all_reduce") == 2 and "all_reduce" in backward


def test_the_all_reduce_of_ddp_is_in_the_backward_program(two: list[dict[str, Any]]) -> None:
    for result in check(two, "ddp"):
        assert [k for kinds in result["kinds"] for k in kinds] == ["all_reduce"] * 6


def test_a_program_for_more_ranks_is_refused(two: list[dict[str, Any]]) -> None:
    for result in two:
        assert "needs 8 ranks, and only 2 are running" in result["wrong_group"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 4])
def test_more_ranks(count: int, tmp_path: Path) -> None:
    assert [r["collectives"] for r in on_ranks(count, ["collectives"], tmp_path)] == [[]] * count
