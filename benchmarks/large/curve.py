"""How the time to compile grows with the number of nodes: one row per model, one column per step.

    python benchmarks/large/curve.py transformer:25,50,100,200 convolutions:100,200,400
    python benchmarks/large/curve.py model.onnx [...]

Every model is compiled for the CPU in a process of its own, without a cache of compiled code. Times
are CPU seconds, of helper processes too, so that other work on the machine matters little. `us`
columns are microseconds per node: they stay level where time is linear. The peak is that of the
process's resident memory. `--passes` adds a table of the time of every pass.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step

WIDTHS = {"transformer": 32, "convolutions": 16, "chain": 64, "perceptron": 256}
"""So small that computing with the weights takes no time."""

Row = dict[str, Any]


def cpu_seconds() -> float:
    """CPU time of this process and of its helpers that have ended."""
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(p.ru_utime + p.ru_stime for p in parts)


# ---------------------------------------------------------------------- one model, in this process
@dataclass
class Clock:
    """An instrument: the CPU time of every pass. What is between passes is verification."""

    passes: dict[str, float] = field(default_factory=dict[str, float])
    started: float = 0.0
    wants_changes = False

    def report(self, phase: str) -> None: ...

    def count(self, done: int, total: int, seconds: float | None = None) -> None: ...

    def start(self, state: State) -> None: ...

    def finish(self, state: State) -> None: ...

    def emitted(self, level: str, text: str, seconds: float) -> None: ...

    def before(self, step: Step, state: State) -> None:
        self.started = cpu_seconds()

    def after(self, step: Step, state: State, seconds: float, changed: bool) -> None:
        spent = cpu_seconds() - self.started
        self.passes[step.name] = self.passes.get(step.name, 0.0) + spent


def measure(path: str) -> Row:
    """Compile a model; the seconds of every step."""
    import onnx

    from compiler.instrument.timing import count_operations
    from compiler.options import CompileOptions
    from compiler.pipeline.driver import Compiler
    from compiler.programs.collection import rare_collections

    nodes = len(onnx.load(path, load_external_data=False).graph.node)
    clock = Clock()
    compiler = Compiler(path, CompileOptions(cache="off"), [clock])  # type: ignore[list-item]
    with rare_collections():  # as `compile` does
        marks = [cpu_seconds()]
        state = compiler.read()
        operations = count_operations(state.module)
        marks.append(cpu_seconds())
        compiler.run(state, compiler.plan(state, None))
        marks.append(cpu_seconds())
        compiler.emit(state, "llvm")
        marks.append(cpu_seconds())
        compiler.load(state)
        marks.append(cpu_seconds())
    read, lower, emit, load = (b - a for a, b in pairwise(marks))
    return {"model": Path(path).stem, "nodes": nodes, "operations": operations, "import": read,
            "lower": lower, "emit": emit, "llvm": max(load - emit, 0.0), "passes": clock.passes,
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


# ---------------------------------------------------------------------- all models, the tables
def measured(path: Path) -> Row:
    """`measure` in a process of its own."""
    command = [sys.executable, __file__, "--one", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{path} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def tables(rows: Sequence[Row], with_passes: bool) -> str:
    """Markdown."""
    lines = ["| model | nodes | import s | lower s | emit s | LLVM s | all s | import us/node "
             "| lower us/node | all us/node | peak MB |", "|---|" + "---:|" * 10]
    for row in rows:
        parts = [row[k] for k in ("import", "lower", "emit", "llvm")]
        each = [1e6 * s / row["nodes"] for s in (parts[0], parts[1], sum(parts))]
        lines.append(" | ".join([
            f"| {row['model']}", str(row["nodes"]), *(f"{s:.2f}" for s in (*parts, sum(parts))),
            *(f"{s:.0f}" for s in each), f"{row['peak']:.0f} |"]))
    if with_passes:
        names = list(dict.fromkeys(name for row in rows for name in row["passes"]))
        lines += ["", "CPU seconds per pass (a pass that runs twice: both together):", "",
                  "| pass | " + " | ".join(row["model"] for row in rows) + " |",
                  "|---|" + "---:|" * len(rows)]
        for name in names:
            cells = [f"{row['passes'].get(name, 0.0):.2f}" for row in rows]
            lines.append(" | ".join([f"| {name}", *cells]) + " |")
    return "\n".join(lines)


def paths_of(wanted: str, folder: Path) -> list[Path]:
    """The files of `model.onnx`, or of `KIND:COUNT,COUNT...`, which are made."""
    if wanted.endswith(".onnx"):
        return [Path(wanted)]
    from models import make

    kind, _, counts = wanted.partition(":")
    found = [folder / f"{kind}-{count}.onnx" for count in counts.split(",")]
    for path in found:
        make(kind, path, int(path.stem.partition("-")[2]), WIDTHS[kind])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--passes", action="store_true", help="add the time of every pass")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one)))
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = [p for wanted in args.models for p in paths_of(wanted, Path(folder))]
        print(tables([measured(p) for p in paths], args.passes))


if __name__ == "__main__":
    main()
