"""How much memory compiling takes beside the weights.

    python benchmarks/large/memory.py transformer --gigabytes 4 --folder /somewhere/with/space
    python benchmarks/large/memory.py model.onnx

The model is compiled for the CPU in a process of its own, without a cache of compiled code, and is
run once afterwards. Peaks are the kernel's own high-water mark of that process's resident memory
(VmHWM): everything counts that it has in memory at one time, also pages of mapped weights that it
has touched and that the system could take back. What Python and the libraries take is in it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from models import make

KINDS = {"transformer": (2048, 12 * 2048**2 * 4), "perceptron": (4096, 4096**2 * 4)}
"""Width, and about how many bytes of weights one layer has."""

Row = dict[str, Any]


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def resident_mb() -> tuple[float, float]:
    """What is in memory now: the process's own, and mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {key: value.split()[0] for key, _, value in (line.partition(":") for line in lines)
             if key in ("RssAnon", "RssFile")}
    return int(found["RssAnon"]) * 1024 / 1e6, int(found["RssFile"]) * 1024 / 1e6


def measure(path: str) -> list[Row]:
    """Compile and run a model; after every step the CPU seconds it took, and memory."""
    rows: list[Row] = []
    started = time.process_time()

    def step(name: str) -> None:
        nonlocal started
        now = time.process_time()
        own, mapped = resident_mb()
        rows.append({"step": name, "seconds": now - started, "peak": peak_mb(), "own": own,
                     "mapped": mapped})
        started = now

    from compiler.options import CompileOptions
    from compiler.pipeline.driver import Compiler

    compiler = Compiler(path, CompileOptions(cache="off", threads=1))
    step("start")
    state = compiler.read()
    step("import")
    compiler.run(state, compiler.plan(state, None))
    step("lower")
    executable = compiler.load(state)
    del state, compiler
    step("load")
    executable.run([zeros(path)])
    step("first run")
    return rows


def zeros(path: str) -> Any:
    """The only input of one of these models, with 1 for names."""
    import numpy as np
    import onnx

    [value] = onnx.load(path, load_external_data=False).graph.input
    return np.zeros([d.dim_value or 1 for d in value.type.tensor_type.shape.dim], np.float32)


def table(name: str, rows: list[Row], weights: float) -> str:
    """Markdown. What counts is the peak until the model is loaded."""
    peak = rows[-2]["peak"]
    beside = peak - 1.3 * weights
    lines = [f"{name}: {weights:.0f} MB of weights; compiling peaks at {peak:.0f} MB, which is "
             f"{peak / weights:.2f} times the weights, or 1.3 times and {beside:+.0f} MB", "",
             "| step | CPU s | own MB | mapped MB | peak so far MB |",
             "|---|---:|---:|---:|---:|"]
    lines += [f"| {r['step']} | {r['seconds']:.1f} | {r['own']:.0f} | {r['mapped']:.0f} | "
              f"{r['peak']:.0f} |" for r in rows]
    return "\n".join(lines)


def report(path: Path) -> str:
    done = subprocess.run([sys.executable, __file__, "--one", str(path)], capture_output=True,
                          text=True)
    if done.returncode:
        raise SystemExit(f"{path} failed:\n{done.stderr}")
    files = [path, path.with_suffix(".weights")]
    size = sum(f.stat().st_size for f in files if f.exists()) / 1e6
    return table(path.name, json.loads(done.stdout.splitlines()[-1]), size)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help=f"a file, or one of {', '.join(KINDS)}")
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--align", type=int, default=4096, help="see models.py")
    parser.add_argument("--folder", type=Path, help="where to make the model; default: temporary")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one)))
    elif args.model in KINDS:
        width, layer = KINDS[args.model]
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            path = Path(folder) / f"{args.model}.onnx"
            make(args.model, path, round(args.gigabytes * 1e9 / layer), width, args.align)
            print(report(path))
    else:
        print(report(Path(args.model)))


if __name__ == "__main__":
    main()
