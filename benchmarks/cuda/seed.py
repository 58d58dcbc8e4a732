"""The tuned schedules that ship with the CUDA target: of the kernels that the suite measures.

    python benchmarks/cuda/seed.py kernels build/seed              write them, at loop level
    python benchmarks/cuda/seed.py tune build/seed --seconds 600   tune them, on this device
    python benchmarks/cuda/seed.py tune build/seed --library auto  ... beside libraries
    python benchmarks/cuda/seed.py kernels build/seed --smoke      tiny sizes, without a GPU

`tune` adds to targets/cuda/tuned.sqlite what it finds for this device, and goes on with what has
not been tuned yet; with --again everything is. It can be ended and started again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TARGET = "cuda"
GROUPS = ("models", "products", "norms", "elementwise", "moves", "attention", "convolutions")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("kernels", "row", "tune"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="of groups; with `row`, a group and a row")
    parser.add_argument("--jobs", type=int, default=8, help="processes that write (default 8)")
    parser.add_argument("--seconds", type=float, default=600.0, help="of tuning (default 600)")
    parser.add_argument("--again", action="store_true", help="tune also what was tuned before")
    parser.add_argument("--library", choices=("auto", "never"), default="never",
                        help="auto: products also by cuBLAS, for those who permit it")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes on the CPU")
    parser.add_argument("-o", metavar="FILE", dest="output", type=Path, help="instead of the one "
                        "that ships")
    options = parser.parse_intermixed_args()
    return {"kernels": kernels, "row": row, "tune": tune}[options.do](options)


# ---------------------------------------------------------------------- kernels
def kernels(options: argparse.Namespace) -> int:
    """Write the kernels of all rows, each by a process of its own."""
    from rows import Setting, group

    setting = Setting(smoke=options.smoke)
    rows = [(name, row) for name in options.names or GROUPS
            for row, measure in group(name).rows(setting).items() if _in_full(measure)]
    with ThreadPoolExecutor(options.jobs) as pool:
        done = list(pool.map(lambda found: _row_process(options, found), rows))
    return 0 if all(done) else 1


def _in_full(measure: Any) -> bool:
    """Whether a row computes with the precision that all are tuned with."""
    return getattr(measure.args[0], "precision", "f32") == "f32"


def _row_process(options: argparse.Namespace, names: Sequence[str]) -> bool:
    """Whether a row's kernels were written."""
    command = [sys.executable, __file__, "row", options.folder, *names,
               *["--smoke"] * options.smoke]
    root = str(HERE.parents[1])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
    last = (done.stderr.strip().splitlines() or [""])[-1]
    print(": ".join(names), "written" if not done.returncode else f"FAIL {last}", flush=True)
    return not done.returncode


class Written(BaseException):
    """Our program of a row was asked for, and its kernels are written: nothing else is to do."""


def row(options: argparse.Namespace) -> int:
    """Make our program of a row, but write its kernels instead of compiling them."""
    import torch
    from rows import Setting, group
    from rows.kernels import Applied, Kernel
    from rows.models import backend
    from rows.programs import ours

    import compiler

    name, row = options.names
    place = options.folder / "".join(c if c.isalnum() else "_" for c in f"{name} {row}")

    def compile_(model: Any, **_: Any) -> None:
        write(model, place, "sm_90" if options.smoke else None)
        raise Written

    compiler.compile = compile_
    setting = Setting(smoke=options.smoke, interpret=options.smoke)
    measured, *_ = group(name).rows(setting)[row].args
    try:
        with torch.no_grad():
            if isinstance(measured, Kernel):
                constants = [s.make(1 + k, setting) for k, s in enumerate(measured.constants)]
                inputs = [s.make(0, setting) for s in measured.inputs]
                ours(Applied(measured.function, constants), inputs, setting)
            network = measured(options.smoke)
            half = network.module.eval().half()
            inputs = [v.half() if v.is_floating_point() else v for v in network.inputs]
            if not network.stateful:
                ours(half, inputs, setting)
            device = "cpu" if options.smoke else "cuda"
            half = half.to(device)
            half.prepare()
            backend(half, [v.to(device) for v in inputs], setting)
    except Written:
        return 0
    return 1


def write(model: Any, folder: Path, features: str | None) -> None:
    """Write a model's kernels as they are before any has a schedule, and its weights."""
    from compiler.api import model_of_argument
    from compiler.options import CompileOptions
    from compiler.pipeline.source import weight_labels
    from compiler.tuning.subject import Subject

    state = Subject(model_of_argument(model), CompileOptions(
        target=TARGET, features=features, cache="off", tuned="off")).lowered()
    folder.mkdir(parents=True, exist_ok=True)
    state.context.weights.keep_only({key for key, _ in weight_labels(state.module)})
    state.context.weights.save(folder / "weights.npz")
    (folder / "model.mlir").write_text(state.text, encoding="utf-8")


# ---------------------------------------------------------------------- tuning
def tune(options: argparse.Namespace) -> int:
    """Tune all kernels that were written, and seal what is known then."""
    from compiler.options import CompileOptions
    from compiler.tuning.database import Database
    from compiler.tuning.files import shipped_file
    from compiler.tuning.options import TuneOptions
    from compiler.tuning.tuner import Tuner

    models = sorted(map(str, options.folder.glob("*/model.mlir")))
    sealed = str(options.output or shipped_file(TARGET))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "tuned.sqlite"
        wanted = TuneOptions(seconds=options.seconds, output=work, again=options.again)
        tuner = Tuner(models, CompileOptions(target=TARGET, cache="off", library=options.library),
                      wanted)
        tuner.plain.begin_with(sealed)
        report = tuner.run()
        tuner.plain.seal(sealed)
        known = [kernel for database in (tuner.plain, *tuner.by_library.values())
                 for kernel in Database(sealed, database.description).read()]
    print("\n".join(report.lines()))
    print(f"{sealed}: {len(known)} kernels, {Path(sealed).stat().st_size // 1024} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
