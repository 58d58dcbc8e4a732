"""Check that programs of several ranks are right on this machine, and that none of them hangs.

    python benchmarks/distributed/check.py [JOB ...] [--ranks 2] [--device cuda] [--seconds 120]

Each job of `tests/ranks/jobs.py` runs in processes of its own, under a time limit. A row says how
it ended. Of a job that failed, the end of each rank's log follows: its steps with their times, and
if a step took more than `--step` seconds, the stacks of its threads. `--keep FOLDER` keeps the
logs. The status is 1 if any job failed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.ranks.jobs import JOBS
from tests.ranks.running import faults_of, run_jobs

GPU_JOBS = ("collectives", "exchanges", "overlapped", "one_graph", "tensor_parallel",
            "tensor_parallel_training")
CPU_JOBS = ("collectives", "tensor_parallel", "tensor_parallel_training", "ddp", "fsdp")


def checked(job: str, options: argparse.Namespace, folder: Path) -> bool:
    """Run a job, and print how it ended. Returns whether it was right."""
    ranks, device = options.ranks, options.device
    ended = run_jobs(ranks, [job], folder, device, options.seconds, options.step)
    faults = [f"rank {k}: {fault}" for k, result in enumerate(ended.results)
              for fault in faults_of(job, result.get(job), device)]
    is_right = not ended.fault and not faults
    errors = [e for r in ended.results for e in (r.get(job) or {}).get("errors", ())
              ] if is_right and isinstance(ended.results[0][job], dict) else []
    worst = f", largest error {max(errors):.1e}" if errors else ""
    print(f"{job:26} {ranks} ranks {ended.seconds:6.1f} s  "
          f"{'right' + worst if is_right else 'FAILED'}", flush=True)
    for fault in faults:
        print(f"  {fault}", flush=True)
    if ended.fault:
        print(ended.report, flush=True)
    return is_right


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"of {', '.join(JOBS)}")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--seconds", type=float, default=120.0, help="the limit of each job")
    parser.add_argument("--step", type=float, default=0.0,
                        help="the limit of each step: 40 seconds on GPUs, 100 on the CPU")
    parser.add_argument("--keep", type=Path, help="a folder for the logs")
    options = parser.parse_args(words)
    if unknown := {*options.jobs} - {*JOBS}:
        parser.error(f"there is no job {', '.join(sorted(unknown))}")
    jobs = options.jobs or (GPU_JOBS if options.device == "cuda" else CPU_JOBS)
    kept = Path(tempfile.mkdtemp()) if options.keep is None else options.keep
    results: list[bool] = []
    try:
        for job in jobs:
            folder = kept / job
            folder.mkdir(parents=True)
            results.append(checked(job, options, folder))
    finally:
        if options.keep is None:
            shutil.rmtree(kept)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
