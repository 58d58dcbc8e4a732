"""What bounds rows of the table of CUDA speed: clocks and power while their calls go on and on.

    python benchmarks/cuda/power.py --rows products --only fp8 [--seconds 1] [-o POWER.md]

A GPU that draws more than it may lowers its clocks; then those are fastest who spend least on each
operation. Each contestant runs alone for a while, on random inputs and on zeros, of which hardware
draws less. Told are the milliseconds of its first calls, behind a pause, and of its last ones, and
the median clock and power of the later part (NVIDIA's `nvidia-smi`).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

import torch
from rows import Setting
from rows import attention as attention_rows
from rows import products as product_rows
from rows.kernels import Contest, Kernel
from rows.timing import Call

KERNELS = {"products": product_rows.kernels, "attention": attention_rows.kernels}
PAUSE = 0.8
"""Seconds in which a device cools down a little."""
SETTLES = 0.3
"""Seconds before clocks are as they stay."""
TOGETHER = 20
"""Calls between two events."""
HEADER = """\
| row | inputs | contestant | first, last calls, ms | SM clock, MHz | power, W |
|---|---|---|---|---|---|"""


@dataclass
class Watch:
    """The clock in MHz and the power in W, by the time at which they were read."""

    samples: list[tuple[float, float, float]] = field(
        default_factory=list[tuple[float, float, float]])

    def read(self, lines: Iterator[str]) -> None:
        for line in lines:
            clock, power = map(float, line.split(","))
            self.samples.append((time.monotonic(), clock, power))

    def between(self, start: float, end: float) -> tuple[float, float]:
        """Medians; NaN of no samples."""
        found = [s for s in self.samples if start < s[0] < end] or [(0.0, float("nan"),
                                                                     float("nan"))]
        return statistics.median(s[1] for s in found), statistics.median(s[2] for s in found)


@contextmanager
def watching() -> Iterator[Watch]:
    watch = Watch()
    command = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw.instant", "-lms", "20",
               "--format=csv,noheader,nounits"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        Thread(target=watch.read, args=(process.stdout,), daemon=True).start()
        try:
            yield watch
        finally:
            process.terminate()


def on_and_on(call: Call, seconds: float, watch: Watch) -> str:
    """The cells of a contestant."""
    call()
    torch.cuda.synchronize()
    time.sleep(PAUSE)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: list[float] = []
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        start.record()
        for _ in range(TOGETHER):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / TOGETHER)
    clock, power = watch.between(began + SETTLES, time.monotonic())
    last = statistics.median(times[len(times) // 2:])
    return f"{times[0]:.3f}, {last:.3f} | {clock:.0f} | {power:.0f}"


def measured(name: str, kernel: Kernel, seconds: float, watch: Watch) -> Iterator[str]:
    """The lines of a row."""
    contest = Contest(kernel, Setting(seconds, modes=()))
    contest.check()
    for inputs in ("random", "zeros"):
        for who, call in contest.calls.items():
            yield f"| {name} | {inputs} | {who} | {on_and_on(call, seconds, watch)} |"
        for tensor in contest.inputs:
            tensor.zero_()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", choices=KERNELS, default="products")
    parser.add_argument("--only", default="", help="rows whose names hold this")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each contestant")
    parser.add_argument("-o", dest="output", type=Path, help="write the table there as well")
    options = parser.parse_args()
    lines = [HEADER]
    with torch.no_grad(), watching() as watch:
        for name, kernel in KERNELS[options.rows]().items():
            if options.only in name:
                lines += measured(name, kernel, options.seconds, watch)
    print("\n".join(lines))
    if options.output:
        options.output.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
