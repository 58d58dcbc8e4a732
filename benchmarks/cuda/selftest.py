"""Run hand-written kernels on the GPU, compare them with their meaning, and time graph replays.

    python benchmarks/cuda/selftest.py                on a machine with an NVIDIA GPU
    python benchmarks/cuda/selftest.py --interpret    anywhere, in Triton's interpreter, untimed
    python benchmarks/cuda/selftest.py --only programs

Parts: every sample kernel of the tests at small, awkward sizes (samples); every scalar operation
(scalars); products of quantized tensors, exact, also at sizes where speed can be read off
(integers); whole programs with control flow and sizes that are known late, and what they refuse
(programs); a few kernels at sizes where speed can be read off (speed). The last lines say what
went wrong; the exit status is 1 if anything did.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # the tests are no installed package

from dialects.block import KernelOp, StoreOp
from dialects.block.interpret import interpret_kernel
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.runtime import driver
from targets.cuda.runtime.executable import CudaExecutable
from tests.control.programs import COUNTED, PROGRAMS, STEPS, Program
from tests.targets.cuda import samples
from tests.targets.cuda.products.integer_products import CASES, LARGE_CASES, Case
from tests.targets.cuda.runtime.control_programs import REFUSALS, compare, lowered
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
    parser.add_argument("--only", choices=PARTS, help="one of the parts")
    arguments = parser.parse_args()
    options = TargetOptions(interpret=arguments.interpret, cache=arguments.cache)
    print(*TARGET.report(), sep="\n")
    report = Report([])
    report.row("kernel", "error", "", "time of a graph replay")
    for name, part in PARTS.items():
        if arguments.only in (None, name):
            part(options, report)
    print(*report.failures or ["all right"], sep="\n")
    return 1 if report.failures else 0


def samples_part(options: TargetOptions, report: Report) -> None:
    for sample in SAMPLES:
        _guard(report, sample.name, lambda s=sample: run_sample(s, options, report))


def scalars_part(options: TargetOptions, report: Report) -> None:
    for element in ("f32", "f64", "f16", "bf16"):
        _guard(report, f"floats {element}", lambda e=element: run_floats(e, options, report))
    for element in ("i8", "i16", "i32", "i64"):
        _guard(report, f"integers {element}", lambda e=element: run_integers(e, options, report))


def integers_part(options: TargetOptions, report: Report) -> None:
    for case in CASES if options.interpret else (*CASES, *LARGE_CASES):
        _guard(report, case.name, lambda c=case: run_product(c, options, report))


def speed_part(options: TargetOptions, report: Report) -> None:
    if options.interpret:
        return
    for sample, limit in LARGE:
        _guard(report, sample.name, lambda s=sample, x=limit: run_large(s, x, options, report))
    _guard(report, "torch tensors", lambda: run_torch(options, report))


def programs_part(options: TargetOptions, report: Report) -> None:
    """With the driver's pool, with kept blocks, and with torch's memory, where torch is there."""
    for program in PROGRAMS:
        for memory in ("interpreter",) if options.interpret else MEMORIES:
            _guard(report, f"{program.name}, {memory}",
                   lambda p=program, m=memory: run_program(p, m, options, report))
    if options.interpret:
        return
    for number, refusal in enumerate(REFUSALS):
        _guard(report, f"refusal {number}",
               lambda n=number, r=refusal: run_refusal(n, *r, options, report))
    for program in (COUNTED, STEPS):
        _guard(report, f"loop {program.name}", lambda p=program: run_loop(p, options, report))


PARTS = {"samples": samples_part, "scalars": scalars_part, "integers": integers_part,
         "programs": programs_part, "speed": speed_part}


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
    """Twice, so that a graph that is there already is compared too."""
    kernel = sample.kernel
    buffers = sample.buffers(kernel)
    inputs, outputs = _split(kernel, buffers)
    interpret_kernel(kernel, buffers, sample.values)
    executable = TARGET.bind(options).running.load(as_model(kernel), WeightStore())
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
    [found] = TARGET.bind(options).running.load(as_model(kernel), WeightStore()).run([buffers[0]])
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
    [found] = TARGET.bind(options).running.load(as_model(kernel), WeightStore()).run([buffers[0]])
    wrong = [op for op, a, b in zip(INTEGER_OPS, found, buffers[1], strict=True)
             if not np.array_equal(a, b)]
    report.check(f"integers {element} {' '.join(wrong)}".strip(), float(len(wrong)), 0.0)


def run_product(case: Case, options: TargetOptions, report: Report) -> None:
    """Exact, one by one and as a graph: the product, and the shares of its zero points."""
    expected = case.expected()
    executable = TARGET.bind(options).running.load(*case.lowered(options))
    wrong = max(int(np.count_nonzero(executable.run(case.inputs)[0] != expected))
                for _ in range(2))
    timing = ""
    if isinstance(executable, CudaExecutable):
        milliseconds = executable.replay(REPLAYS)
        rate = 2 * expected.size * case.depth / milliseconds / 1e9
        timing = f"{1000 * milliseconds:.2f} us, {rate:.1f} TOP/s"
    report.check(case.name, float(wrong), 0.0, timing)


# ---------------------------------------------------------------------- programs that decide
MEMORIES = ("pool", "kept blocks", "torch")
CALLS = 2000


def run_program(
    program: Program, memory: str, options: TargetOptions, report: Report
) -> None:
    """All inputs on one compiled program, twice."""
    tensors: Any = None
    if memory == "torch":
        tensors = _torch()
        if tensors is None:
            report.row(f"{program.name}, torch", "", "no torch")
            return
    hidden = nullcontext() if tensors is not None else _torch_hidden()
    with hidden, patch.object(driver, "has_pools", lambda: memory != "kept blocks"):
        executable = TARGET.bind(options).running.load(*lowered(program.text))
        for inputs in (*program.inputs, *program.inputs):
            given = inputs if tensors is None else [
                tensors.from_numpy(np.array(a)).cuda() for a in inputs]
            outputs = executable.run(given)
            compare([o if tensors is None else o.cpu().numpy() for o in outputs], program, inputs)
    report.check(f"{program.name}, {memory}", 0.0, 0.0, "; ".join(executable.notes))


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


@contextmanager
def _torch_hidden() -> Generator[None]:
    """As if nobody had imported torch."""
    modules: dict[str, Any] = sys.modules  # type: ignore[assignment]
    torch = modules.pop("torch", None)
    modules["torch"] = None
    try:
        yield
    finally:
        del modules["torch"]
        modules |= {} if torch is None else {"torch": torch}


def run_refusal(
    number: int, program: Program, inputs: Sequence[Array], message: str, options: TargetOptions,
    report: Report,
) -> None:
    """The words are right, and the program stays usable."""
    executable = TARGET.bind(options).running.load(*lowered(program.text))
    said: list[str] = []
    for _ in range(2):
        try:
            executable.run(inputs)
        except ValueError as error:
            said.append(str(error))
        compare(executable.run(program.inputs[0]), program, program.inputs[0])
    right = len(said) == 2 and all(message in words for words in said)
    report.check(f"refusal {number}, {program.name}", 0.0 if right else 1.0, 0.0,
                 "" if right else f"said {said}")


def run_loop(program: Program, options: TargetOptions, report: Report) -> None:
    """What a call of a loop's body costs, from Python to the device."""
    first = np.ones((CALLS, 4) if program is STEPS else (4, 3), np.float32)
    inputs = [first, first[0] if program is STEPS else np.array(CALLS)]
    executable = TARGET.bind(options).running.load(*lowered(program.text))
    executable.run(inputs)
    start = time.perf_counter()
    executable.run(inputs)
    taken = (time.perf_counter() - start) / CALLS
    report.check(f"loop {program.name}", 0.0, 0.0, f"{1e6 * taken:.1f} us per call of the body")


# ---------------------------------------------------------------------- speed
def run_large(sample: Sample, limit: str, options: TargetOptions, report: Report) -> None:
    """Only timed: the same kernels are compared at small sizes."""
    kernel = sample.kernel
    inputs, outputs = _split(kernel, sample.buffers(kernel))
    start = time.perf_counter()
    executable = TARGET.bind(options).running.load(as_model(kernel), WeightStore())
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
    executable = TARGET.bind(options).running.load(as_model(kernel), WeightStore())
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
