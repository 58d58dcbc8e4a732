"""Time the kernels of `stream_models.py` on a GPU, beside PyTorch and a copy of as many bytes.

    python benchmarks/cuda/streams.py [--only softmax] [--compile] [--json FILE]

Device time: every contestant is a CUDA graph, they take turns, and the median counts. A row tells
the milliseconds, the share of the copy's bandwidth, how many kernels there are, and the largest
error over the largest magnitude, against f64. Rows run in processes of their own, which compile
side by side and time one after the other.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from stream_models import ROWS, Row

CALLS, TURNS = 10, 9
LARGE = 1 << 20
"""Tensors of so many elements count as traffic."""
LOCK = Path(tempfile.gettempdir()) / "strata-streams.lock"
Launch = Callable[[], float]
"""Runs a contestant a few times; the milliseconds of one."""


@contextmanager
def alone() -> Generator[None]:
    """Nobody else times meanwhile."""
    with LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def loaded(row: Row, **options: Any) -> Any:
    """The row's model, compiled for the GPU here."""
    from onnx import parser

    import compiler
    from compiler.frontend import MemoryModel

    data = parser.parse_model(row.text).SerializeToString()
    return compiler.compile(MemoryModel("row.onnx", data), target="cuda", cache="off", **options)


def arguments(exe: Any, row: Row) -> list[Any]:
    """Random inputs on the device."""
    import torch

    generator = torch.Generator("cuda").manual_seed(0)
    values: list[Any] = []
    for type_ in exe.signature.input_types:
        kind = getattr(torch, type_.dtype.name)
        shape = [size.constant for size in type_.shape]
        if kind.is_floating_point:
            x = torch.randn(shape, device="cuda", generator=generator).to(kind)
            values.append(x if shape else x.abs() + 0.5)
        else:
            most = min(row.below, torch.iinfo(kind).max)
            values.append(torch.randint(0, most, shape, device="cuda", generator=generator,
                                        dtype=kind))
    return values


def ours(exe: Any) -> Launch:
    return lambda: exe.loaded.general.replay(CALLS)


def captured(call: Callable[[], Any]) -> Launch:
    """A function of PyTorch as a graph, which needs the function's tensors as long as it lives."""
    import torch

    for _ in range(2):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()

    def launch() -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / CALLS

    launch.call = call
    return launch


def copy_of(values: Sequence[Any]) -> Callable[[], Any]:
    """A copy that reads and writes as many bytes as these values have."""
    import torch

    count = sum(v.numel() * v.element_size() for v in values) // 2
    source, target = (torch.empty(count, dtype=torch.uint8, device="cuda") for _ in range(2))
    return lambda: target.copy_(source)


def contest(entrants: dict[str, Launch]) -> dict[str, float]:
    """The median of each; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in entrants}
    for _ in range(TURNS):
        for name, launch in entrants.items():
            times[name].append(launch())
    return {name: statistics.median(found) for name, found in times.items()}


def error(found: Any, exact: Any) -> float:
    """The largest difference over the largest magnitude; infinite for a NaN out of place."""
    a, b = found.double(), exact.double()
    if not bool((a.isnan() == b.isnan()).all()):
        return float("inf")
    return float((a - b).abs().max() / b.abs().max())


def exact_of(row: Row, values: Sequence[Any]) -> Any:
    import torch

    return row.twin(torch, *(v.double() if v.is_floating_point() else v for v in values))


def run_row(row: Row, with_compile: bool) -> dict[str, Any]:
    """Compile, check and time a row."""
    import torch

    exe = loaded(row)
    kernels = exe.text("triton").count("# kernel @")
    twin = torch.compile(row.twin) if with_compile else row.twin
    if with_compile:
        twin(torch, *arguments(exe, row))
    with alone():
        values = arguments(exe, row)
        [y] = exe(*values)
        moved = [v for v in (*values, y) if v.numel() >= LARGE]
        entrants = {"copy": captured(copy_of(moved)), "ours": ours(exe),
                    "eager": captured(lambda: row.twin(torch, *values))}
        if with_compile:
            entrants["compile"] = captured(lambda: twin(torch, *values))
        return {"name": row.name, "kernels": kernels, "ms": contest(entrants),
                "error": error(y, exact_of(row, values))}


def line(result: dict[str, Any]) -> str:
    """A row of the table."""
    ms = result["ms"]
    shares = [f"{name} {time:.4f} ({100 * ms['copy'] / time:.0f}%)" for name, time in ms.items()
              if name != "copy"]
    return (f"{result['name']:26s} copy {ms['copy']:.4f}  {'  '.join(shares)}  "
            f"{result['kernels']} kernels, error {result['error']:.1e}")


def _in_process(name: str, with_compile: bool) -> str:
    command = [sys.executable, __file__, "--row", name, *(["--compile"] if with_compile else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else json.dumps(
        {"name": name, "fault": done.stderr[-300:]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="a part of the rows' names")
    parser.add_argument("--compile", action="store_true", help="torch.compile, too")
    parser.add_argument("--json", type=Path, help="write the results there")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(run_row(next(r for r in ROWS if r.name == options.row),
                                 options.compile)))
        return
    names = [r.name for r in ROWS if options.only in r.name]
    results: list[dict[str, Any]] = []
    with ThreadPoolExecutor(10) as pool:
        for text in pool.map(lambda n: _in_process(n, options.compile), names):
            results.append(json.loads(text.strip().splitlines()[-1]))
            print(results[-1].get("fault") or line(results[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
