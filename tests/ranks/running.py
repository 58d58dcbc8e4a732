"""Starts jobs of `tests/ranks/jobs.py` in a process per rank, and says how they end.

Nothing hangs: a rank that is not done with a step in time says where it is, and ends
(`tests/ranks/steps.py`); what is left after `limit` seconds is killed. Each rank writes its results
to a file, because a pipe would stay open as long as any process that the rank has started.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import processes
from tests.ranks.steps import SECONDS

ROOT = Path(__file__).parents[2]
LIMIT = 240.0
TOLERANCE = {"cpu": 1e-5, "cuda": 1e-2}
"""The largest error of a model's outputs and gradients; products on GPUs may use TF32."""
_SHOWN = 4000


@dataclass
class Ended:
    """How jobs ended. `results`: of each rank, by job; `fault`: why they are not complete, or
    empty; `logs`: what each rank has logged."""

    logs: list[Path]
    seconds: float = 0.0
    fault: str = ""
    results: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def report(self) -> str:
        """The fault, with the end of each rank's log, in which the last step is named."""
        said = "\n\n".join(f"{log.name}:\n{log.read_text()[-_SHOWN:]}" for log in self.logs)
        return f"{self.fault}\n{said}"


def free_port() -> int:
    """A port at which ranks can meet, as those of torchrun do."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def run_jobs(
    count: int, jobs: Sequence[str], folder: Path, device: str = "cpu", limit: float = LIMIT,
    of_step: float = 0.0,
) -> Ended:
    """Run jobs on `count` ranks, for at most `limit` seconds. `folder`: an empty one. `of_step`:
    the limit of a step, in seconds; 0: that of the device."""
    seconds = str(of_step or SECONDS[device])
    words = [sys.executable, "-m", "tests.ranks.jobs", folder, device, seconds, *jobs]
    variables = {**os.environ, "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
                 "OMP_NUM_THREADS": "1", "STRATA_CACHE": str(folder),
                 "NCCL_DEBUG": os.environ.get("NCCL_DEBUG", "WARN")}
    ended = Ended([folder / f"rank-{rank}.log" for rank in range(count)])
    children: list[processes.Child] = []
    started = time.perf_counter()
    try:
        for rank, path in enumerate(ended.logs):
            with path.open("w") as log:
                children.append(processes.start(
                    words, limit, env={**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    cwd=ROOT, stdout=log, stderr=log))
        ended.fault = _fault_of(children, limit)
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
    ended.seconds = time.perf_counter() - started
    files = [folder / f"rank-{rank}.json" for rank in range(count)]
    ended.results = [json.loads(f.read_text()) if f.exists() else {} for f in files]
    return ended


def _fault_of(children: Sequence[processes.Child], limit: float) -> str:
    """Wait for all ranks; which have failed."""
    faults: list[str] = []
    for rank, child in enumerate(children):
        try:
            status = child.wait()
        except subprocess.TimeoutExpired:
            faults.append(f"rank {rank} was not done after {limit:g} s")
        else:
            faults += [f"rank {rank} ended with status {status}"] if status else []
    return ", ".join(faults)


def faults_of(job: str, result: Any, device: str) -> list[str]:
    """What is wrong with the result of a job on one rank: with what it says itself, that numbers
    differ from those of one process, or that something ran eagerly."""
    if isinstance(result, list):
        return [f"{job}: {said}" for said in result]
    if not isinstance(result, dict):
        return []
    faults = [f"{job}: {result['failed']}"] if "failed" in result else []
    faults += [f"{job}: {said} is wrong" for said in result.get("wrong", ())]
    faults += [f"{job}: {said} runs eagerly" for said in result.get("eager", ())]
    error = max(result.get("errors", [0.0]))
    if not error < TOLERANCE[device]:
        faults.append(f"{job}: the error is {error:.1e}")
    return faults
