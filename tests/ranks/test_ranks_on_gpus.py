"""Ranks on GPUs of one host, which torch.distributed connects through NCCL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import cuda_devices
from tests.ranks.test_processes_of_ranks import check, on_ranks

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(
    cuda_devices() < 2, reason="needs two NVIDIA GPUs")]

LIMIT = 180.0


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    jobs = ["collectives", "exchanges", "one_graph", "tensor_parallel", "tensor_parallel_training"]
    return on_ranks(2, jobs, tmp_path_factory.mktemp("gpus"), "cuda", LIMIT)


def test_kernels_and_nccl_compute_what_collectives_mean(two: list[dict[str, Any]]) -> None:
    assert [r["collectives"] for r in two] == [[], []]


def test_programs_exchange_tiles(two: list[dict[str, Any]]) -> None:
    for result in check(two, "exchanges"):
        assert result["wrong"] == []
        assert all(result["programs"])


@pytest.mark.parametrize("job", ["tensor_parallel", "tensor_parallel_training", "one_graph"])
def test_gpus_compute_what_one_does(job: str, two: list[dict[str, Any]]) -> None:
    for result in check(two, job):
        assert max(result["errors"]) < 1e-2  # products may use TF32
        assert result["eager"] == []
        assert result["kinds"]


def test_a_step_is_one_graph_with_nccl_inside(two: list[dict[str, Any]]) -> None:
    for result in check(two, "one_graph"):
        assert result["kinds"] == [["all_reduce", "all_reduce"]]
        assert result["graphs"] == [True]


@pytest.mark.skipif(cuda_devices() < 4, reason="needs four NVIDIA GPUs")
def test_groups_of_four(tmp_path: Path) -> None:
    found = on_ranks(4, ["collectives"], tmp_path, "cuda", LIMIT)
    assert [r["collectives"] for r in found] == [[]] * 4
