"""Which models of a folder become libraries, and whether these compute what this process computes.

    STRATA_ZOO=folder python benchmarks/artifacts/zoo.py [MODEL...] [--case N] [--folder DIR]

The folder holds `NAME.onnx` files and `models.json`, which describes their inputs (as for
benchmarks/zoo). For each model, `compile -o` writes a library, `compiler.load` reads it, and all
cases run on it. Outputs must be those of the model that `compiler.compile` makes here, bit by bit.
Exit status: 0 if all are, 1 otherwise.

With `--rounds`, the first case is called in both ways in turns, at least so many times and for a
second. The column "speed" is the least time of a call here over that of the library: processor time
on one thread, which other programs change less. The last line is the geometric mean.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from zoo_option import parsed

ROOT = Path(__file__).parents[2]
LIMIT = 1500
"""Seconds for one model."""


def main() -> int:
    options = _options()
    if options.alone:
        print(row(options.models[0], options))
        return 0
    described = _described(options.zoo)
    names = options.models or [n for n in described if (options.zoo / f"{n}.onnx").exists()]
    options.folder.mkdir(parents=True, exist_ok=True)
    print("| model | code | constants | cases | speed | outputs |\n|---|---:|---:|---:|---:|---|")
    bad, speeds = 0, list[float]()
    for name in sorted(names, key=lambda n: (options.zoo / f"{n}.onnx").stat().st_size):
        line = _alone(name, options)
        bad += not line.endswith("equal |")
        speeds += [float(text) for text in line.split("|")[5:6] if text.strip()]
        print(line, flush=True)
    if speeds:
        print(f"| mean | | | | {statistics.geometric_mean(speeds):.3f} | |")
    return int(bad > 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Ship the models of a folder.")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--folder", type=Path, default=Path("artifacts"))
    parser.add_argument("--case", type=int, help="one case instead of all")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=0, help="measure that many calls at least")
    parser.add_argument("--keep", action="store_true", help="keep the libraries")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    return parsed(parser)


def _described(zoo: Path) -> dict[str, Any]:
    return {m["name"]: m for m in json.loads((zoo / "models.json").read_text())["models"]}


def _alone(name: str, options: argparse.Namespace) -> str:
    """The row of a model, from a process that may fail without ending this one."""
    words = [sys.executable, __file__, name, "--alone", "--zoo", options.zoo, "--folder",
             options.folder, "--threads", options.threads, "--rounds", options.rounds,
             *["--keep"] * options.keep]
    if options.case is not None:
        words += ["--case", options.case]
    try:
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False,
                              timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return f"| {name} | | | | | took more than {LIMIT} s |"
    lines = done.stdout.splitlines() if done.returncode == 0 else done.stderr.splitlines()
    return lines[-1] if done.returncode == 0 else f"| {name} | | | | | {' '.join(lines[-3:])} |"


def row(name: str, options: argparse.Namespace) -> str:
    """Ship a model, run it in both ways, and compare."""
    from inputs import make_inputs

    import compiler
    from targets.library_file import read_facts

    model, library = options.zoo / f"{name}.onnx", options.folder / f"{name}.so"
    made = subprocess.run([sys.executable, "-m", "compiler", "compile", model, "-o", library],
                          capture_output=True, text=True, check=False)
    if made.returncode:
        raise SystemExit(made.stderr)
    facts = read_facts(str(library))
    size, held = library.stat().st_size, facts["constants"]["bytes"]
    cases = _described(options.zoo)[name]["cases"]
    chosen = cases if options.case is None else [cases[options.case]]
    loaded = compiler.load(library, threads=options.threads)
    exe = compiler.compile(str(model), threads=options.threads)
    unlike: list[str] = []
    for case in chosen:
        inputs = make_inputs(case)
        given = [inputs[n] for n in exe.input_names]
        for output, found, wanted in zip(exe.output_names, loaded(*given), exe(*given),
                                         strict=True):
            if not _same(found, wanted):
                unlike.append(output)
    speed = _speed(exe, loaded, make_inputs(cases[0]), options) if options.rounds else ""
    if not options.keep:
        for file in options.folder.glob(f"{name}*"):
            file.unlink()
    return (f"| {name} | {(size - held) / 1e3:.0f} kB | {held / 1e6:.1f} MB | {len(chosen)} | "
            f"{speed} | {'unlike: ' + ', '.join(unlike) if unlike else 'equal'} |")


def _speed(exe: Any, loaded: Any, inputs: Any, options: argparse.Namespace) -> str:
    """How many calls of the library take the time of one here."""
    given = [inputs[n] for n in exe.input_names]
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    took: tuple[list[float], list[float]] = [], []
    until = time.perf_counter() + 1
    while len(took[0]) < options.rounds or time.perf_counter() < until:
        for way, times in zip((exe, loaded), took, strict=True):
            started = clock()
            way(*given)
            times.append(clock() - started)
    return f"{min(took[0]) / min(took[1]):.3f}"


def _same(found: Any, wanted: Any) -> bool:
    return (found.dtype, found.shape, found.tobytes()) == (
        wanted.dtype, wanted.shape, wanted.tobytes())


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "zoo")]
    raise SystemExit(main())
