"""How much faster threads are that call one executable at once.

    python benchmarks/cpu/concurrent_calls.py [--trials N] [--threads 2]

Each executable runs on one thread; N Python threads call it. Per model: the time of a call, and how
many times as many calls N threads make in the same time, in two ways:

    wall     the best of many short trials, one thread and N threads by turns; needs idle processors
    shares   what the trials would show on idle processors: a thread's time is on a processor,
             waiting for one (which the system counts), or asleep, as it is while it waits for
             Python's lock or for ours. Only the second kind is other programs' doing.

Source of the shares: Linux, Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import compiler

MODELS = ((64, 1, 2), (256, 8, 2), (256, 64, 4), (512, 128, 4), (1024, 256, 4))
"""Width, rows and layers of perceptrons, from microseconds to many milliseconds."""
SECONDS = 0.05
"""About how long a trial takes."""


@dataclass(frozen=True)
class Trial:
    """Seconds per call: by the clock, and without the waits for a processor."""

    wall: float
    needed: float


def perceptron(folder: Path, width: int, rows: int, layers: int) -> Path:
    """relu(x @ w) again and again, x: f32[rows, width]."""
    rng, nodes, weights = np.random.default_rng(0), list[onnx.NodeProto](), []
    for k in range(layers):
        w = rng.standard_normal((width, width), np.float32) / np.float32(width ** 0.5)
        weights.append(numpy_helper.from_array(w, f"w{k}"))
        nodes += [helper.make_node("MatMul", [f"h{k}", f"w{k}"], [f"p{k}"]),
                  helper.make_node("Relu", [f"p{k}"], [f"h{k + 1}"])]
    ends = [helper.make_tensor_value_info(f"h{k}", TensorProto.FLOAT, [rows, width])
            for k in (0, layers)]
    graph = helper.make_graph(nodes, "perceptron", ends[:1], ends[1:], weights)
    path = folder / f"{width}-{rows}-{layers}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              path)
    return path


def schedstat() -> tuple[int, int]:
    """Nanoseconds that this thread was on a processor, and waited for one."""
    text = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text("ascii")
    ran, waited, _ = text.split()
    return int(ran), int(waited)


def trial(exe: compiler.Executable, x: np.ndarray, threads: int, calls: int) -> Trial:
    """Let threads make so many calls each."""
    barrier, needed = threading.Barrier(threads + 1), list[float]()

    def work() -> None:
        barrier.wait()
        began, (_, before) = time.perf_counter(), schedstat()
        for _ in range(calls):
            exe(x)
        waited = schedstat()[1] - before
        needed.append(time.perf_counter() - began - waited / 1e9)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    barrier.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    count = threads * calls
    return Trial((time.perf_counter() - began) / count, max(needed) / count)


def measure(exe: compiler.Executable, x: np.ndarray, threads: int, trials: int) -> str:
    exe(x)
    calls = max(3, int(SECONDS / trial(exe, x, 1, 3).needed))
    found: dict[int, list[Trial]] = {1: [], threads: []}
    for _ in range(trials):
        for count, kept in found.items():
            kept.append(trial(exe, x, count, calls))
    alone, shared = ([min(getattr(t, kind) for t in found[k]) for kind in ("wall", "needed")]
                     for k in (1, threads))
    ratios = [a / b for a, b in zip(alone, shared, strict=True)]
    return f"{alone[1] * 1e6:10.1f} us   wall {ratios[0]:.2f}x   shares {ratios[1]:.2f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for shape in MODELS:
            exe = compiler.compile(perceptron(Path(folder), *shape), threads=1, cache="off")
            x = np.ones((shape[1], shape[0]), np.float32)
            print(f"{'x'.join(map(str, shape)):>12}  "
                  f"{measure(exe, x, options.threads, options.trials)}", flush=True)


if __name__ == "__main__":
    main()
