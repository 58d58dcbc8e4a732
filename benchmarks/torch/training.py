"""Time and memory of training: `torch.compile(backend="strata")` beside Inductor and eager mode.

    python benchmarks/torch/training.py [--only bert,mixer] [--threads 2] [--rounds 21]

A row is a model: its forward and backward passes, and with `--optimizer` a step of SGD or another
optimizer, all in f32 on the CPU. Eager mode, Inductor and Strata run in turns, in one process.

    ms         the quartile of quicker rounds, by the clock, and beside it by the processors' time,
               which says more where other programs want the processors
    first      seconds until the first step is done, in a process of its own with empty caches that
               has compiled one line before, so that the compiler's modules are loaded
    memory     what that process holds at most in a later step beyond what it held before the first,
               in MiB: gradients, saved and temporary values, and what the compiler leaves behind
    error      how far gradients are from those of eager mode in f64; thousandths where rounding
               moves an input of a ReLU across zero, which smooth functions do not show

Rows are kept in a file, and a second run continues there. The page is TRAINING.md beside this file.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from trained_layers import MODELS

HERE = Path(__file__).parent
BACKENDS = ("eager", "inductor", "strata")


# ---------------------------------------------------------------------- one process: one contestant
def step(call: Callable[..., Tensor], model: nn.Module, inputs: list[Tensor], optimizer: Any
         ) -> Tensor:
    model.zero_grad(set_to_none=True)
    loss = call(*inputs)
    loss.backward()
    if optimizer is not None:
        optimizer()
    return loss


def contestant(backend: str, model: nn.Module, optimizer: str) -> tuple[Any, Any]:
    """How the model is called, and how it is updated."""
    call = model if backend == "eager" else _compiled(model, backend)
    if not optimizer:
        return call, None
    update = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3).step
    return call, update if backend == "eager" else _compiled(update, backend)


def _compiled(function: Any, backend: str) -> Any:
    options = {"threads": torch.get_num_threads()} if backend == "strata" else None
    return torch.compile(function, backend=backend, options=options)


class Line(nn.Module):
    """What is compiled to load a compiler."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sin().sum()


def alone(name: str, backend: str, optimizer: str) -> dict[str, float]:
    """Seconds of the first step and the memory of later ones, in this process."""
    torch.manual_seed(0)
    model = MODELS[name]().train()
    inputs = model.inputs()
    small = torch.ones(3, requires_grad=True)
    contestant(backend, Line(), "")[0](small).backward()
    before = _memory("VmRSS")
    started = time.perf_counter()
    call, update = contestant(backend, model, optimizer)
    step(call, model, inputs, update)
    first = time.perf_counter() - started
    step(call, model, inputs, update)
    model.zero_grad(set_to_none=True)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the most so far is what is held now
    step(call, model, inputs, update)
    return {"first": first, "memory": (_memory("VmHWM") - before) / 1024}


def _memory(name: str) -> int:
    """A line of this process's status, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(v for v in lines if v.startswith(name)).split()[1])


# ---------------------------------------------------------------------- all contestants in turns
def row(name: str, options: argparse.Namespace) -> dict[str, Any]:
    found = dict[str, Any]({"model": name, "load": os.getloadavg()[0]})
    with tempfile.TemporaryDirectory() as caches:
        os.environ |= {"STRATA_CACHE": f"{caches}/strata", "TORCHINDUCTOR_CACHE_DIR": caches}
        for backend in BACKENDS:
            words = [name, "--threads", str(options.threads), "--optimizer", options.optimizer]
            made = subprocess.run([sys.executable, __file__, "--worker", backend, "--only", *words],
                                  check=True, capture_output=True, text=True)
            found |= {f"{backend} {k}": v
                      for k, v in json.loads(made.stdout.splitlines()[-1]).items()}
        return found | together(name, options)


def together(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Errors of gradients, and times in turns."""
    torch.manual_seed(0)
    model = MODELS[name]().train()
    inputs, steps, found = model.inputs(), dict[str, Any](), dict[str, Any]()
    exact, twin = copy.deepcopy(model).double(), copy.deepcopy(model)
    step(exact, exact, [v.double() if v.is_floating_point() else v for v in inputs], None)
    with FlopCounterMode(display=False) as counter:
        step(twin, twin, inputs, None)
    found["flop"] = counter.get_total_flops()
    for backend in BACKENDS:
        own = copy.deepcopy(model)
        call, update = contestant(backend, own, options.optimizer)
        step(call, own, inputs, None)
        found[f"{backend} error"] = _distance(own, exact)
        step(call, own, inputs, update)
        steps[backend] = (call, own, inputs, update)
    return found | _in_turns(steps, options.rounds)


def _distance(found: nn.Module, true: nn.Module) -> float:
    """The 2-norm of the differences of all gradients, by that of the true ones."""
    far = near = 0.0
    for ours, exact in zip(found.parameters(), true.parameters(), strict=True):
        assert ours.grad is not None and exact.grad is not None
        far += float((ours.grad.double() - exact.grad).square().sum())
        near += float(exact.grad.square().sum())
    return (far / near) ** 0.5


def _in_turns(steps: dict[str, Any], rounds: int) -> dict[str, float]:
    clocks = {"ms": time.perf_counter, "processor ms": time.process_time}
    times: dict[str, list[float]] = {f"{name} {kind}": [] for name in steps for kind in clocks}
    for _ in range(rounds):
        for name, given in steps.items():
            started = {kind: clock() for kind, clock in clocks.items()}
            step(*given)
            for kind, clock in clocks.items():
                times[f"{name} {kind}"].append((clock() - started[kind]) * 1e3)
    return {name: statistics.quantiles(found, n=4)[0] for name, found in times.items()}


# ---------------------------------------------------------------------- the page
def page(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    """The table of all rows, with geometric means."""
    loads = [r["load"] for r in rows]
    lines = ["# Training on the CPU", "",
             "Made by `python benchmarks/torch/training.py`; do not edit. "
             f"Threads: {options.threads}, of {os.cpu_count()} processors; torch "
             f"{torch.__version__}, f32, {options.optimizer or 'no optimizer'}. What the columns "
             "mean is in the script's text.", "",
             f"The load of the machine by all programs was {min(loads):.0f} to {max(loads):.0f}"
             + (", so other programs had the processors for most of the time: ratios of the "
                "processors' time say more than those of the clock."
                if max(loads) > 2 * (os.cpu_count() or 1) else "."), "",
             "| model | " + " | ".join(f"{b} ms (processors)" for b in BACKENDS)
             + " | GFLOP/s | first s | memory | error |", "|---" * 8 + "|"]
    for r in rows:
        timed = (f"{r[f'{b} ms']:.1f} ({r[f'{b} processor ms']:.1f})" for b in BACKENDS)
        rate = r["flop"] / r["strata processor ms"] / 1e6 * options.threads
        each = (" / ".join(f"{r[f'{b} {kind}']:{form}}" for b in BACKENDS)
                for kind, form in (("first", ".1f"), ("memory", ".0f"), ("error", ".1e")))
        lines.append(f"| {r['model']} | {' | '.join(timed)} | {rate:.0f} | {' | '.join(each)} |")
    lines += ["", "First step, memory and error are eager mode's, Inductor's and Strata's. "
              "GFLOP/s are the model's own, as PyTorch counts them, by the processors' time.", "",
              "| geometric mean | eager / Strata | Inductor / Strata |", "|---|---|---|"]
    lines += [f"| {title} | {_mean(rows, 'eager', kind)} | {_mean(rows, 'inductor', kind)} |"
              for title, kind in (("time by the clock", "ms"),
                                  ("time of processors", "processor ms"))]
    lines += ["", "| geometric mean | Strata / Inductor |", "|---|---|"]
    lines += [f"| {kind} | {1 / float(_mean(rows, 'inductor', kind)):.2f} |"
              for kind in ("first", "memory")]
    return "\n".join([*lines, ""])


def _mean(rows: list[dict[str, Any]], peer: str, kind: str) -> str:
    gain = statistics.geometric_mean(r[f"{peer} {kind}"] / r[f"strata {kind}"] for r in rows)
    return f"{gain:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--optimizer", default="", help="such as SGD or AdamW")
    parser.add_argument("--rows", type=Path, default=Path("build/torch_training.json"))
    parser.add_argument("--worker", choices=BACKENDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.worker:
        print(json.dumps(alone(options.only, options.worker, options.optimizer)))
        return 0
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(options.rows.read_text()) if options.rows.is_file() else {}
    for name in options.only.split(","):
        known[name] = known.get(name) or row(name, options)
        print(json.dumps(known[name]), flush=True)
        options.rows.write_text(json.dumps(known, indent=1))
        (HERE / "TRAINING.md").write_text(page([known[n] for n in MODELS if n in known], options))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
