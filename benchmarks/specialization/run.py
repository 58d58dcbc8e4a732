"""What compiling a model for the sizes of its calls gains, and what it costs.

    python benchmarks/specialization/run.py MODEL.onnx batch=1,length=64 batch=8,length=128 [...]
        [--rounds 15] [-o FILE.md]

A model with open sizes is compiled once, then for each given set of sizes again, as
`compiler.Specialize` does it, and called with random inputs (integers 0 or 1, floats normal). One
thread. The general program and the one with fixed sizes take turns, in changing order; reported are
medians of CPU time, so that other work on the machine matters less, and the median of the ratios of
neighbouring calls. `differs` is the largest difference over the largest magnitude.

The last columns: CPU seconds to compile for these sizes, nothing cached; and how long calls took
while a thread did that (median and slowest, wall time), beside the whole compilation as one stall.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import compiler
from compiler.io.output import write_text
from compiler.measuring.comparison import worst
from compiler.specialization import specialize
from dialects.symbolic.symbol import Symbol

Array = np.ndarray
Run = Callable[[], Sequence[Array]]

HEADER = """\
| model | sizes | open, ms | fixed, ms | open / fixed | differs | compile, CPU s | \
calls meanwhile, ms | one stall, ms |
|---|---|---|---|---|---|---|---|---|
"""
NEVER = 10**9


@dataclass(frozen=True)
class Latency:
    """Wall milliseconds of calls while a thread compiles, and of a call that compiles itself."""

    median: float
    slowest: float
    stall: float


def measure(model: str, sizes: dict[str, int], rounds: int) -> str:
    """One row of the table."""
    general = compiler.compile(model, threads=1, cache="off",
                               specialize=compiler.Specialize(after=NEVER))
    known = {Symbol.size(name): value for name, value in sizes.items()}
    inputs = list(general.signature.random(0, known).values())
    started = time.process_time()
    fixed = specialize(general.loaded, inputs)
    seconds = time.process_time() - started
    difference = worst(general.run(inputs), fixed.run(inputs))[0]
    open_, own = turns(lambda: general.run(inputs), lambda: fixed.run(inputs), rounds)
    ratio = statistics.median(a / b for a, b in zip(open_, own, strict=True))
    beside = latency(model, inputs)
    named = ", ".join(f"{name}={value}" for name, value in sizes.items())
    return (f"| {Path(model).stem} | {named} | {statistics.median(open_):.2f} | "
            f"{statistics.median(own):.2f} | {ratio:.2f} | {difference:.0e} | {seconds:.1f} | "
            f"{beside.median:.1f}, {beside.slowest:.0f} | {beside.stall:.0f} |\n")


def turns(first: Run, second: Run, rounds: int) -> tuple[list[float], list[float]]:
    """CPU milliseconds of both, called in turns; which is first changes."""
    times: dict[Run, list[float]] = {first: [], second: []}
    for number in range(rounds):
        for run in (first, second) if number % 2 else (second, first):
            times[run].append(timed(run, time.process_time))
    return times[first], times[second]


def timed(run: Run, clock: Callable[[], float]) -> float:
    started = clock()
    run()
    return 1e3 * (clock() - started)


def latency(model: str, inputs: Sequence[Array]) -> Latency:
    """How calls fare while a program for their sizes is made, in both ways."""
    exe = compiler.compile(model, threads=1, cache="off", specialize=compiler.Specialize(after=1))
    exe.run(inputs)
    taken: list[float] = []
    while not exe.specializations or exe.specializations[0].state == "compiling":
        taken.append(timed(lambda: exe.run(inputs), time.perf_counter))
    exe = compiler.compile(model, threads=1, cache="off",
                           specialize=compiler.Specialize(after=1, background=False))
    stall = timed(lambda: exe.run(inputs), time.perf_counter)
    return Latency(statistics.median(taken), max(taken), stall)


def main() -> None:
    parser = argparse.ArgumentParser(description="time open sizes against fixed ones")
    parser.add_argument("model")
    parser.add_argument("sizes", nargs="+", metavar="NAME=N,NAME=N")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("-o", dest="output", type=Path)
    arguments = parser.parse_args()
    rows = [measure(arguments.model, parse_sizes(text), arguments.rounds)
            for text in arguments.sizes]
    write_text(HEADER + "".join(rows), arguments.output)


def parse_sizes(text: str) -> dict[str, int]:
    """`batch=1,length=64` -> {"batch": 1, "length": 64}."""
    pairs = (item.rpartition("=") for item in text.split(","))
    return {name: int(value) for name, _, value in pairs}


if __name__ == "__main__":
    main()
