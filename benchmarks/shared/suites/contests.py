"""Contests of whole models on a GPU, each model in a process of its own.

So many models as `--jobs` compile at a time. When all of these have said that they are ready, they
are measured one by one, so that nobody compiles meanwhile. Records gather in a JSON file by the
model's name, so that a run can be made in parts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any, Protocol

TOLD = "contest: "
"""Begins the lines that say how long a contestant took."""
Records = Mapping[str, Mapping[str, Any]]


class Contest(Protocol):
    """A model's contestants, which have compiled."""

    record: dict[str, Any]

    def measure(self) -> None:
        """Add times to the record."""
        ...


def parser_of(about: str | None, jobs: int, seconds: float, page: Path) -> argparse.ArgumentParser:
    """The options that all contests have. `page`: the default file for the page."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="models whose names hold one of these")
    parser.add_argument("--jobs", type=int, default=jobs, help="models that compile at a time")
    parser.add_argument("--budget", type=float, default=570.0, help="seconds")
    parser.add_argument("--seconds", type=float, default=seconds, help="of calls, for each model")
    parser.add_argument("--modes", default="default,reduce-overhead", help="of torch.compile")
    parser.add_argument("--kernels", action="store_true", help="keep the slowest kernels, too")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes on the CPU")
    results = Path(f"build/cuda_{page.stem.lower()}.json")
    parser.add_argument("--results", type=Path, default=results)
    parser.add_argument("-o", dest="output", type=Path, default=page)
    parser.add_argument("--row", help=argparse.SUPPRESS)
    return parser


def chosen(names: Iterable[str], only: str) -> list[str]:
    """The names that hold one of the words, which commas separate; all without words."""
    parts = [part for part in only.split(",") if part]
    return [n for n in names if not parts or any(part in n for part in parts)]


def hold(
    options: argparse.Namespace, names: Sequence[str], page: Callable[[Records], str]
) -> None:
    """Measure models while there is time, and write the page of all records after each batch."""
    until = time.monotonic() + options.budget
    known = kept(options.results)
    for first in range(0, len(names), options.jobs):
        for found in _batch(names[first:first + options.jobs], until):
            known[found["name"]] = found
        options.results.write_text(json.dumps(known))
        options.output.write_text(page(known))
    print(options.output.read_text())


def kept(file: Path) -> dict[str, Any]:
    """The records so far."""
    file.parent.mkdir(parents=True, exist_ok=True)
    return json.loads(file.read_text()) if file.exists() else {}


def contest(
    options: argparse.Namespace, names: Sequence[str],
    make: Callable[[str, argparse.Namespace], Contest], page: Callable[[Records], str],
) -> None:
    """Measure models that compute no gradients; in a model's own process, take part for it."""
    import torch

    if not options.row:
        return hold(options, names, page)
    with torch.no_grad():
        take_part(lambda: make(options.row, options))


def take_part(make: Callable[[], Contest]) -> None:
    """A model's own process: compile, say so, wait for the turn, measure, print the record."""
    contest = make()
    print("ready", flush=True)
    sys.stdin.readline()
    contest.measure()
    print(json.dumps(contest.record), flush=True)


# ---------------------------------------------------------------------- processes
def _batch(names: Sequence[str], until: float) -> list[dict[str, Any]]:
    """The records of models that compile side by side and are measured one by one."""
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder, str(k)) for k in range(len(names))]
        started = [_start(name, log) for name, log in zip(names, logs, strict=True)]
        late = _wait(started, until)
        return [_record(name, process, log, until, process in late)
                for name, process, log in zip(names, started, logs, strict=True)]


def _start(name: str, log: Path) -> subprocess.Popen[str]:
    """The calling script with the same words, for one model."""
    with log.open("w") as errors:
        return subprocess.Popen([sys.executable, *sys.argv, "--row", name], text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)


def _wait(processes: Collection[Any], until: float) -> list[Any]:
    """Wait until all have said that they are ready, have ended, or the time is over. Ends those
    that are late, and returns them."""
    waiting = [Thread(target=process.stdout.readline, daemon=True) for process in processes]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join(max(0.0, until - time.monotonic()))
    late = [p for thread, p in zip(waiting, processes, strict=True) if thread.is_alive()]
    for process in late:
        process.kill()
    return late


def _record(
    name: str, process: Any, log: Path, until: float, is_late: bool
) -> dict[str, Any]:
    """What a process measured, with what it said runs eagerly; its last error otherwise."""
    if is_late:
        return {"name": name, "problem": _too_late(log, "compile")}
    try:
        text, _ = process.communicate("go\n", timeout=max(5.0, until - time.monotonic()))
        return {**json.loads(text.splitlines()[-1]), "eagerly": _eager_nodes(log)}
    except subprocess.TimeoutExpired:
        process.kill()
        return {"name": name, "problem": _too_late(log, "measure")}
    except (BrokenPipeError, IndexError, ValueError):
        return {"name": name, "problem": _problem(process, log)}


def told(who: str, seconds: float) -> None:
    """Say in a model's own process how long a contestant took to its first result, which is shown
    if there is no time for the others."""
    print(f"{TOLD}{who} {seconds:.0f} s", file=sys.stderr, flush=True)


def _too_late(log: Path, work: str) -> str:
    """That there was no time for some work, and who had compiled."""
    done = [line.removeprefix(TOLD) for line in log.read_text().splitlines()
            if line.startswith(TOLD)]
    return f"no time was left to {work}; first results: {', '.join(done) or 'none'}"


def _problem(process: Any, log: Path) -> str:
    """The last error that an ended process told, to its end; else its status and last line."""
    status = process.wait()
    lines = [line for line in log.read_text().splitlines() if line.strip()]
    if errors := [k for k, line in enumerate(lines) if "Error" in line]:
        return " ".join(lines[errors[-1]:])[:400]
    how = f"ended with status {status}"
    return f"{how}: {lines[-1]}"[:400] if lines else how


def _eager_nodes(log: Path) -> list[str]:
    """What Strata said runs eagerly."""
    return sorted({line[:300] for line in log.read_text().splitlines()
                   if line.startswith("strata:") and "eagerly" in line})
