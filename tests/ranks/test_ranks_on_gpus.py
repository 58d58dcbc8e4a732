"""Ranks on GPUs of one host, which torch.distributed connects through NCCL.

`python benchmarks/distributed/check.py` runs the same jobs, or one of them, and says how far each
rank came.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import cuda_devices
from tests.ranks.running import run_jobs
from tests.ranks.test_processes_of_ranks import check, check_numbers, on_ranks

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(
    cuda_devices() < 2, reason="needs two NVIDIA GPUs")]

LIMIT = 120.0
"""Seconds for a job, which has its own processes, so that one that hangs is alone."""

Job = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Runs a job on two GPUs, once."""
    @cache
    def run(job: str) -> list[dict[str, Any]]:
        return on_ranks(2, [job], tmp_path_factory.mktemp(job), "cuda", LIMIT)

    return run


def test_kernels_and_nccl_compute_what_collectives_mean(two: Job) -> None:
    assert [r["collectives"] for r in two("collectives")] == [[], []]


def test_programs_exchange_tiles(two: Job) -> None:
    for result in check(two("exchanges"), "exchanges"):
        assert result["wrong"] == []
        assert all(result["programs"])


def test_products_in_parts_are_those_of_the_whole(two: Job) -> None:
    for result in check(two("overlapped"), "overlapped"):
        assert result["wrong"] == []
        assert result["exchanges"] > 2


@pytest.mark.parametrize("job", ["tensor_parallel", "tensor_parallel_training", "one_graph"])
def test_gpus_compute_what_one_does(job: str, two: Job) -> None:
    check_numbers(two(job), job, "cuda")


def test_a_step_is_one_graph_with_nccl_inside(two: Job) -> None:
    for result in check(two("one_graph"), "one_graph"):
        assert result["kinds"] == [["all_reduce", "all_reduce"]]
        assert result["graphs"] == [True]


def test_a_lost_rank_ends_the_others(tmp_path: Path) -> None:
    """Inside of a graph, where torch.distributed does not look."""
    ended = run_jobs(2, ["lost"], tmp_path, "cuda", LIMIT, of_step=60.0)
    assert ended.results[0].get("lost") is None
    assert "all_reduce in group" in ended.report, ended.report


@pytest.mark.skipif(cuda_devices() < 4, reason="needs four NVIDIA GPUs")
def test_groups_of_four(tmp_path: Path) -> None:
    found = on_ranks(4, ["collectives"], tmp_path, "cuda", LIMIT)
    assert [r["collectives"] for r in found] == [[]] * 4
