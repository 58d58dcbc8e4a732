"""Models in fp16 on a GPU: per operator, by blocks, as a whole, eager and Inductor.

    python benchmarks/contrast/cuda.py [--only encoder,mobile] [--peers torch,inductor]
                                       [--groups fuse,one-launch] [--seconds 300]

Each model is compared in a process of its own by `compare --json`. The share of the time in which
eager PyTorch keeps the GPU busy is that of a CUDA graph of the same kernels. Figures are kept in
cuda.json beside this file, from which CUDA.md and cuda.svg are written; `--only` replaces the
figures of some models, and `--only ""` writes the page alone. With `--groups`, only these groups
are left out and added; the table is blank for the others. No further model is begun after
`--seconds`. Exit status: 0 when every comparison succeeded, 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

import run as cpu

from compiler.pipeline.strategies import PER_OP, WHOLE_GRAPH

HERE = Path(__file__).parent
FIGURES = HERE / "cuda.json"
BUSY = ("encoder", "encoder_large", "vision", "prefill", "chain", "residual", "mobile")
WAITING = ("perceptron", "decoder", "encoder_small", "residual_small", "mobile_small")
MODELS = (*BUSY, *WAITING)
BARS = {True: 1.3, False: 2.2}
"""How many times as fast as eager a model should be that keeps the GPU busy, and one that does
not."""
IS_BUSY = 0.9
PER_OP_BAR = 0.8
TOO_LONG = 180
Figures = dict[str, Any]


def measure(model: str, peers: str, groups: str) -> Figures | None:
    """What `compare` writes about a model; None if there is nothing."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "compiler", "compare",
                   f"benchmarks/contrast/gpu_models.py:{model}", "--target", "cuda",
                   "--rounds", "15", "--against", peers, "--groups", groups,
                   "--json", str(file)]
        print(f"{model} ...", flush=True)
        started = time.perf_counter()
        try:
            subprocess.run(command, cwd=HERE.parents[1], check=False, timeout=TOO_LONG)
        except subprocess.TimeoutExpired:
            print(f"{model}: given up after {TOO_LONG} s", flush=True)
            return None
        if not file.exists():
            return None
        found = json.loads(file.read_text(encoding="utf-8"))
    return {**found, "seconds": time.perf_counter() - started, **_eager(model)}


def _eager(model: str) -> Figures:
    """In a process of its own: how busy eager PyTorch keeps the GPU, and which one."""
    command = [sys.executable, str(Path(__file__)), "--busy", model]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TOO_LONG)
    if done.returncode:
        print(done.stderr[-500:], flush=True)
        return {"busy": None, "machine": "?"}
    return json.loads(done.stdout.splitlines()[-1])


def busy(model: str) -> Figures:
    """The time of a CUDA graph of eager's kernels, as a share of eager's own."""
    import gpu_models
    import torch

    module, inputs = getattr(gpu_models, model)()
    module, given = module.cuda(), [x.cuda() for x in inputs]
    with torch.inference_mode():
        def call() -> None:
            module(*given)

        for _ in range(3):
            call()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            call()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            call()
        return {"busy": min(_seconds(graph.replay) / _seconds(call), 1.0),
                "machine": torch.cuda.get_device_name()}


def _seconds(call: Any) -> float:
    """The least mean of calls in a row."""
    import torch

    times: list[float] = []
    for _ in range(10):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(20):
            call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - started) / 20)
    return min(times)


# ---------------------------------------------------------------------- the page
def page(figures: Mapping[str, Figures]) -> str:
    first = next(iter(figures.values()))
    versions = ", ".join(line for line in first["versions"]
                         if line.split()[0] in ("torch", "triton"))
    lines = [
        "# Strategies compared on a GPU", "", "```", "python benchmarks/contrast/cuda.py", "```",
        "", fill(f"[{len(figures)} models](gpu_models.py) are in fp16 and have random weights. "
                 f"Measured on one {_machines(figures)}, with {versions}. Times are medians of "
                 "rounds in turns, with 95% intervals; each call waits for its result. [The same "
                 f"on a CPU](RESULTS.md).{_unmeasured(figures)}", 120),
        "", "![Speed relative to per-op](cuda.svg)", "", "## Against eager PyTorch", "",
        fill("Busy: the time of a CUDA graph of eager's own kernels, as a share of eager's time. "
             f"A model that keeps the GPU busy ({IS_BUSY:.0%}) should be {BARS[True]}x as fast as "
             f"eager as a whole, any other {BARS[False]}x, and {PER_OP_BAR}x per operator.", 120),
        "", *cpu.table(_HEAD, [_against(name, found) for name, found in figures.items()]), "",
        "## Strategies and peers", "",
        *cpu.table(cpu.HEAD, [row for name, found in figures.items()
                              for row in cpu.rows_of(name, found)]),
        "", *cpu.bought(figures), "An empty cell was not measured.", ""]
    return "\n".join(lines)


def _machines(figures: Mapping[str, Figures]) -> str:
    """The machine of most models, and which models are of others."""
    models: dict[str, list[str]] = {}
    for name, found in figures.items():
        models.setdefault(found["machine"], []).append(name)
    most, *others = sorted(models, key=lambda machine: -len(models[machine]))
    return most + "".join(f" ({', '.join(models[m])}: {m})" for m in others)


def _unmeasured(figures: Figures) -> str:
    """Which models have no figures yet."""
    missing = [name for name in MODELS if name not in figures]
    return f" Not measured yet: {', '.join(missing)}." if missing else ""


_HEAD = ("model", "busy", "eager ms", "per-op", "block", "whole graph", "bar", "reached",
         "Inductor", "seconds of `compare`")


def _against(name: str, found: Figures) -> list[str]:
    eager = found["peers"].get("torch")
    share = found["busy"]
    is_busy = share is not None and share >= IS_BUSY
    if eager is None:
        return [name, _percent(share), *["?"] * (len(_HEAD) - 2)]
    base = eager["ms"][1]
    speeds = {way: _speed(base, row) for way, row in found["strategies"].items()}
    whole, per_op = speeds[WHOLE_GRAPH], speeds[PER_OP]
    reached = (whole or 0) >= BARS[is_busy] and (per_op or 0) >= PER_OP_BAR
    return [name, _percent(share), f"{base:.3g}", *(_times(s) for s in speeds.values()),
            f"{BARS[is_busy]}x", "yes" if reached else "no",
            _times(_speed(base, found["peers"].get("inductor"))), f"{found['seconds']:.0f}"]


def _speed(base: float, row: Mapping[str, Any] | None) -> float | None:
    return base / row["ms"][1] if row and row.get("ms") else None


def _times(speed: float | None) -> str:
    return "failed" if speed is None else f"{speed:.2f}x"


def _percent(share: float | None) -> str:
    return "?" if share is None else f"{share:.0%}"


def write(figures: Mapping[str, Figures]) -> None:
    """Keep the figures, and write the page and the plot that show them."""
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    (HERE / "CUDA.md").write_text(page(figures), encoding="utf-8")
    (HERE / "cuda.svg").write_text(cpu.plot(figures), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--peers", default="torch,inductor")
    parser.add_argument("--groups", default="all")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--busy", metavar="MODEL", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.busy:
        print(json.dumps(busy(given.busy)))
        return 0
    known: dict[str, Figures] = {}
    if FIGURES.exists():
        known = json.loads(FIGURES.read_text(encoding="utf-8"))
    failed, until = list[str](), time.monotonic() + given.seconds
    for name in filter(None, given.only.split(",")):
        found = measure(name, given.peers, given.groups) if time.monotonic() < until else None
        if found is None or found["problems"]:
            failed.append(name)
        if found is not None:
            known[name] = found
        if known:
            write({name: known[name] for name in MODELS if name in known})
    if known and not given.only:
        write(known)
    print(f"failed: {', '.join(failed)}" if failed else "all compared")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
