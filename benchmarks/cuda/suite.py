"""All that the CUDA target's speed is measured by, beside PyTorch and its libraries.

    python benchmarks/cuda/suite.py                              everything, within --budget seconds
    python benchmarks/cuda/suite.py --rows norms,products --only softmax,4096 --seconds 1
    python benchmarks/cuda/suite.py --rows models --modes default,reduce-overhead,max-autotune
    python benchmarks/cuda/suite.py --smoke                      tiny sizes on the CPU, to try it
    python benchmarks/cuda/suite.py --list

Ours and its peers run in one process and take turns. Rows of a group share a process; a row that
ends it is a fault, and the next one gets a new process. With --jobs, groups compile side by side
and take turns on the device. Results gather in --results, so that a run can be made in parts; rows
that do not fit in the budget are left out, and said. The table of all that is there is written to
-o. Exit status: 0 when no row failed, 1 otherwise; whether goals are met is for the table to say.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Timer
from typing import Any

from rows import AUTOTUNED, MEASURED, Setting, group
from rows.table import Results, described, joined, report

from compiler.faults import versions

HERE = Path(__file__).parent
LAST_WORDS = 300
SLOW = ("max-autotune",)
"""Modes that compile for minutes."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", metavar="A,B", default=",".join(MEASURED),
                        help=f"groups: {', '.join(MEASURED)}")
    parser.add_argument("--only", metavar="A,B", default="",
                        help="rows whose names hold one of these")
    parser.add_argument("--list", action="store_true", help="name the rows, and measure nothing")
    parser.add_argument("--seconds", metavar="N", type=float, default=2.0,
                        help="about how long the calls of a row take in all (default 2)")
    parser.add_argument("--budget", metavar="N", type=float, default=570.0,
                        help="seconds behind which no row is begun, and all is ended")
    parser.add_argument("--jobs", metavar="N", type=int, default=1,
                        help="processes that compile at a time (default 1)")
    parser.add_argument("--modes", metavar="A,B", default="default,reduce-overhead,max-autotune",
                        help="of torch.compile; slow ones are measured at last, as time allows")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes on the CPU")
    parser.add_argument("--interpret", action="store_true",
                        help="with --smoke: the CUDA target, in Triton's interpreter")
    parser.add_argument("--results", metavar="FILE", type=Path, default=Path("build/cuda.json"))
    parser.add_argument("-o", metavar="FILE.md", dest="output", type=Path,
                        default=HERE / "RESULTS.md", help="default: RESULTS.md beside this file")
    parser.add_argument("--note", metavar="TEXT", default="", help="what else to say there")
    options = parser.parse_args()
    unknown = set(options.rows.split(",")) - set(MEASURED)
    if unknown:
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(MEASURED)}")
    if options.interpret and not options.smoke:
        parser.error("--interpret needs --smoke: Triton's interpreter is for tiny sizes")
    return options


def wanted(options: argparse.Namespace) -> dict[str, list[str]]:
    """The rows that are asked for, by group."""
    parts = [part for part in options.only.split(",") if part]
    found: dict[str, list[str]] = {}
    for name in options.rows.split(","):
        rows = group(name).rows(Setting(smoke=options.smoke))
        found[name] = [r for r in rows if not parts or any(part in r for part in parts)]
    return {name: rows for name, rows in found.items() if rows}


def parts(rows: Mapping[str, Sequence[str]], modes: Sequence[str]) -> Iterator[Part]:
    """What shares a process: the rows of a group, unless it wants them apart. At last come modes
    that are slow, beside what was measured."""
    quick = [mode for mode in modes if mode not in SLOW]
    for name, found in rows.items():
        yield from _parts(name, found, quick)
    for mode in (mode for mode in modes if mode in SLOW):
        for name in (name for name in AUTOTUNED if name in rows):
            yield from _parts(name, rows[name], [mode], beside=True)


def _parts(
    name: str, rows: Sequence[str], modes: Sequence[str], beside: bool = False
) -> Iterator[Part]:
    for found in [[row] for row in rows] if group(name).APART else [rows]:
        yield Part(name, found, modes, beside)


@dataclass(frozen=True)
class Part:
    """Rows of a group that share a process. See `Setting`."""

    group: str
    rows: Sequence[str]
    modes: Sequence[str]
    beside: bool


@dataclass
class Run:
    """One run of the suite: who measures, until when, and what came of it."""

    options: argparse.Namespace
    results: Results
    machine: str
    lock: Path
    until: float
    left_out: list[str] = field(default_factory=list[str])
    writing: Any = field(default_factory=Lock)

    def measure(self, part: Part) -> None:
        """Measure rows of a group, with a new process behind one that has ended its own."""
        rest = list(part.rows)
        while rest:
            if time.monotonic() >= self.until:
                self._leave_out(part, rest)
                return
            done = self._process(part, rest)
            rest = rest[rest.index(done) + 1:] if done in rest else []

    def _leave_out(self, part: Part, rows: Sequence[str]) -> None:
        what = f" ({', '.join(part.modes)})" if part.beside else ""
        self.left_out += [f"{part.group}: {row}{what}" for row in rows]

    def _process(self, part: Part, rows: Sequence[str]) -> str:
        """Records of a process, as they come; the row at which it ended."""
        command = [sys.executable, str(HERE / "row.py"), part.group, *rows,
                   "--seconds", str(self.options.seconds), "--modes", ",".join(part.modes),
                   "--lock", str(self.lock), *["--beside"] * part.beside]
        command += ["--smoke"] * self.options.smoke + ["--interpret"] * self.options.interpret
        started: list[str] = []
        with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True,
                                       cwd=folder, env=environment())
            timer = Timer(max(1.0, self.until - time.monotonic()), process.kill)
            timer.start()
            for record in records(process):
                self._put(record, part.beside)
                started.append(record["row"])
            timer.cancel()
            if not process.wait():
                return rows[-1]
            errors.seek(0)
            last = (errors.read().strip().splitlines() or ["no message"])[-1][-LAST_WORDS:]
        failed = next(row for row in rows if row not in started)
        if time.monotonic() >= self.until:
            self._leave_out(part, [row for row in rows if row not in started])
            return rows[-1]
        self._put({"group": part.group, "row": failed,
                   "fault": f"exit status {process.returncode}: {last}"}, part.beside)
        return failed

    def _put(self, record: dict[str, Any], beside: bool) -> None:
        about = {"machine": self.machine, "versions": ", ".join(versions())}
        with self.writing:
            before = self.results.find(record) if beside else None
            self.results.put({**(joined(before, record) if before else record), **about})
            print(f"{record['group']:13} {record['row']:36} {described(record)}", flush=True)
            for note in record.get("notes", ()):
                print(f"{'':13} {note}", flush=True)


def records(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def environment() -> dict[str, str]:
    """Ours, with this checkout to import from."""
    paths = [str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def machine_name(smoke: bool) -> str:
    """The device that is measured."""
    from targets.cuda.runtime import driver

    if smoke:
        return "the CPU, tiny sizes: times say nothing"
    return driver.device_name()


def main() -> int:
    options, started = arguments(), time.monotonic()
    rows = wanted(options)
    if options.list:
        print("\n".join(f"{name:13} {row}" for name in rows for row in rows[name]))
        return 0
    modes = [mode for mode in options.modes.split(",") if mode]
    with tempfile.NamedTemporaryFile() as lock, ThreadPoolExecutor(options.jobs) as pool:
        run = Run(options, Results.load(options.results), machine_name(options.smoke),
                  Path(lock.name), started + options.budget)
        for done in [pool.submit(run.measure, part) for part in parts(rows, modes)]:
            done.result()
    titles = {name: group(name).TITLE for name in MEASURED}
    options.output.write_text(report(run.results, titles, options.note), encoding="utf-8")
    if run.left_out:
        print("left out, for there was no time:", "; ".join(run.left_out))
    return 1 if run.results.faults else 0


if __name__ == "__main__":
    sys.exit(main())
