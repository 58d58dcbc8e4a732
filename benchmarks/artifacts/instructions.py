"""Counts instructions of a call on another machine, beside onnxruntime's there, in QEMU.

    STRATA_ZOO=folder python benchmarks/artifacts/instructions.py MODEL... --python "WORDS"

WORDS start Python for that machine, with NumPy and onnxruntime, in QEMU's user mode (7.2), such as
`qemu-aarch64 -cpu neoverse-n1 -L ROOT -E PYTHONPATH=... ROOT/usr/bin/python3` with a folder ROOT of
that machine's packages.

The folder holds `NAME.onnx` files and `models.json` (as for benchmarks/zoo). Each model becomes a
library for --triple and --features. A process calls it on the inputs of its first case, and a
plugin (count.c) counts what is executed during some calls after the first. Both ways use one
thread. Instructions are no time, but they do not depend on what else runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from zoo_option import parsed

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CALLS = 3
"""Counted calls. Two come before them, which may do more than later ones."""
LIMIT = 1500
"""Seconds of a process."""
PROGRAM = """
import contextlib
import os
import sys
import numpy as np
FOLDER, NAME, SOURCE, INPUTS, WAY, CALLS = eval(sys.stdin.read())
inputs = {n: np.fromfile(f, d).reshape(s) for n, f, d, s in INPUTS}
if WAY == "library":
    sys.path.insert(0, FOLDER)
    model = __import__(NAME + "_numpy").Model(threads=1)
    call = lambda: model(**inputs)
else:
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(SOURCE, options, providers=["CPUExecutionProvider"])
    call = lambda: session.run(None, inputs)
def mark():
    with contextlib.suppress(ProcessLookupError):  # there is no such user
        os.getpriority(os.PRIO_USER, 4242)
call()
call()
mark()
for _ in range(CALLS):
    found = call()
mark()
for number, array in enumerate(found):
    np.save(f"{FOLDER}/{WAY}{number}.npy", array)
"""


def main() -> None:
    options = _options()
    models = json.loads((options.zoo / "models.json").read_text())["models"]
    described = {m["name"]: m for m in models}
    print("| model | here | onnxruntime | onnxruntime / here | difference |\n|---|" + "---:|" * 4)
    with tempfile.TemporaryDirectory() as folder:
        plugin = Path(folder) / "count.so"
        _run(["cc", "-O2", "-shared", "-fPIC", "-o", plugin, HERE / "count.c"])
        for name in options.models:
            place = Path(folder) / name
            place.mkdir()
            print(row(name, described[name]["cases"][0], place, plugin, options), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Count instructions of models in QEMU.")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--python", type=shlex.split, required=True)
    parser.add_argument("--triple", default="aarch64-linux-gnu")
    parser.add_argument("--features", default="dotprod")
    return parsed(parser)


def row(
    name: str, case: Any, folder: Path, plugin: Path, options: argparse.Namespace
) -> str:
    """Compile a model, count both ways, and compare the results."""
    import numpy as np
    from inputs import make_inputs

    source = options.zoo / f"{name}.onnx"
    _run([sys.executable, "-m", "compiler", "compile", source, "-o", folder / f"{name}.so",
          "--triple", options.triple, "--features", options.features])
    inputs: list[tuple[str, str, str, tuple[int, ...]]] = []
    for number, (port, array) in enumerate(make_inputs(case).items()):
        array.tofile(folder / str(number))
        inputs.append((port, str(folder / str(number)), array.dtype.name, array.shape))
    counts: list[float] = []
    for way in ("library", "onnxruntime"):
        counts.append(_count((str(folder), name, str(source), inputs, way, CALLS), plugin,
                             options.python))
    difference = 0.0
    for file in folder.glob("library*.npy"):
        a = np.load(file).astype(np.float64)
        b = np.load(file.with_name(file.name.replace("library", "onnxruntime"))).astype(np.float64)
        difference = max(difference, float(np.abs(a - b).max(initial=0)
                                           / (np.abs(b).max(initial=0) or 1)))
    ours, theirs = counts
    return (f"| {name} | {ours / 1e6:.2f} M | {theirs / 1e6:.2f} M | {theirs / ours:.2f} | "
            f"{difference:.0e} |")


def _count(arguments: Any, plugin: Path, python: list[str]) -> float:
    """The instructions of a call."""
    environment = {**os.environ, "QEMU_PLUGIN": f"file={plugin}"}
    told = _run([*python, "-c", PROGRAM], repr(arguments), environment).stderr
    found = re.findall(r"^instructions: (\d+)$", told, re.MULTILINE)
    if len(found) != 2:
        raise SystemExit(f"QEMU counted nothing: {told}")
    return (int(found[1]) - int(found[0])) / CALLS


def _run(
    words: list[Any], given: str = "", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(list(map(str, words)), cwd=ROOT, capture_output=True, text=True,
                          check=False, input=given, env=environment, timeout=LIMIT)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "zoo")]
    main()
