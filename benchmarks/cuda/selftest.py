"""Run hand-written kernels on the GPU, compare them with their meaning, and time graph replays.

    python benchmarks/cuda/selftest.py                on a machine with an NVIDIA GPU
    python benchmarks/cuda/selftest.py --interpret    anywhere, in Triton's interpreter, untimed

Three parts: every sample kernel of the tests at small, awkward sizes; every scalar operation; and a
few kernels at sizes where speed can be read off. The last lines say what went wrong; the exit
status is 1 if anything did.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # the tests are no installed package

from dialects.block import KernelOp, StoreOp
from dialects.block.interpret import interpret_kernel
from dialects.types import Array
from dialects.weights import WeightStore
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.launch import CudaExecutable
from tests.targets.cuda import samples
from tests.targets.cuda.samples import SAMPLES, Sample, as_model
from tests.targets.cuda.scalar_kernels import FLOAT_OPS, INTEGER_OPS, float_kernel, integer_kernel

REPLAYS = 200

LARGE = [
    (Sample(samples.GELU, {"n": 200_000}), "memory"),
    (Sample(samples.SOFTMAX, {"n": 65_536}), "memory"),
    (Sample(samples.LAYER_NORM, {"n": 131_072}), "memory"),
    (Sample(samples.TRANSPOSE, {"m": 8192, "n": 8192}), "memory"),
    (Sample(samples.matmul("f16", 128, 128, 64, columns=4096, warps=8),
            {"m": 4096, "k": 4096}), "2*4096*4096*4096"),
    (Sample(samples.matmul("bf16", 128, 256, 64, columns=4096, warps=8),
            {"m": 8192, "k": 4096}), "2*8192*4096*4096"),
]
"""Kernels with what limits them: memory, or so many floating-point operations."""


@dataclass
class Report:
    """Rows of a table as they come, and what was wrong."""

    failures: list[str]

    def row(self, *cells: str) -> None:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, (26, 12, 12, 30),
                                                                   strict=False)), flush=True)

    def check(self, name: str, error: float, limit: float, timing: str = "") -> None:
        right = error <= limit
        self.row(name, f"{error:.2e}", "ok" if right else f"WRONG > {limit:.0e}", timing)
        if not right:
            self.failures.append(f"{name}: error {error:.3g}, allowed {limit:.3g}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--interpret", action="store_true", help="in Triton's interpreter")
    parser.add_argument("--cache", type=Path, help="folder of compiled kernels")
    arguments = parser.parse_args()
    options = TargetOptions(interpret=arguments.interpret, cache=arguments.cache)
    print(*TARGET.report(), sep="\n")
    report = Report([])
    report.row("kernel", "error", "", "time of a graph replay")
    for sample in SAMPLES:
        _guard(report, sample.name, lambda s=sample: run_sample(s, options, report))
    for element in ("f32", "f64", "f16", "bf16"):
        _guard(report, f"floats {element}", lambda e=element: run_floats(e, options, report))
    for element in ("i8", "i16", "i32", "i64"):
        _guard(report, f"integers {element}", lambda e=element: run_integers(e, options, report))
    if not arguments.interpret:
        for sample, limit in LARGE:
            _guard(report, sample.name, lambda s=sample, x=limit: run_large(s, x, options, report))
        _guard(report, "torch tensors", lambda: run_torch(options, report))
    print(*report.failures or ["all right"], sep="\n")
    return 1 if report.failures else 0


def _guard(report: Report, name: str, run: Any) -> None:
    """One failure must not hide the rest of the table."""
    try:
        run()
    except Exception as error:
        report.row(name, "", "FAILED", f"{type(error).__name__}: {error}"[:300])
        report.failures.append(f"{name}: {error}")


# ---------------------------------------------------------------------- one kernel
def _split(kernel: KernelOp, buffers: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """The kernel's inputs and outputs, as `as_model` orders them."""
    stored = {op.buffer for op in kernel.walk() if isinstance(op, StoreOp)}
    pairs = list(zip(kernel.buffers, buffers, strict=True))
    return [a for b, a in pairs if b not in stored], [a for b, a in pairs if b in stored]


def run_sample(sample: Sample, options: TargetOptions, report: Report) -> None:
    """Twice, so that the captured graph is compared too."""
    kernel = sample.kernel
    buffers = sample.buffers(kernel)
    inputs, outputs = _split(kernel, buffers)
    interpret_kernel(kernel, buffers, sample.sizes)
    executable = TARGET.load(as_model(kernel), WeightStore(), options)
    worst = 0.0
    for _ in range(2):
        for found, expected in zip(executable.run(inputs), outputs, strict=True):
            worst = max(worst, _relative_error(found, expected))
    timing = ""
    if isinstance(executable, CudaExecutable):
        timing = f"{1000 * executable.replay(REPLAYS):.2f} us"
    report.check(sample.name, worst, 4 * sample.tolerance, timing)


def _relative_error(found: Array, expected: Array) -> float:
    """The largest difference, relative to the largest value; NaN must be where it belongs."""
    a, b = found.astype(np.float64), expected.astype(np.float64)
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return float("inf")
    scale = float(np.nanmax(np.abs(b), initial=1e-30))
    return float(np.nanmax(np.abs(a - b), initial=0.0)) / scale


def run_floats(element: str, options: TargetOptions, report: Report) -> None:
    """Each operation against NumPy on ordinary numbers: errors in units of the last place."""
    kernel = Sample(float_kernel(element)).kernel
    buffers = Sample(float_kernel(element)).buffers(kernel)
    with np.errstate(all="ignore"):
        interpret_kernel(kernel, buffers, {})
    [found] = TARGET.load(as_model(kernel), WeightStore(), options).run([buffers[0]])
    step = {"f32": 2.0**-23, "f64": 2.0**-52, "f16": 2.0**-10, "bf16": 2.0**-7}[element]
    errors = {op: _steps(a, b, step) for op, a, b in zip(FLOAT_OPS, found, buffers[1], strict=True)}
    for op in sorted(errors, key=lambda name: errors[name])[-5:]:
        print(f"    {element} {op}: {errors[op]:.1f} ulp")
    report.check(f"floats {element}", max(errors.values()), 64.0)


def _steps(found: Array, expected: Array, step: float) -> float:
    a, b = found.astype(np.float64), expected.astype(np.float64)
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return float("inf")
    with np.errstate(all="ignore"):
        error = np.abs(a - b) / (np.maximum(np.abs(b), 1e-3) * step)
    return float(np.max(error[(a != b) & ~np.isnan(a)], initial=0.0))


def run_integers(element: str, options: TargetOptions, report: Report) -> None:
    """Exact, with divisors and amounts to shift by between 1 and 6."""
    sample = Sample(integer_kernel(element), limits={"x": (1, 7)})
    kernel = sample.kernel
    buffers = sample.buffers(kernel)
    buffers[0][0] *= -3
    interpret_kernel(kernel, buffers, {})
    [found] = TARGET.load(as_model(kernel), WeightStore(), options).run([buffers[0]])
    wrong = [op for op, a, b in zip(INTEGER_OPS, found, buffers[1], strict=True)
             if not np.array_equal(a, b)]
    report.check(f"integers {element} {' '.join(wrong)}".strip(), float(len(wrong)), 0.0)


# ---------------------------------------------------------------------- speed
def run_large(sample: Sample, limit: str, options: TargetOptions, report: Report) -> None:
    """Only timed: the same kernels are compared at small sizes."""
    kernel = sample.kernel
    inputs, outputs = _split(kernel, sample.buffers(kernel))
    start = time.perf_counter()
    executable = TARGET.load(as_model(kernel), WeightStore(), options)
    found = executable.run(inputs)
    first = time.perf_counter() - start
    assert isinstance(executable, CudaExecutable)
    executable.replay(5)
    milliseconds = executable.replay(REPLAYS)
    if limit == "memory":
        moved = sum(a.nbytes for a in (*inputs, *outputs))
        rate = f"{moved / milliseconds / 1e6:.0f} GB/s"
    else:
        rate = f"{np.prod([float(x) for x in limit.split('*')]) / milliseconds / 1e9:.0f} TFLOP/s"
    finite = all(np.isfinite(a.astype(np.float32)).all() for a in found)
    report.check(f"{sample.name} {max(sample.sizes.values())}", 0.0 if finite else 1.0, 0.0,
                 f"{1000 * milliseconds:.1f} us, {rate}, first run {first:.1f} s")


def run_torch(options: TargetOptions, report: Report) -> None:
    """Tensors on the device go in and come out, on a stream of the caller's."""
    try:
        import torch
    except ImportError:
        report.row("torch tensors", "", "no torch")
        return
    kernel = Sample(samples.SOFTMAX, {"n": 513}).kernel
    executable = TARGET.load(as_model(kernel), WeightStore(), options)
    x = torch.randn(513, 1000, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            [y] = executable.run([x])
            x = x.clone()
    torch.cuda.synchronize()
    error = (y - torch.softmax(x, 1)).abs().max().item()
    start = time.perf_counter()
    for _ in range(1000):
        executable.run([x])
    torch.cuda.synchronize()
    per_call = (time.perf_counter() - start) * 1000
    report.check("torch tensors", error, 1e-6, f"{per_call:.1f} us per call from Python")


if __name__ == "__main__":
    sys.exit(main())
