"""Tensor parallelism over the GPUs of one host: four layers in the shape of Llama 8B, in bf16.

    torchrun --nproc-per-node 2 benchmarks/distributed/tensor_parallel.py -o TENSOR_PARALLEL.md

All contestants run the same modules, on one GPU and divided by `parallelize_module`: eager PyTorch,
`torch.compile` in its default mode and with CUDA graphs (`reduce-overhead`), and Strata. They are
measured in turns, in milliseconds of the device on the slower rank; medians. A kernel that waits
hides the host's part of a call, up to about three milliseconds. `--timeline` also writes what runs
on the devices during a call of the divided models, and how much of the exchanges overlaps other
work. `--tiny` uses gloo and small layers on the CPU, to find mistakes of this script.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import timeline
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

COLUMNS, ROWS = ("query", "key", "value", "gate", "up"), ("out", "down")
PEERS = ("eager", "default", "reduce-overhead")
WAYS = (*PEERS, "strata")
WAIT = 6_000_000
"""Clock ticks for which a kernel waits before each call."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a model. `keys`: heads of keys and values."""

    width: int = 4096
    heads: int = 32
    keys: int = 8
    hidden: int = 14336
    layers: int = 4

    @property
    def head(self) -> int:
        return self.width // self.heads


@dataclass(frozen=True)
class Case:
    """What is computed: `rows` new tokens of `batch` sequences, after `past` cached ones."""

    name: str
    batch: int
    rows: int
    past: int


CASES = (Case("decode, batch 1, 2,048 cached", 1, 1, 2048),
         Case("decode, batch 16, 2,048 cached", 16, 1, 2048),
         Case("prefill of 2,048", 1, 2048, 0))
TINY = (Case("decode", 2, 1, 8), Case("prefill", 1, 16, 0))


# ---------------------------------------------------------------------- the model
class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)
        return (wide * scale).to(x.dtype) * self.weight


class Layer(nn.Module):
    """Attention with fewer heads of keys than of queries, and a gated MLP."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, head = shape.width, shape.head
        self.head = head

        def linear(given: int, got: int) -> nn.Linear:
            return nn.Linear(given, got, bias=False)

        self.first, self.second = RmsNorm(width), RmsNorm(width)
        self.query = linear(width, shape.heads * head)
        self.key, self.value = (linear(width, shape.keys * head) for _ in range(2))
        self.out, self.down = linear(width, width), linear(shape.hidden, width)
        self.gate, self.up = (linear(width, shape.hidden) for _ in range(2))

    def forward(self, x: torch.Tensor, keys: Any, values: Any) -> torch.Tensor:
        batch, rows, _ = x.shape
        h = self.first(x)
        q, k, v = (part(h).view(batch, rows, -1, self.head).transpose(1, 2)
                   for part in (self.query, self.key, self.value))
        if keys is not None:
            k, v = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        a = nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=keys is None, enable_gqa=True)
        x = x + self.out(a.transpose(1, 2).reshape(batch, rows, -1))
        h = self.second(x)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))

    def forward(self, x: torch.Tensor, keys: Any = None, values: Any = None) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, keys, values)
        return x


# ---------------------------------------------------------------------- one case
@dataclass
class Contestant:
    """A way of running a model. `failure`: why it does not run, or empty."""

    name: str
    call: Callable[[], torch.Tensor]
    times: list[float] = field(default_factory=list)
    error: float = 0.0
    failure: str = ""


class Measured:
    """One case on the device of this rank, in all ways."""

    def __init__(
        self, case: Case, shape: Shape, device: torch.device, ways: Sequence[str] = WAYS
    ) -> None:
        self.case, self.device = case, device
        count, rank = dist.get_world_size(), dist.get_rank()
        torch.manual_seed(0)
        one = Model(shape).bfloat16().to(device).eval()
        divided = Model(shape).bfloat16().to(device).eval()
        divided.load_state_dict(one.state_dict())
        mesh = init_device_mesh(device.type, (count,))
        for layer in divided.layers:
            parallelize_module(layer, mesh, {
                **{name: ColwiseParallel() for name in COLUMNS},
                **{name: RowwiseParallel() for name in ROWS}})
        x, cache = self._inputs(case, shape)
        part = shape.keys // count
        own = [c[:, rank * part: (rank + 1) * part].contiguous() for c in cache]
        self.contestants = [Contestant(f"{where} {way}", self._made(model, way, (x, *inputs)))
                            for where, model, inputs in (("one", one, cache), ("all", divided, own))
                            for way in ways]
        self._wanted = self._made(one, "eager", (x, *cache))

    def _inputs(self, case: Case, shape: Shape) -> tuple[torch.Tensor, list[torch.Tensor]]:
        generator = torch.Generator(self.device).manual_seed(1)

        def random(*sizes: int) -> torch.Tensor:
            return torch.randn(*sizes, generator=generator, device=self.device,
                               dtype=torch.bfloat16)

        x = random(case.batch, case.rows, shape.width)
        sizes = case.batch, shape.keys, case.past, shape.head
        return x, [random(*sizes) for _ in range(2)] if case.past else []

    @staticmethod
    def _made(model: Model, way: str, inputs: Sequence[torch.Tensor]) -> Callable[[], Any]:
        if way == "eager":
            return lambda: model(*inputs)
        options: dict[str, Any] = {"mode": way} if way in PEERS else {"backend": "strata"}
        step = torch.compile(model, dynamic=False, fullgraph=True, **options)
        return lambda: step(*inputs)

    def warm(self) -> None:
        """Compile each, and compare it with eager mode on one device."""
        wanted = self._wanted().float().clone()
        for contestant in self.contestants:
            started = time.perf_counter()
            try:
                for _ in range(4):
                    got = contestant.call().float()
                contestant.error = float((got - wanted).norm() / wanted.norm())
            except Exception as error:
                contestant.failure = f"{type(error).__name__}: {str(error)[:300]}"
            contestant.failure = _of_any_rank(contestant.failure)
            say(f"{contestant.name}: {contestant.failure or 'ready'} after "
                f"{time.perf_counter() - started:.1f} s")

    def measure(self, turns: int, calls: int) -> None:
        """In turns, so that all see the same clocks."""
        for turn in range(turns):
            order = self.contestants if turn % 2 == 0 else self.contestants[::-1]
            for contestant in order:
                if not contestant.failure:
                    contestant.times += [self._timed(contestant.call) for _ in range(calls)]

    def _timed(self, call: Callable[[], Any]) -> float:
        """Milliseconds of the device for a call, on the slower rank."""
        dist.barrier()
        if self.device.type == "cpu":
            started = time.perf_counter()
            call()
            found = 1e3 * (time.perf_counter() - started)
        else:
            torch.cuda.synchronize()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(WAIT)
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            found = start.elapsed_time(end)
        slower = torch.tensor([found], device=self.device)
        dist.all_reduce(slower, op=dist.ReduceOp.MAX)
        return slower.item()

    def timelines(self) -> str:
        """What the devices do in a call of the divided models; all of it on the first rank."""
        said: list[str] = []
        for contestant in self.contestants:
            if not contestant.name.startswith("all") or contestant.failure:
                continue
            dist.barrier()
            spans = timeline.recorded(contestant.call)
            found: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(found, timeline.summary(spans))
            said += [f"{self.case.name}, {contestant.name}",
                     *(f"  rank {k}: {text}" for k, text in enumerate(found))]
            if contestant.name.endswith("strata"):
                said.append(timeline.listing(spans))
        return "\n".join(said) + "\n"

    def rows(self) -> list[dict[str, Any]]:
        return [{"case": self.case.name, "way": c.name, "error": c.error, "failure": c.failure,
                 "ms": statistics.median(c.times) if c.times else None} for c in self.contestants]


def _of_any_rank(failure: str) -> str:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, failure)
    return next(filter(None, found), "")


# ---------------------------------------------------------------------- the page
def say(text: str) -> None:
    if dist.get_rank() == 0:
        print(text, flush=True)


def page(rows: Sequence[dict[str, Any]], machine: str) -> str:
    """A table with a row per case and place, and a column per way."""
    found = {(r["case"], r["way"]): r for r in rows}
    ways = list(dict.fromkeys(r["way"].partition(" ")[2] for r in rows))
    lines = ["# Tensor parallelism", "", machine, "",
             "| case | GPUs | " + " | ".join(ways) + " | best peer / Strata | error |",
             "|---|---|" + "---:|" * (len(ways) + 2)]
    for case in dict.fromkeys(r["case"] for r in rows):
        for place in ("one", "all"):
            of = {way: found[case, f"{place} {way}"] for way in ways}
            cells = ["fails" if r["ms"] is None else f"{r['ms']:.3f}" for r in of.values()]
            peers = [of[w]["ms"] for w in PEERS if w in of and of[w]["ms"] is not None]
            own = of["strata"]["ms"] if "strata" in of else None
            ratio = f"{min(peers) / own:.2f}x" if own and peers else ""
            error = f"{of['strata']['error']:.1e}" if "strata" in of else ""
            lines.append(f"| {case} | {place} | {' | '.join(cells)} | {ratio} | {error} |")
    lines += [f"\n{r['case']}, {r['way']}: {r['failure']}" for r in rows if r["failure"]]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, help="the page; a .json beside it has all")
    parser.add_argument("--tiny", action="store_true", help="small layers, on the CPU")
    parser.add_argument("--only", default="", help="the cases whose names contain this text")
    parser.add_argument("--ways", default=",".join(WAYS), help="some of them, with commas between")
    parser.add_argument("--timeline", type=Path, help="a file for what runs on the devices")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--calls", type=int, default=5, help="calls per turn")
    options = parser.parse_args()
    ways = options.ways.split(",")
    if unknown := {*ways} - {*WAYS}:
        parser.error(f"there is no way {', '.join(sorted(unknown))}")
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cpu") if options.tiny else torch.device("cuda", rank)
    if not options.tiny:
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if options.tiny else "nccl")
    torch.set_grad_enabled(False)
    shape = Shape(64, 4, 2, 96, 2) if options.tiny else Shape()
    name = "CPU" if options.tiny else torch.cuda.get_device_name()
    machine = f"{dist.get_world_size()} x {name}, PyTorch {torch.__version__}; milliseconds."
    rows: list[dict[str, Any]] = []
    for case in [c for c in (TINY if options.tiny else CASES) if options.only in c.name]:
        say(f"-- {case.name}")
        torch._dynamo.reset()
        measured = Measured(case, shape, device, ways)
        measured.warm()
        measured.measure(options.turns, options.calls)
        rows += measured.rows()
        if rank == 0:
            say(page(rows, machine))
            if options.output:
                options.output.write_text(page(rows, machine))
                options.output.with_suffix(".json").write_text(json.dumps(rows, indent=1))
        if options.timeline:
            said = measured.timelines()
            if rank == 0:
                with options.timeline.open("a") as file:
                    file.write(said)
        del measured
        torch._dynamo.reset()
        gc.collect()  # NCCL waits for graphs that hold its kernels
    dist.barrier()
    os._exit(0)  # NCCL would wait for all graphs that hold its kernels, of which PyTorch keeps some


if __name__ == "__main__":
    main()
