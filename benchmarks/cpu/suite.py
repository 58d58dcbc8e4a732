"""All that the CPU target's speed is measured by, a group of rows at a time, beside its peers.

    python benchmarks/cpu/suite.py --rows gemm,kernels [--threads 1] [--seconds 5]
    STRATA_ZOO=folder python benchmarks/cpu/suite.py --rows zoo --only resnet
    python benchmarks/cpu/suite.py --list

Every row is measured in a process of its own. Results gather in --results, so that a run can be
made in parts; the table of all that is there is written to -o. Exit status: 0 when no row failed,
1 otherwise; whether goals are met is for the table to say.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rows import GROUPS, VARIABLE, Setting, group
from rows.table import Results, described, report

from compiler.faults import versions

HERE = Path(__file__).parent
THREADS_GROUP = "threads"
"""It says itself how many threads there are."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", metavar="A,B", default=",".join(GROUPS),
                        help=f"groups: {', '.join(GROUPS)}")
    parser.add_argument("--only", metavar="A,B", default="",
                        help="rows whose names hold one of these")
    parser.add_argument("--list", action="store_true", help="name the rows, and measure nothing")
    parser.add_argument("--threads", metavar="N,M", default="1", help="default 1")
    parser.add_argument("--seconds", metavar="N", type=float, default=5.0,
                        help="about how long the calls of a row take in all (default 5)")
    parser.add_argument("--models-json", metavar="FILE", type=Path,
                        help=f"describes the zoo's models; default: models.json in ${VARIABLE}")
    parser.add_argument("--results", metavar="FILE", type=Path, default=Path("build/cpu.json"))
    parser.add_argument("-o", metavar="FILE.md", dest="output", type=Path,
                        default=HERE / "RESULTS.md", help="default: RESULTS.md beside this file")
    parser.add_argument("--note", metavar="TEXT", default="", help="what else to say there")
    parser.add_argument("--limit", metavar="SECONDS", type=float, default=900, help="for one row")
    options = parser.parse_args()
    unknown = set(options.rows.split(",")) - set(GROUPS)
    if unknown:
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    if options.models_json is None and VARIABLE in os.environ:
        options.models_json = Path(os.environ[VARIABLE]) / "models.json"
    return options


def wanted(options: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """Group, row and number of threads of all that is asked for."""
    parts = [part for part in options.only.split(",") if part]
    for name in options.rows.split(","):
        setting = Setting(1, options.seconds, Path(), options.models_json)
        counts = [2] if name == THREADS_GROUP else [int(n) for n in options.threads.split(",")]
        for row in group(name).rows(setting):
            if not parts or any(part in row for part in parts):
                yield from ((name, row, threads) for threads in counts)


def measure(name: str, row: str, threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """A record, from a process of its own; what goes wrong there is a record too."""
    command = [sys.executable, str(HERE / "row.py"), name, row, "--threads", str(threads),
               "--seconds", str(options.seconds)]
    if options.models_json is not None:
        command += ["--models-json", str(options.models_json.resolve())]
    with tempfile.TemporaryDirectory() as folder:  # reproducers go there
        try:
            done = subprocess.run(command, text=True, timeout=options.limit, capture_output=True,
                                  cwd=folder, check=False, env=environment())
        except subprocess.TimeoutExpired:
            return {"fault": f"takes more than {options.limit:.0f} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"fault": f"exit status {done.returncode}: {last}"}
    return json.loads(done.stdout.splitlines()[-1])


def environment() -> dict[str, str]:
    """Ours, with this checkout to import from; Python may keep its bytecode, as by default."""
    paths = [str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    ours = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return {name: value for name, value in ours.items() if name != "PYTHONDONTWRITEBYTECODE"}


def processor() -> str:
    """The processor's name, and how many of its cores this process may use."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0))
    return f"{names[0] if names else platform.machine()}, {cores} CPUs, {platform.system()}"


def main() -> int:
    options = arguments()
    if options.list:
        print("\n".join(f"{name:12} {row}" for name, row, _ in wanted(options)))
        return 0
    results, machine = Results.load(options.results), processor()
    for name, row, threads in wanted(options):
        record = {"group": name, "row": row, "threads": threads,
                  **measure(name, row, threads, options), "machine": machine,
                  "versions": ", ".join(versions()), "load": os.getloadavg()[0]}
        results.put(record)
        print(f"{name:12} {row:36} {described(record)}", flush=True)
    options.output.write_text(report(results, options.note), encoding="utf-8")
    return 1 if results.faults else 0


if __name__ == "__main__":
    sys.exit(main())
