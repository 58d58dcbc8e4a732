"""The first run of a library: what it takes beyond a later one, and memory, beside onnxruntime.

    STRATA_ZOO=folder python benchmarks/artifacts/first.py MODEL... --libraries DIR [--rounds N]

The folder holds `NAME.onnx` files and `models.json` (as for benchmarks/zoo), DIR the libraries that
`benchmarks/artifacts/zoo.py --keep --folder DIR` has written. Each process loads the model and runs
the first case some times, on one thread. Our processes use the file of Python beside the library
with memoryviews; those of onnxruntime use NumPy, which it imports itself. Columns:

    first      load plus first run, less the least of the later runs; processor time, the least of
               some processes
    private    what the process has written and shares with no other, after the first result
    peak       the most memory that was resident, shared pages of mapped files included
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from start import written
from zoo_option import parsed

ROOT = Path(__file__).parents[2]
HEAD = """
import json, time
def own(name, file):
    for line in open("/proc/self/" + file):
        if line.startswith(name):
            return int(line.split()[1]) << 10
def told(load):
    began = time.process_time()
    call = load()
    call()
    first = time.process_time() - began
    private = own("Private_Dirty", "smaps_rollup")
    later = 1e9
    for _ in range(CALLS):
        began = time.process_time()
        call()
        later = min(later, time.process_time() - began)
    print(json.dumps([first - later, private, own("VmHWM", "status")]))
"""
LIBRARY = """
import sys
sys.path.insert(0, FOLDER)
given = {n: memoryview(bytearray(open(f, "rb").read())).cast(c, s) for n, f, c, _, s in INPUTS}
def load():
    from NAME_numpy import Model
    model = Model(threads=1)
    return lambda: model(**given)
told(load)
"""
ONNXRUNTIME = """
import numpy as np
import onnxruntime
given = {n: np.fromfile(f, d).reshape(s) for n, f, _, d, s in INPUTS}
def load():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, given)
told(load)
"""
CALLS = 6


class Found(NamedTuple):
    """What processes have told: the least seconds, and the most bytes."""

    first: float = 1e9
    private: int = 0
    peak: int = 0

    def joined(self, other: Found) -> Found:
        return Found(min(self.first, other.first), max(self.private, other.private),
                     max(self.peak, other.peak))


def main() -> None:
    options = _options()
    models = json.loads((options.zoo / "models.json").read_text())["models"]
    cases = {m["name"]: m["cases"][0] for m in models}
    print("| model | first | first, onnxruntime | private | private, onnxruntime | ratio | peak | "
          f"peak, onnxruntime | ratio |\n|---{'|---:' * 8}|")
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = measured(name, cases[name], Path(folder), options)
        sizes = [f"{ours.private / 1e6:.1f} MB | {theirs.private / 1e6:.1f} MB | "
                 f"{ours.private / theirs.private:.2f}",
                 f"{ours.peak / 1e6:.0f} MB | {theirs.peak / 1e6:.0f} MB | "
                 f"{ours.peak / theirs.peak:.2f}"]
        print(f"| {name} | {1e3 * ours.first:.1f} ms | {1e3 * theirs.first:.1f} ms | "
              f"{' | '.join(sizes)} |", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure first runs and memory.")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--libraries", type=Path, default=Path("artifacts"))
    parser.add_argument("--rounds", type=int, default=5)
    return parsed(parser)


def measured(
    name: str, case: Any, folder: Path, options: argparse.Namespace
) -> tuple[Found, Found]:
    """Ours and onnxruntime's, in turns."""
    given = written(case, folder)
    head = (f"FOLDER, MODEL, CALLS = {str(options.libraries.resolve())!r}, "
            f"{str(options.zoo / name)!r} + '.onnx', {CALLS}\nINPUTS = {given!r}\n{HEAD}")
    os.sync()  # pages of a new file count as memory of a process until they are written
    ours, theirs = Found(), Found()
    for _ in range(options.rounds):
        ours = ours.joined(_told(head + LIBRARY.replace("NAME", name)))
        theirs = theirs.joined(_told(head + ONNXRUNTIME))
    return ours, theirs


def _told(code: str) -> Found:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", code], check=True, env=environment,
                          capture_output=True, text=True)
    return Found(*json.loads(done.stdout))


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "zoo")]
    main()
