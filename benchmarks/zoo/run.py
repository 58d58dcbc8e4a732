"""Real models through the whole compiler: one table of what works, and how fast.

    STRATA_ZOO=folder python benchmarks/zoo/run.py [--models a,b] [--columns cpu,speed]

The folder holds `NAME.onnx` files; `models.json`, beside them or named by --models-json, describes
their inputs and tolerances. Results are kept in --results and merged with what is there, so that
the table can be made in parts. With --resume, the cells of the page -o are kept, too, and only what
neither has is measured: a run that was broken off, or one of another day, goes on where it ended.
Exit status: 0 when every cell is well, 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from columns import COLUMNS

from compiler.faults import versions

VARIABLE = "STRATA_ZOO"
HERE = Path(__file__).parent
INTERPRETED = ("ppocr_v2_cls", "magika", "silero_v6_no_if")
"""What Triton's interpreter can do in minutes."""
HEADINGS = {
    "cpu": "cpu: cases, error", "checked": "cpu with `--check`",
    "strategies": "cpu, `--strategy` per-op and block: cases, error",
    "reference": "reference: cases, error",
    "verify": "verify: executions", "ring": "in a ring: executions",
    "kernels": "kernels that keep every bit in the ring; passes that round others",
    "provenance": "nodes, operations and lines with their origin",
    "machine code": "lines of assembly, PTX and SASS with their origin", "cubins": "cuda: cubins",
    "interpret": "Triton's interpreter",
    "gpu": "GPU: cases, error, time of a graph replay",
    "speed": "strata / onnxruntime", "memory": "memory: compile, run / onnxruntime",
    "compile": "cold compile", "graph": "`lower --to graph`",
}
FAILED = "**FAIL**"
NOTES = """\
- cpu, reference, interpreter: outputs against onnxruntime, within each model's measured tolerance;
  all cases run on one compiled model, the interpreter on the first. The error is the largest
  deviation over the largest magnitude of an output. Where onnxruntime itself leaves the tolerance
  around the model computed in f64 and Strata does not, the cell says so. Weak: the model has
  constant weights or nearly constant outputs, so that agreement says little about numbers.
- cpu with `--check`: as cpu, compiled so that each access looks whether it stays inside its buffer.
- `--strategy`: as cpu, compiled per operator, and by blocks; the column cpu is the whole graph.
- verify: `verify --target cpu` on the first case; how many executions there were, one after every
  pass that changed something and one of the native code.
- in a ring: `verify --ring`, where all levels and the CPU's code must agree bit for bit.
- kernels: those of the CPU with AVX2. A kernel keeps every bit if none of its nodes went through a
  rewrite that rounds ([the table of passes](../../docs/ring.md#what-passes-keep)); found while
  compiling, without execution.
- origins: nodes of the model without a kernel or a reason why none is left; the least share of
  operations of a level, and of lines of LLVM or Triton, that name their nodes; then the shares of
  lines of assembly (avx2), PTX and SASS (sm_90).
- GPU: as cpu, on the first NVIDIA GPU; the time is that of the last case, from a CUDA graph.
- cubins: kernels compiled for sm_90 with Triton, on a machine without a GPU, without a cache.
- strata / onnxruntime: median CPU time of a call on one thread each, in turns; below 1 Strata is
  faster.
- memory: the most that a process holds, its libraries and the weights included: while it
  compiles, while it then runs all cases / while onnxruntime loads the model and runs them.
- cold compile: a fresh process, from the import of the compiler to a callable, without a cache.
"""


@dataclass(frozen=True)
class Results:
    """Cells by model and column, kept in a file."""

    file: Path
    cells: dict[str, dict[str, dict[str, Any]]]

    @staticmethod
    def load(file: Path) -> Results:
        return Results(file, json.loads(file.read_text()) if file.exists() else {})

    def put(self, model: str, column: str, cell: dict[str, Any]) -> None:
        self.cells.setdefault(model, {})[column] = cell
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.cells, indent=1) + "\n")

    def add_page(self, text: str) -> None:
        """Add the cells of a page's table that are well; what is in the file stays."""
        columns = {heading: column for column, heading in HEADINGS.items()}
        rows = [[cell.strip() for cell in line.strip("|").split("|")]
                for line in text.splitlines() if line.startswith("| ")]
        for head, (model, *cells) in zip(rows[:1] * len(rows), rows[1:], strict=False):
            for heading, cell in zip(head[1:], cells, strict=True):
                if cell and cell != FAILED and heading in columns:
                    self.cells.setdefault(model, {}).setdefault(
                        columns[heading], {"ok": True, "text": cell})

    def has(self, model: str, column: str) -> bool:
        """Whether a cell is known and well."""
        return self.cells.get(model, {}).get(column, {}).get("ok", False)

    @property
    def well(self) -> bool:
        return all(cell["ok"] for row in self.cells.values() for cell in row.values())

    def table(self, order: Sequence[str]) -> str:
        """The table in Markdown, models in this order, with what went wrong below it."""
        measured = {column for row in self.cells.values() for column in row}
        columns = [column for column in HEADINGS if column in measured]
        rows = ["| model | " + " | ".join(HEADINGS[c] for c in columns) + " |",
                "|---" * (len(columns) + 1) + "|"]
        for model, cells in [(m, self.cells[m]) for m in order if m in self.cells]:
            texts = [_short(cells.get(column)) for column in columns]
            rows.append(f"| {model} | " + " | ".join(texts) + " |")
        faults = [f"- {model}, {column}: {' '.join(cell['text'].split())}"
                  for model, cells in self.cells.items() for column, cell in cells.items()
                  if not cell["ok"]]
        return "\n".join([*rows, *(["", "What failed:", "", *faults] if faults else [])]) + "\n"


def _short(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ""
    return cell["text"] if cell["ok"] else FAILED


def measure(column: str, model: Path, entry: Mapping[str, Any], limit: float) -> dict[str, Any]:
    """A cell, from a process of its own; what goes wrong there is a cell too."""
    command = [sys.executable, str(HERE / "columns.py"), column, str(model.resolve())]
    with tempfile.TemporaryDirectory() as folder:  # reproducers go there
        try:
            done = subprocess.run(command, input=json.dumps(entry), text=True, timeout=limit,
                                  capture_output=True, cwd=folder, check=False,
                                  env=environment())
        except subprocess.TimeoutExpired:
            return {"ok": False, "text": f"takes more than {limit:.0f} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"ok": False, "text": f"exit status {done.returncode}: {last}"}
    return json.loads(done.stdout.splitlines()[-1])


def environment() -> dict[str, str]:
    """Ours, with this checkout to import from; Python may keep its bytecode, as it does by default.

    NumPy's matrix products, which the interpreters use, get one thread: on a busy machine their
    threads wait for each other.
    """
    paths = [str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    one = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    ours = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))} | one
    return {name: value for name, value in ours.items() if name != "PYTHONDONTWRITEBYTECODE"}


def report(results: Results, order: Sequence[str], note: str) -> str:
    machine = f"{_processor()}, {os.cpu_count()} CPUs, {platform.system()}"
    measured = {column for row in results.cells.values() for column in row}
    columns = ",".join(column for column in HEADINGS if column in measured)
    return "\n".join([
        "# The zoo: what works, and how fast", "",
        f"Made by `python benchmarks/zoo/run.py --columns \"{columns}\"` on {machine};",
        f"{', '.join(versions())}.",
        f"Each cell is a process of its own, one after the other. {note}".rstrip(), "",
        results.table(order), NOTES])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", metavar="A,B", help="default: all that models.json describes")
    parser.add_argument("--columns", metavar="A,B",
                        default=",".join(c for c in HEADINGS if c != "gpu"),
                        help=f"of {', '.join(COLUMNS)}")
    parser.add_argument("--models-json", metavar="FILE", type=Path,
                        help=f"default: models.json in ${VARIABLE}")
    parser.add_argument("--results", metavar="FILE", type=Path, default=Path("build/zoo.json"))
    parser.add_argument("-o", metavar="FILE.md", dest="output", type=Path,
                        help="write the table there too")
    parser.add_argument("--resume", action="store_true",
                        help="measure only cells that neither --results nor the page -o has")
    parser.add_argument("--note", metavar="TEXT", default="",
                        help="what else to say in that file about the machine")
    parser.add_argument("--limit", metavar="SECONDS", type=float, default=900, help="for one cell")
    options = parser.parse_args()
    options.columns = options.columns.split(",")
    unknown = set(options.columns) - set(COLUMNS)
    if options.resume and options.output is None:
        parser.error("--resume goes on with a page; -o names it")
    if unknown:
        parser.error(f"no column {', '.join(unknown)}; there are {', '.join(COLUMNS)}")
    return options


def fill(
    results: Results, folder: Path, entries: Mapping[str, Any], options: argparse.Namespace
) -> None:
    """Measure the cells that are asked for; what is not there is told and left out."""
    for name in entries if options.models is None else options.models.split(","):
        model = folder / f"{name}.onnx"
        if name not in entries or not model.is_file():
            print(f"{name}: left out, {model} or its entry in models.json is not there")
            continue
        for column in options.columns:
            if column == "interpret" and name not in INTERPRETED:
                continue
            if options.resume and results.has(name, column):
                continue
            cell = measure(column, model, entries[name], options.limit)
            results.put(name, column, cell)
            print(f"{name:22} {column:10} {'' if cell['ok'] else 'FAIL '}{cell['text']}",
                  flush=True)
            if options.output is not None:  # a run that is broken off leaves what it found
                options.output.write_text(report(results, list(entries), options.note))


def main() -> int:
    options = arguments()
    folder = os.environ.get(VARIABLE)
    if not folder:
        print(f"skipped: {VARIABLE} is unset; it must name a folder of .onnx models")
        return 0
    description: Path = options.models_json or Path(folder) / "models.json"
    if not description.is_file():
        print(f"there is no {description}; --models-json names another", file=sys.stderr)
        return 1
    entries = {m["name"]: m for m in json.loads(description.read_text())["models"]}
    results = Results.load(options.results)
    if options.resume and options.output.is_file():
        results.add_page(options.output.read_text())
    fill(results, Path(folder), entries, options)
    print("\n" + results.table(list(entries)))
    if options.output is not None:
        options.output.write_text(report(results, list(entries), options.note))
    return 0 if results.well else 1


if __name__ == "__main__":
    sys.exit(main())
