"""Functions and models of JAX and flax: Strata beside XLA, on one thread of the CPU or on a GPU.

    python benchmarks/jax/run.py [--device cpu] [--only mlp,gru] [--scale 4] [--rounds 7]
        [-o RESULTS.md]

The programs are those of `tests/frontend/stablehlo/jax_artifacts.py`, at a scale. Both compile what
`jax.jit(f).lower(*args)` lowers. They take turns: each round calls both for at least a twentieth of
a second, and a figure is the median over rounds of a call's time: the processor's on the CPU, and
on a GPU the time of the clock, of twenty calls and the wait for the last. There, both are given
arrays in its memory, and XLA's products of f32 are those of f32. Results are compared: `error` is
the largest difference, relative to the largest element of that result. Compilation is timed once,
without caches. Needs jax and flax (`pip install jax flax`), with CUDA for `--device cuda`.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import compiler
from tests.frontend.stablehlo.jax_artifacts import EVERY

LEAST = 0.05
FLOOR = "addition"
"""A program of one number, which shows what a call costs whatever it computes."""


def addition(_: int) -> Any:
    return (lambda x: x + 1), (np.float32(1),)


class Cpu:
    """One thread; a call has returned when it is done."""

    name, at_once, clock = "cpu", 1, staticmethod(time.process_time)

    def prepare(self) -> None:
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["XLA_FLAGS"] = (
            f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false "
            "intra_op_parallelism_threads=1").strip()

    def title(self) -> str:
        return f"{platform.machine()}, one thread. Milliseconds of processor time"

    def arrays(self, given: Sequence[Any]) -> list[Any]:
        return list(given)

    def numbers(self, results: Sequence[Any]) -> list[Any]:
        return list(results)

    def wait(self) -> None:
        pass


class Cuda(Cpu):
    """A GPU: Strata is given and returns torch's tensors in its memory."""

    name, at_once, clock = "cuda", 20, staticmethod(time.perf_counter)

    def prepare(self) -> None:
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        import jax
        import torch

        if not torch.cuda.is_available() or jax.default_backend() != "gpu":
            sys.exit(f"no GPU: torch says {torch.cuda.is_available()}, and JAX has "
                     f"{jax.devices()}; install jax[cuda13] on a machine with a GPU")
        jax.config.update("jax_default_matmul_precision", "highest")

    def title(self) -> str:
        import torch

        return f"{torch.cuda.get_device_name()}. Milliseconds"

    def arrays(self, given: Sequence[Any]) -> list[Any]:
        import torch

        return [torch.from_numpy(np.array(v)).cuda() for v in given]

    def numbers(self, results: Sequence[Any]) -> list[Any]:
        return [v.cpu().numpy() for v in results]

    def wait(self) -> None:
        import torch

        torch.cuda.synchronize()


def timed(machine: Cpu, call: Callable[[], Any], wait: Callable[[Any], Any]) -> float:
    """Seconds of a call."""
    count, start = 0, machine.clock()
    while (spent := machine.clock() - start) < LEAST:
        for _ in range(machine.at_once):
            last = call()
        wait(last)
        count += machine.at_once
    return spent / count


def error_of(got: Any, want: Any) -> float:
    if want.dtype.kind not in "fc" or not want.size:
        return float(not np.array_equal(got, want))
    largest = float(np.abs(want).max()) or 1.0
    return float(np.abs(got.astype(np.complex128) - want).max()) / largest


def measured(machine: Cpu, name: str, scale: int, rounds: int) -> dict[str, Any]:
    import jax

    function, arguments = (addition if name == FLOOR else EVERY[name])(scale)
    lowered = jax.jit(function, keep_unused=True).lower(*arguments)
    start = time.process_time()
    theirs = lowered.compile()
    between = time.process_time()
    ours = compiler.compile(lowered, target=machine.name, cache="off", threads=1)
    row: dict[str, Any] = {"program": name, "xla_compile": between - start,
                           "compile": time.process_time() - between}
    arrays = machine.arrays([np.asarray(v) for v in jax.tree.leaves(arguments)])
    placed = jax.device_put(arguments)
    results = [np.asarray(v) for v in jax.tree.leaves(theirs(*placed))]
    row["error"] = max(map(error_of, machine.numbers(ours(*arrays)), results))
    calls = {"xla": (lambda: theirs(*placed), jax.block_until_ready),
             "strata": (lambda: ours(*arrays), lambda _: machine.wait())}
    times: dict[str, list[float]] = {who: [] for who in calls}
    for _ in range(rounds):
        for who, (call, wait) in calls.items():
            times[who].append(timed(machine, call, wait))
    return row | {who: statistics.median(v) for who, v in times.items()}


def page(machine: Cpu, rows: list[dict[str, Any]], scale: int) -> str:
    import jax

    speeds = [r["xla"] / r["strata"] for r in rows if r["program"] != FLOOR]
    lines = [
        "# JAX's programs beside XLA", "",
        f"`python benchmarks/jax/run.py --device {machine.name} --scale {scale}`, jax "
        f"{jax.__version__}, Python {platform.python_version()}, {machine.title()} of a call, and "
        "seconds of compilation. `speed` is XLA's time over ours: above 1, Strata is faster. "
        "`error`: see the script. XLA is given arrays that lie on its device, Strata is given "
        f"{'NumPy' if machine.name == 'cpu' else 'torch'}'s; `{FLOOR}` adds 1 to one number, which "
        "shows what a call costs itself. On a GPU, the error of `formats` is the rounding of two "
        "conversions to floats of a byte and back, 0.112 of the largest element, which XLA may "
        "leave out there (`xla_allow_excess_precision`).", "",
        "| program | XLA | Strata | speed | XLA compiles | Strata compiles | error |",
        "|---|---:|---:|---:|---:|---:|---:|"]
    lines += [
        f"| {r['program']} | {r['xla'] * 1e3:.3f} | {r['strata'] * 1e3:.3f} | "
        f"{r['xla'] / r['strata']:.2f} | {r['xla_compile']:.1f} | {r['compile']:.1f} | "
        f"{r['error']:.0e} |" for r in rows]
    return "\n".join([*lines, "", f"Geometric mean of the speeds, without `{FLOOR}`: "
                      f"{statistics.geometric_mean(speeds or [1.0]):.2f}."]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", default=",".join((FLOOR, *EVERY)))
    parser.add_argument("--scale", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("-o", type=Path)
    options = parser.parse_args()
    machine = Cuda() if options.device == "cuda" else Cpu()
    machine.prepare()
    rows: list[dict[str, Any]] = []
    for name in options.only.split(","):
        rows.append(measured(machine, name, options.scale, options.rounds))
        print(rows[-1], flush=True)
    text = page(machine, rows, options.scale)
    print(text)
    if options.o is not None:
        options.o.write_text(text)


if __name__ == "__main__":
    main()
