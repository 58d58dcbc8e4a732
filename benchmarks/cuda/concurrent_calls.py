"""How much faster threads are that call one executable at once, on a GPU.

    python benchmarks/cuda/concurrent_calls.py [--trials N] [--threads 1,2,4] [--arrays]

N Python threads call one executable, each on a stream of its own: with torch tensors on the device,
or, with --arrays or without torch, with NumPy arrays, which are copied there and back. Per model:
the time of a call of one thread, and how many times as many calls N threads make in the same time;
the best of many short trials, one and N threads by turns. Every result is compared once.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "cpu"))

from concurrent_calls import MODELS, perceptron  # that of the CPU, whose folder comes first

import compiler

SECONDS = 0.05
"""About how long a trial takes."""
MORE = ((2048, 2048, 4), (4096, 4096, 4))
"""Models that fill a GPU, beside those for the CPU, most of which leave it waiting for the host."""


def loop(exe: compiler.Executable, x: Any, calls: int, torch: Any) -> Callable[[], None]:
    """So many calls on a stream of their own, the results of which are there at its end."""
    stream = None if torch is None else torch.cuda.Stream()

    def work() -> None:
        with nullcontext() if stream is None else torch.cuda.stream(stream):
            for _ in range(calls):
                exe(x)
            if stream is not None:
                stream.synchronize()

    return work


def trial(works: Sequence[Callable[[], None]]) -> float:
    """Seconds from the moment when all begin to the end of the last."""
    barrier = threading.Barrier(len(works) + 1)

    def begin(work: Callable[[], None]) -> None:
        barrier.wait()
        work()

    workers = [threading.Thread(target=begin, args=(work,)) for work in works]
    for worker in workers:
        worker.start()
    barrier.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    return time.perf_counter() - began


def measure(
    exe: compiler.Executable, x: Any, threads: Sequence[int], trials: int, torch: Any
) -> str:
    wanted = as_array(exe(x))
    warm = loop(exe, x, 5, torch)
    trial([warm] * max(threads))
    calls = max(3, int(SECONDS / (trial([warm]) / 5)))
    works = [loop(exe, x, calls, torch) for _ in range(max(threads))]
    best = dict.fromkeys((1, *threads), float("inf"))
    for _ in range(trials):
        for count in best:
            best[count] = min(best[count], trial(works[:count]) / (count * calls))
    np.testing.assert_array_equal(as_array(exe(x)), wanted)
    ratios = "   ".join(f"{n} threads {best[1] / best[n]:.2f}x" for n in threads if n > 1)
    return f"{best[1] * 1e6:10.1f} us   {ratios}"


def as_array(results: Any) -> np.ndarray:
    [result] = results if isinstance(results, (list, tuple)) else [results]
    return np.asarray(result.cpu() if hasattr(result, "cpu") else result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")],
                        default=[1, 2, 4])
    parser.add_argument("--arrays", action="store_true")
    options = parser.parse_args()
    tensors = not options.arrays and find_spec("torch") is not None
    torch = importlib.import_module("torch") if tensors else None
    with tempfile.TemporaryDirectory() as folder:
        for shape in (*MODELS, *MORE):
            exe = compiler.compile(perceptron(Path(folder), *shape), target="cuda", cache="off")
            x = np.ones((shape[1], shape[0]), np.float32)
            given = x if torch is None else torch.from_numpy(x).cuda()
            print(f"{'x'.join(map(str, shape)):>12}  "
                  f"{measure(exe, given, options.threads, options.trials, torch)}", flush=True)


if __name__ == "__main__":
    main()
