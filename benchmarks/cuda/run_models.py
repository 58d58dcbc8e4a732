"""Whole models on the GPU: right, against onnxruntime on the CPU, and how fast.

    python benchmarks/cuda/run_models.py MODEL.onnx ... [--dim batch=8] [--precision f32|tf32]
    python benchmarks/cuda/run_models.py --interpret MODEL.onnx      anywhere, untimed and slow

A row per model: the worst error relative to the largest value of its output; seconds to compile and
for the first run; milliseconds per replay of the CUDA graph, and per call with NumPy and with torch
tensors. A budget of seconds keeps it within a lease: models that would start later are left out.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

import compiler
from compiler.comparison import error_of
from compiler.diagnostics import StrataError
from compiler.peers import load_peer
from dialects.types import Array
from targets.cuda.launch import CudaExecutable

CALLS = 100
NEGLIGIBLE = 1e-6
WIDTHS = (24, 10, 10, 10, 12, 12, 12)


def main() -> int:
    arguments = _parse()
    started = time.perf_counter()
    _row("model", "error", "compile s", "first s", "replay ms", "numpy ms", "torch ms")
    failed = False
    for path in arguments.models:
        if time.perf_counter() - started > arguments.budget:
            _row(path.stem, "left out: the budget is spent")
            continue
        try:
            failed |= run_model(path, arguments)
        except (StrataError, ValueError) as error:
            failed = True
            _row(path.stem, f"FAILED: {error}")
    return int(failed)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE",
                        help="value of a symbolic size in the inputs")
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--interpret", action="store_true")
    parser.add_argument("--cache", default="default", help="folder of compiled code, or off")
    parser.add_argument("--budget", type=float, default=480.0, help="seconds")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    return parser.parse_args()


def run_model(path: Path, arguments: argparse.Namespace) -> bool:
    """Print a model's row. True when its outputs are wrong."""
    start = time.perf_counter()
    executable = compiler.compile(path, target="cuda", precision=arguments.precision,
                                  cache=arguments.cache, interpret=arguments.interpret)
    compiled = time.perf_counter()
    sizes = {name: int(size) for name, _, size in (d.partition("=") for d in arguments.dim)}
    named = executable.signature.random(0, sizes)
    inputs = [named[name] for name in executable.input_names]
    outputs = executable.run(inputs)
    first = time.perf_counter()
    error = _worst(path, named, outputs)
    mark = "" if error <= arguments.tolerance else " WRONG"
    times = _times(executable.loaded, inputs)
    _row(path.stem, f"{error:.1e}{mark}", f"{compiled - start:.1f}", f"{first - compiled:.1f}",
         *times)
    return bool(mark)


def _worst(path: Path, named: Mapping[str, Array], outputs: list[Array]) -> float:
    """The largest error; what deviates by less than NEGLIGIBLE in absolute terms has none."""
    peer = load_peer("onnxruntime", str(path), len(os.sched_getaffinity(0)))
    errors = [0.0]
    for found, wanted in zip(outputs, peer.run(named), strict=True):
        error = error_of(found, wanted)
        scale = float(np.abs(np.asarray(wanted, np.float64)).max(initial=0.0))
        errors.append(0.0 if error * scale < NEGLIGIBLE else error)
    return max(errors)


def _times(loaded: object, inputs: list[Array]) -> list[str]:
    """The graph alone, and calls from Python."""
    if not isinstance(loaded, CudaExecutable):
        return []
    loaded.run(inputs)
    loaded.replay(5)
    return [f"{loaded.replay(CALLS):.3f}", f"{_per_call(lambda: loaded.run(inputs)):.3f}",
            _torch_time(loaded, inputs)]


def _torch_time(loaded: CudaExecutable, inputs: list[Array]) -> str:
    """Per call with tensors that are on the device already; empty without torch."""
    try:
        import torch
    except ImportError:
        return ""
    tensors: list[Any] = [torch.from_numpy(a).cuda() for a in inputs]
    return f"{_per_call(lambda: loaded.run(tensors), torch.cuda.synchronize):.3f}"


def _per_call(call: Callable[[], Any], finish: Callable[[], Any] = lambda: None) -> float:
    """Milliseconds per call, over many."""
    call()
    finish()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    finish()
    return 1000 * (time.perf_counter() - start) / CALLS


def _row(*cells: str) -> None:
    print("  ".join(c.ljust(w) for c, w in zip(cells, WIDTHS, strict=False)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
