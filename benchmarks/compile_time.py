"""How long two checkouts take to compile models: cold, from a fresh process to the first result.

    python benchmarks/compile_time.py OLD NEW [--models resnet50,bert_base] [--rounds 5]
                                              [--threads 1] [--folder build/models]

Each round runs every model once in a process of each checkout, in turns, so that other work on
the machine slows both. A checkout runs in its own `.venv` if it has one, else in the environment of
this script. Nothing is cached but Python's bytecode, which a first round writes and does not count;
`STRATA_CACHE` is an empty folder for each process.

There is a row for each model and phase: the import of `compiler`, `compile` without a cache, and
the first call. `whole` is their sum. The columns are medians of wall time and of processor time
(user and system, helper processes included) in seconds, and the ratio new / old. The peak is that
of the resident memory.
Results of the two checkouts are compared. A last line says which models exceed `--goal`, the ratio
of the wall time of `whole`; the status is then 1.

The models are those of `large/networks.py`, made from seeds, and PP-OCRv4's detector, which
`examples/ocr` fetches. They are kept in the folder. Without a network, copy the detector's file
`ch_PP-OCRv4_det_infer.onnx` to FOLDER/detector.onnx first, from another machine or from the package
rapidocr-onnxruntime 1.4.4 (in `rapidocr_onnxruntime/models`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PHASES = ("import", "compile", "first call", "whole")
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "resnet50": [(1, 3, 224, 224)], "bert_base": [(1, 128), (1, 128)],
    "transformer": [(1, 8, 256)], "recurrent": [(1, 40, 128)], "detector": [(1, 3, 320, 320)]}
"""The shapes of each model's inputs in the first call."""

Row = dict[str, Any]


# ---------------------------------------------------------------------- one model, in this process
def measure(path: str, threads: int) -> Row:
    """Compile a model and call it; wall and processor seconds of every phase."""
    marks = [_now()]
    import compiler

    marks.append(_now())
    exe = compiler.compile(path, target="cpu", threads=threads, cache="off")
    marks.append(_now())
    import numpy as np

    inputs = [np.ones(shape, np.int64 if type_.startswith("i64") else np.float32)
              for shape, type_ in zip(SHAPES[Path(path).stem], exe.input_types, strict=True)]
    results = exe.run(inputs)
    marks.append(_now())
    spans = [*pairwise(marks), (marks[0], marks[-1])]
    times = {phase: [b - a for a, b in zip(start, end, strict=True)]
             for phase, (start, end) in zip(PHASES, spans, strict=True)}
    return {"times": times, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "result": [float(np.abs(a.astype(np.float64)).sum()) for a in results]}


def _now() -> tuple[float, float]:
    """Wall time, and processor time of this process and of its helpers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(u.ru_utime + u.ru_stime for u in used)


# ---------------------------------------------------------------------- both checkouts in turns
def measured(checkout: Path, model: Path, threads: int) -> Row:
    """`measure` in a new process of a checkout."""
    own = checkout / ".venv" / "bin" / "python"
    command = [str(own if own.exists() else sys.executable), str(Path(__file__).resolve()),
               "--one", str(model.absolute()), "--threads", str(threads)]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory(prefix="strata-cache-") as empty:
        environment |= {"PYTHONPATH": str(checkout), "STRATA_CACHE": empty}
        done = subprocess.run(command, capture_output=True, text=True, cwd=checkout, check=False,
                              env=environment)
    if done.returncode:
        raise SystemExit(f"{model.stem} failed in {checkout}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def table(name: str, old: Sequence[Row], new: Sequence[Row]) -> list[str]:
    """The rows of a model."""
    lines: list[str] = []
    for phase in PHASES:
        cells: list[str] = []
        for kind in range(2):
            a, b = (statistics.median(run["times"][phase][kind] for run in runs)
                    for runs in (old, new))
            cells += [f"{a:.2f}", f"{b:.2f}", f"{b / a:.2f}" if a else ""]
        peaks = [f"{statistics.median(run['peak'] for run in runs):.0f}" for runs in (old, new)]
        cells += peaks if phase == "whole" else ["", ""]
        lines.append(f"| {name} | {phase} | {' | '.join(cells)} |")
    return lines


def ratio(old: Sequence[Row], new: Sequence[Row]) -> float:
    """New / old of the medians of the whole wall time."""
    a, b = (statistics.median(run["times"]["whole"][0] for run in runs) for runs in (old, new))
    return b / a


def compare(name: str, old: Sequence[Row], new: Sequence[Row]) -> None:
    """Raise SystemExit if the two checkouts compute different results."""
    for a, b in zip(old[-1]["result"], new[-1]["result"], strict=True):
        if abs(a - b) > 1e-3 * max(abs(a), abs(b)):
            raise SystemExit(f"{name}: the results differ, {a} and {b}")


def model_file(name: str, folder: Path) -> Path:
    """The file of a model, which is made or fetched first if it is missing."""
    path = folder / f"{name}.onnx"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    if name == "detector":
        demo: Any = _module("ocr.models", HERE.parent / "examples")
        shutil.copyfile(demo.fetch([demo.DETECTOR])[0], path)
    else:
        _module("networks", HERE / "large").make(name, path)
    return path


def _module(name: str, folder: Path) -> Any:
    """A module of a folder that is no package."""
    sys.path.insert(0, str(folder))
    return importlib.import_module(name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, nargs="?")
    parser.add_argument("new", type=Path, nargs="?")
    parser.add_argument("--models", default=",".join(SHAPES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("build/models"))
    parser.add_argument("--goal", type=float, default=0.65)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.threads)))
        return
    if args.old is None or args.new is None:
        parser.error("two checkouts are needed")
    checkouts = [args.old.resolve(), args.new.resolve()]
    print("| model | phase | wall old | wall new | ratio | CPU old | CPU new | ratio | MB old "
          "| MB new |\n|---|---|" + "---:|" * 8, flush=True)
    ratios: dict[str, float] = {}
    for name in args.models.split(","):
        path = model_file(name, args.folder)
        rounds = [[measured(checkout, path, args.threads) for checkout in checkouts]
                  for _ in range(args.rounds + 1)]
        old, new = zip(*rounds[1:], strict=True)
        compare(name, old, new)
        ratios[name] = ratio(old, new)
        print("\n".join(table(name, old, new)), flush=True)
    missed = [f"{name} {found:.2f}" for name, found in ratios.items() if found > args.goal]
    print(f"goal of {args.goal}:", f"missed by {', '.join(missed)}" if missed else "met by all")
    raise SystemExit(bool(missed))


if __name__ == "__main__":
    main()
