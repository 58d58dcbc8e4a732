"""Ranks in processes of their own, which torch.distributed connects through gloo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.ranks.running import LIMIT, faults_of, run_jobs

QUICK, OTHERS = ("tensor_parallel", "ddp"), ("tensor_parallel_training", "fsdp")


def on_ranks(
    count: int, jobs: Sequence[str], folder: Path, device: str = "cpu", limit: float = LIMIT
) -> list[dict[str, Any]]:
    """The results of jobs on each rank. Fails with what ranks have logged: their steps, and where
    they hang."""
    torch = pytest.importorskip("torch")
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("this PyTorch has no gloo")
    ended = run_jobs(count, jobs, folder, device, limit)
    if ended.fault:
        pytest.fail(ended.report)
    return ended.results


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


def check_numbers(results: Sequence[dict[str, Any]], job: str, device: str = "cpu") -> None:
    """All is compiled, and computes what one process does."""
    for result in check(results, job):
        assert faults_of(job, result, device) == []
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


@pytest.mark.slow
def test_a_rank_that_hangs_says_where(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    ended = run_jobs(2, ["stuck"], tmp_path, of_step=20.0)
    assert "rank 1 ended with status 1" in ended.fault
    log = ended.logs[1].read_text()
    assert log.count("wait for rank 1") == 1 and "in stuck" in log.rpartition("wait for rank")[2]
    assert ended.results[0] == {} or "failed" in ended.results[0]["stuck"]
