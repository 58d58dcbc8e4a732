"""Operators that run in processes of their own: one that crashes or hangs costs only its operator.

A process runs many operators and adds two lines of JSON to a file for each: that it has started,
and what became of its samples, pairs of a verdict and a reason. Another run continues there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

Samples = list[tuple[str, str]]


# ---------------------------------------------------------------------- inside a process
def keep(kept: Path, names: Sequence[str], run: Callable[[str], Samples]) -> None:
    """Run operators, and add what becomes of them to a file."""
    with kept.open("a") as file:
        for name in names:
            file.write(json.dumps({"started": name}) + "\n")
            file.flush()
            file.write(json.dumps({"name": name, "samples": run(name)}) + "\n")
            file.flush()


# ---------------------------------------------------------------------- around processes
def run_apart(command: Sequence[str], names: Sequence[str], seconds: float, kept: Path,
              chunk: int = 60) -> None:
    """Run the operators that a file lacks, with as many processes as crashes and hangs require.

    `command` is called with `--only NAMES --kept FILE`. An operator may take so many seconds.
    """
    while todo := [n for n in names if n not in results_of(kept)][:chunk]:
        called = [*command, "--only", ",".join(todo), "--kept", str(kept)]
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(called, stdout=output, stderr=output, env={
                **os.environ, "STRATA_CACHE": os.environ.get("STRATA_CACHE", str(kept.parent))})
            hung = _wait(process, kept, seconds)
        if process.returncode:
            _note_failure(kept, "it takes too long" if hung else
                          f"the process ends with {process.returncode}")


def _wait(process: subprocess.Popen[bytes], kept: Path, seconds: float) -> bool:
    """Wait for a process; stop one that adds nothing to the file for so long, or never starts."""
    while process.poll() is None:
        time.sleep(0.2)
        last = kept.stat().st_mtime if kept.exists() else 0.0
        started = Path(f"/proc/{process.pid}").stat().st_mtime if process.poll() is None else 0.0
        if last and time.time() - max(last, started) > seconds * (1 if last > started else 20):
            process.kill()
            process.wait()
            return True
    return False


def _note_failure(kept: Path, why: str) -> None:
    lines = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    done = {line["name"] for line in lines if "name" in line}
    started = [line["started"] for line in lines if "started" in line]
    if started and started[-1] in done:
        return  # it ended after its last operator
    if not started:
        sys.exit(f"a process of {kept.name} ends before it runs anything: {why}")
    with kept.open("a") as file:
        file.write(json.dumps({"name": started[-1], "samples": [("failed", why)]}) + "\n")


def results_of(kept: Path) -> dict[str, Samples]:
    """The verdicts in a file, by operator."""
    lines = list(map(json.loads, kept.read_text().splitlines())) if kept.exists() else []
    return {line["name"]: [(a, b) for a, b in line["samples"]] for line in lines if "name" in line}


def gathered(folder: Path, pattern: str) -> dict[str, Samples]:
    """The verdicts in all files of a folder whose names match, by operator."""
    return {name: found for kept in sorted(folder.glob(pattern))
            for name, found in results_of(kept).items()}
