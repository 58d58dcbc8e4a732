"""One token after another with a static cache: time of a step beside the bytes that it must read.

    python benchmarks/decode/run.py [--device cuda] [--only llama-1b,qwen-0.6b] [--layers 0]
        [--batch 1,8] [--cached 512,4096] [--kind bf16,f32] [--peers eager,default,reduce-overhead]
        [--profile] [--budget 150] [--results decode.json] [-o RESULTS.md]

Each row runs in a process of its own. A step writes keys and values in place at one position of
caches of that length, through `torch.compile`; all contestants take turns. `share`: the bytes of
weights and of the live part of the caches, over the time of the step, over the rate at which this
machine copies (GPU) or reads (CPU) memory, measured in the same process. On a CPU, one thread and
its processor time. `--layers N` shortens the model. `--profile` adds the milliseconds of kernels.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PEERS = ("eager", "default", "reduce-overhead")
ROUNDS, LEAST = 7, 0.02
Row = dict[str, Any]


class InPlace:
    """A step that keeps its caches, as a user's model does."""

    def __init__(self, step: Callable[..., Any], caches: Sequence[Any]) -> None:
        self.step, self.caches = step, caches

    def __call__(self, ids: Any, position: Any) -> Any:
        scores, *new = self.step(ids, position, *self.caches)
        for old, made in zip(self.caches, new, strict=True):
            old.copy_(made)
        return scores


def measure(args: argparse.Namespace) -> Row:
    import torch
    from models import SHAPES, Step, inputs

    torch.manual_seed(0)
    if args.device == "cpu":
        torch.set_num_threads(1)
    kind = {"bf16": torch.bfloat16, "f32": torch.float32}[args.kind]
    shape = SHAPES[args.only]
    shape = replace(shape, layers=args.layers) if args.layers else shape
    step = Step(shape).to(kind).eval().to(args.device)
    ids, position, *caches = (t.to(args.device) for t in inputs(
        shape, int(args.batch), int(args.cached), int(args.cached) - 1, kind))
    weights = sum(p.numel() * p.element_size() for p in step.parameters())
    live = shape.cache_bytes(int(args.batch), int(args.cached), kind.itemsize)
    entrants: dict[str, Any] = {"eager": InPlace(step, caches)}
    own = {"threads": 1} if args.device == "cpu" else {}
    entrants["strata"] = torch.compile(_function(step, caches), backend="strata", options=own)
    for peer in [p for p in args.peers if p != "eager"]:
        entrants[peer] = torch.compile(_function(step, caches), mode=peer)
    row = Row(model=args.only, batch=int(args.batch), cached=int(args.cached), kind=args.kind,
              layers=shape.layers, bytes=weights + live, first={}, error={}, problems={})
    with torch.no_grad():
        want = step(ids, position, *caches)[0].float()
        for name in [*entrants]:
            started = time.perf_counter()
            try:
                got = entrants[name](ids, position).float()
            except Exception as error:
                row["problems"][name] = f"{type(error).__name__}: {str(error)[:300]}"
                del entrants[name]
                continue
            row["first"][name] = time.perf_counter() - started
            row["error"][name] = float((got - want).abs().max() / want.abs().max())
        row["ms"] = _in_turns({n: (lambda f=f: f(ids, position)) for n, f in entrants.items()},
                              args.device)
        row["rate"] = _rate(args.device)
        if args.profile:
            import compiler

            found = compiler.profile(step, ids, position, *caches)
            row["kernels"] = {k["name"]: [k["ms"], k["launches"]] for k in found.json["kernels"]}
    row["share"] = {n: row["bytes"] / (ms / 1e3) / row["rate"] for n, ms in row["ms"].items()}
    return row


def _function(step: Any, caches: Sequence[Any]) -> Any:
    """The same as a function that PyTorch traces: the caches are written in place."""
    def decode(ids: Any, position: Any) -> Any:
        scores, *new = step(ids, position, *caches)
        for old, made in zip(caches, new, strict=True):
            old.copy_(made)
        return scores

    return decode


def _in_turns(runs: Mapping[str, Callable[[], Any]], device: str) -> Row:
    counts = {}
    for name, run in runs.items():
        for _ in range(3):
            run()
        counts[name] = max(1, min(200, int(LEAST / max(_seconds(run, 1, device), 1e-6))))
    times: dict[str, list[float]] = {n: [] for n in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times[name].append(_seconds(run, counts[name], device))
    return {n: statistics.median(found) * 1e3 for n, found in times.items()}


def _seconds(run: Callable[[], Any], count: int, device: str) -> float:
    """Seconds of a call: of the clock on a GPU, of the processor on a CPU."""
    import torch

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    clock = time.perf_counter if device == "cuda" else time.process_time
    wait()
    started = clock()
    for _ in range(count):
        run()
    wait()
    return (clock() - started) / count


def _rate(device: str) -> float:
    """Bytes per second: of a copy, both ways, on a GPU; of a sum on a CPU."""
    import torch

    if device == "cuda":
        one = torch.empty(1 << 29, dtype=torch.int8, device=device)
        other = torch.empty_like(one)
        run = lambda: other.copy_(one)  # noqa: E731
        run()
        return 2 * one.numel() / min(_seconds(run, 10, device) for _ in range(5))
    import numpy as np

    data = np.ones(1 << 26, np.float32)  # 256 MiB
    data.sum()
    return data.nbytes / min(_seconds(data.sum, 2, device) for _ in range(7))


# ---------------------------------------------------------------------- the page
def page(rows: Sequence[Row], device: str) -> str:
    """The table in Markdown."""
    names = list(dict.fromkeys(n for r in rows for n in r.get("ms", ())))
    lines = ["# Decoding with a static cache", "", "```",
             f"python benchmarks/decode/run.py --device {device}", "```", "",
             "| model | batch | cached | type | GB | " + " | ".join(f"{n}, ms" for n in names)
             + " | share of bandwidth | error |", "|---|" + "---:|" * (len(names) + 6)]
    for r in rows:
        if "ms" in r:
            cells = [f"{r['ms'][n]:.3f}" if n in r["ms"] else "" for n in names]
            share = f"{r['share']['strata']:.2f}" if "strata" in r["share"] else ""
            error = f"{r['error']['strata']:.1e}" if "strata" in r["error"] else ""
            lines.append(f"| {r['model']}, {r['layers']} layers | {r['batch']} | {r['cached']} | "
                         f"{r['kind']} | {r['bytes'] / 1e9:.2f} | " + " | ".join(cells)
                         + f" | {share} | {error} |")
        lines += [f"\n{r['model']}: {n}: {p}" for n, p in r.get("problems", {}).items()]
    return "\n".join([*lines, ""])


# ---------------------------------------------------------------------- the command
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--only", default="llama-1b,qwen-0.6b")
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--cached", default="512,4096")
    parser.add_argument("--kind", default="bf16")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--budget", type=float, default=600)
    parser.add_argument("--results", type=Path, default=HERE / "figures.json")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--row", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.peers = [p for p in args.peers.split(",") if p]
    if args.row:
        print(json.dumps(measure(args)), flush=True)
        return 0
    rows: list[Row] = []
    for row in _rows(args):
        rows.append(row)
        args.results.write_text(json.dumps(rows, indent=1), encoding="utf-8")
        if args.output:
            args.output.write_text(page(rows, args.device), encoding="utf-8")
    return int(any(r.get("problems") for r in rows))


def _rows(args: argparse.Namespace) -> Iterator[Row]:
    """The rows, each in a process of its own with its part of the budget."""
    ends = time.time() + args.budget
    wanted = [*product(args.only.split(","), args.kind.split(","), args.batch.split(","),
                       args.cached.split(","))]
    for number, (model, kind, batch, cached) in enumerate(wanted):
        part = max(10.0, (ends - time.time()) / (len(wanted) - number))
        command = [sys.executable, str(Path(__file__)), *sys.argv[1:], "--row", "--only", model,
                   "--kind", kind, "--batch", batch, "--cached", cached]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT,
                                  timeout=part)
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            problem = "" if lines else done.stderr.strip()[-400:] or f"status {done.returncode}"
        except subprocess.TimeoutExpired:
            lines, problem = [], f"not measured within {part:.0f} s"
        row = json.loads(lines[-1]) if lines else Row(
            model=model, batch=batch, cached=cached, kind=kind, problems={"all": problem})
        print({k: v for k, v in row.items() if k != "kernels"}, flush=True)
        yield row


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
