"""Measures models as libraries: sizes, start, memory, speed; beside this process and onnxruntime.

    python benchmarks/artifacts/run.py MODEL... [--threads N] [--rounds N] [--folder DIR]

For each model, `compile -o` writes a library with its constants inside. Then are measured:

    code       bytes of the library beside its constants
    start      from the start of a process to its first result: of the example in C, of Python with
               `compiler.load`, and of onnxruntime; the least of a few processes, in turns
    private    bytes that this process has written and shares with no other, after the first result
    call       the least time of a call, all three in turns in one process; "here" is the model
               that `compiler.compile` made. With one thread it is processor time, which other
               programs change less

Inputs are random, and sizes that a model leaves open are 2 unless --dim fixes them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
WAYS = ("library", "onnxruntime")


def main() -> None:
    options = _options()
    if options.way:
        print(json.dumps(first_result(options)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    print("| model | code | constants | start C | start Python | start ort | private | private ort "
          "| call / here | ort / call |\n|---|" + "---:|" * 9)
    for model in options.models:
        print(row(model, options), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure libraries.")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--dim", action="append", default=[])
    parser.add_argument("--folder", type=Path, default=Path("artifacts"))
    parser.add_argument("--way", choices=WAYS)
    return parser.parse_args()


# ---------------------------------------------------------------------- one model
def row(model: Path, options: argparse.Namespace) -> str:
    """A line of the table."""
    library = options.folder / f"{model.stem}.so"
    dims = [word for dim in options.dim for word in ("--dim", dim)]
    _run([sys.executable, "-m", "compiler", "compile", model, "-o", library, *dims])
    os.sync()  # pages of a new file count as memory of a process until they are written
    from targets.library_file import read_facts

    facts = read_facts(str(library))
    held = facts["constants"]["bytes"]
    program = _example(library, facts["name"])
    starts: dict[str, list[float]] = {"C": [], "library": [], "onnxruntime": []}
    private: dict[str, int] = {}
    for _ in range(5):
        starts["C"].append(_seconds([program]))
        for way in WAYS:
            words = [sys.executable, __file__, library if way == "library" else model, "--way",
                     way, "--threads", str(options.threads)]
            started = time.perf_counter()
            found = json.loads(_run(words))
            starts[way].append(found["ready"] - (time.time() - time.perf_counter() + started))
            private[way] = found["private"]
    here, ours, theirs = calls(model, library, options)
    times = " | ".join(f"{1e3 * min(starts[k]):.0f} ms" for k in ("C", *WAYS))
    memory = " | ".join(f"{private[way] / 1e6:.1f} MB" for way in WAYS)
    return (f"| {model.stem} | {(library.stat().st_size - held) / 1e3:.0f} kB | {held / 1e6:.1f} "
            f"MB | {times} | {memory} | {ours / here:.3f} | {theirs / ours:.2f} |")


def _example(library: Path, name: str) -> Path:
    program = library.with_suffix("")
    _run(["cc", "-O2", "-o", program, library.with_name(f"{name}_main.c"), library,
          f"-Wl,-rpath,{library.parent.resolve()}"])
    return program.resolve()


def _seconds(words: list[Any]) -> float:
    started = time.perf_counter()
    _run(words)
    return time.perf_counter() - started


def _run(words: list[Any]) -> str:
    done = subprocess.run(list(map(str, words)), cwd=Path.cwd(), capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


# ---------------------------------------------------------------------- a process that starts
def first_result(options: argparse.Namespace) -> dict[str, Any]:
    """When the first result is there, and the private bytes of this process then."""
    call = _call(options.way, options.models[0], options.threads)
    call()
    ready = time.time()
    text = Path("/proc/self/smaps_rollup").read_text()
    private = sum(int(line.split()[1]) for line in text.splitlines()
                  if line.startswith("Private_Dirty"))
    return {"ready": ready, "private": private << 10}


def _call(way: str, model: Path, threads: int) -> Any:
    import numpy as np

    if way == "library":
        import compiler

        exe = compiler.load(model, threads=threads)
        arrays = list(exe.signature.random(0, {}).values())
        return lambda: exe.run(arrays)
    import onnxruntime

    settings: Any = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    session: Any = onnxruntime.InferenceSession(str(model), settings,
                                                providers=["CPUExecutionProvider"])
    dtypes = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_,
              "tensor(int32)": np.int32}
    inputs = {i.name: np.ones([n if isinstance(n, int) else 2 for n in i.shape], dtypes[i.type])
              for i in session.get_inputs()}
    return lambda: session.run(None, inputs)


def calls(model: Path, library: Path, options: argparse.Namespace) -> list[float]:
    """The least seconds of a call here, of the library, and of onnxruntime, in turns."""
    import compiler

    dims = {name: int(size) for name, _, size in (d.partition("=") for d in options.dim)}
    exe = compiler.compile(str(model), threads=options.threads, dims=dims)
    arrays = list(exe.signature.random(0, {}).values())
    loaded = compiler.load(library, threads=options.threads)
    ways = [lambda: exe.run(arrays), lambda: loaded.run(arrays),
            _call("onnxruntime", model, options.threads)]
    took: list[list[float]] = [[], [], []]
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    for round_ in range(options.rounds + 2):
        for way, times in zip(ways, took, strict=True):
            started = clock()
            way()
            if round_ > 1:
                times.append(clock() - started)
    return list(map(min, took))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
