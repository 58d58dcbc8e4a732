"""From the start of a process to its first result: libraries in Python, and onnxruntime.

    STRATA_ZOO=folder python benchmarks/artifacts/start.py [MODEL...] --libraries DIR [--rounds N]
        [--threads N] [--python FILE]

The folder holds `NAME.onnx` files and `models.json` (as for benchmarks/zoo), DIR the libraries that
`benchmarks/artifacts/zoo.py --keep --folder DIR` has written. Each process reads the inputs of the
first case from files, and runs the model once. Columns are the least of some processes, all ways in
turns: on one thread processor time, which other programs change less, otherwise the time on the
clock. With `--threads 0`, both take as many threads as they do unless they are told. "views" passes
memoryviews to the file of Python beside the library, which then imports no NumPy; "NumPy" passes
arrays. `--python` names the Python that is measured, of an environment that has nothing but NumPy
and onnxruntime: what else is installed may take part in each start. What Python, NumPy and
onnxruntime take before anything of a model is in the first line.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo_option import parsed

ROOT = Path(__file__).parents[2]
FORMATS = {"float32": "f", "float64": "d", "int64": "q", "int32": "i", "bool": "?", "uint8": "B",
           "float16": "H", "int8": "b"}
IMPORTS = {"Python": "pass", "import NumPy": "import numpy",
           "import onnxruntime": "import onnxruntime"}
WAYS = {
    "views": """
import ctypes, sys
sys.path.insert(0, FOLDER)
from NAME_numpy import Model
model = Model(threads=THREADS)
def view(file, format, shape):
    if 0 not in shape:
        return memoryview(bytearray(open(file, "rb").read())).cast(format, shape)
    kind = {"f": ctypes.c_float, "q": ctypes.c_int64, "?": ctypes.c_bool}[format]
    for extent in reversed(shape):
        kind *= extent
    return memoryview(kind())
model(**{n: view(f, c, s) for n, f, c, _, s in INPUTS})
""",
    "NumPy": """
import sys
import numpy as np
sys.path.insert(0, FOLDER)
from NAME_numpy import Model
model = Model(threads=THREADS)
model(**{n: np.fromfile(f, d).reshape(s) for n, f, _, d, s in INPUTS})
""",
    "onnxruntime": """
import numpy as np
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = THREADS
session = onnxruntime.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
session.run(None, {n: np.fromfile(f, d).reshape(s) for n, f, _, d, s in INPUTS})
"""}


def main() -> None:
    options = _options()
    models = json.loads((options.zoo / "models.json").read_text())["models"]
    described = {m["name"]: m for m in models}
    names = options.models or [n for n in described
                               if (options.libraries / f"{n}.so").exists()]
    alone = least(IMPORTS, options)
    print(", ".join(f"{what}: {1e3 * took:.0f} ms" for what, took in alone.items()), end="\n\n")
    print(f"| model | {' | '.join(WAYS)} | views / onnxruntime | NumPy / onnxruntime |\n|---"
          f"{'|---:' * (len(WAYS) + 2)}|")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            took = times(name, described[name]["cases"][0], Path(folder), options)
        theirs = took["onnxruntime"]
        shown = " | ".join(f"{1e3 * t:.0f} ms" for t in took.values())
        ratios = " | ".join(f"{took[way] / theirs:.2f}" for way in ("views", "NumPy"))
        print(f"| {name} | {shown} | {ratios} |", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the start of processes.")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--libraries", type=Path, default=Path("artifacts"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--python", default=sys.executable)
    return parsed(parser)


def times(name: str, case: Any, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """The least seconds of each way."""
    given = written(case, folder)
    head = (f"FOLDER, MODEL, INPUTS = {str(options.libraries.resolve())!r}, "
            f"{str(options.zoo / name)!r} + '.onnx', {given!r}\nTHREADS = {options.threads}\n")
    return least({way: head + code.replace("NAME", name) for way, code in WAYS.items()}, options)


def least(codes: Mapping[str, str], options: argparse.Namespace) -> dict[str, float]:
    """The least seconds of a process for each code, in turns."""
    found = dict.fromkeys(codes, 1e9)
    for _ in range(options.rounds):
        for what, code in codes.items():
            took = _seconds(options.python, code, options.threads == 1)
            found[what] = min(found[what], took)
    return found


def written(case: Any, folder: Path) -> list[tuple[str, str, str, str, tuple[int, ...]]]:
    """A case's inputs as files: name, file, format of `memoryview`, type of NumPy, and shape."""
    from inputs import make_inputs

    given: list[tuple[str, str, str, str, tuple[int, ...]]] = []
    for number, (port, array) in enumerate(make_inputs(case).items()):
        file = folder / str(number)
        array.tofile(file)
        given.append((port, str(file), FORMATS[array.dtype.name], array.dtype.name, array.shape))
    return given


def _seconds(python: str, code: str, of_processor: bool) -> float:
    """The time of a process: of the processor, or on the clock."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run([python, "-c", code], check=True, env=environment)
    took = time.perf_counter() - started
    if not of_processor:
        return took
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "zoo")]
    main()
