"""What people say about compilers, measured on this machine, for PyTorch and for Strata.

    python benchmarks/claims.py [--device cpu|cuda] [--only softmax,memory] [--threads 1]

Each claim is a factor: how many times as fast, or as small, one way is than another. The figures
are kept in claims.json beside this file, one table for each device, from which CLAIMS.md is
written; `--only` replaces some rows, and `--only ""` writes the page alone. Times are medians of
rounds in turns, with 95% intervals; where other programs have the processor, on one thread, of its
time. Exit status: 0 when everything was measured, 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

HERE = Path(__file__).parent
FIGURES, PAGE = HERE / "claims.json", HERE / "CLAIMS.md"
ROUNDS = 15
MARGIN = 1.1
"""A measured factor may be this far outside what is said and still count as what is said."""
Run = Callable[[], Any]
Row = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """`said`: what people say; `low` to `high`: the factor that it amounts to. `what`: the two ways
    whose times, or bytes, are divided: of PyTorch, and of Strata."""

    said: str
    low: float
    high: float
    torch: str
    strata: str


CLAIMS = {
    "softmax": Claim(
        "a softmax in one kernel is 1.5 to 2 times as fast as eager", 1.5, 2.0,
        "softmax from five operators: eager, and torch.compile",
        "the same: --strategy per-op, and block"),
    "dynamic": Claim(
        "dynamic shapes reach 93% of the speed of static ones", 0.93, 0.93,
        "torch.compile: static, and dynamic=True", "static, and an open batch"),
    "layout": Claim(
        "channels last makes convolutions 19% faster", 1.19, 1.19,
        "eager: contiguous, and channels_last", "--without layout, and with it"),
    "folding": Claim(
        "folding batch normalization saves 30 to 50% of the time", 1.43, 2.0,
        "eager: as trained, and fuse_conv_bn_eval",
        "--without fold,simplify, and with them"),
    "memory": Claim(
        "reuse saves most of the memory for intermediate values", 2.0, 20.0,
        "eager: all results, and the most that are alive at once",
        "all buffers, and the arena"),
    "graphs": Claim(
        "one launch (a CUDA graph) makes small models 2 times as fast", 1.5, 3.0,
        "eager, and replayed as a CUDA graph (on a CPU: none)",
        "--without one-launch, and with it"),
}


# ---------------------------------------------------------------------- models
def softmax_of(x: Any) -> Any:
    """Written with elementary operators, as the claim means it."""
    z = x - x.amax(-1, keepdim=True)
    e = z.exp()
    return e / e.sum(-1, keepdim=True)


def networks(device: str) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """The model of each claim, and its inputs; larger ones for a GPU."""
    import torch
    from torch import nn

    class Softmax(nn.Module):
        def forward(self, x: Any) -> Any:
            return softmax_of(x)

    torch.manual_seed(0)
    large = device == "cuda"
    side, batch, width = (4096, 16, 64) if large else (1024, 1, 32)
    layers = [m for k in range(6) for m in (
        nn.Conv2d(3 if k == 0 else width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width), nn.ReLU())]
    convolutions = nn.Sequential(*layers)
    with torch.no_grad():
        for layer in layers:
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.normal_(0, 0.1)
                layer.running_var.uniform_(0.5, 1.5)
    small = nn.Sequential(*(m for _ in range(12) for m in (nn.Linear(64, 64), nn.ReLU())))
    perceptron = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.LayerNorm(2048),
                               nn.Linear(2048, 512), nn.Softmax(-1))
    images = torch.randn(batch, 3, 224 if large else 112, 224 if large else 112)
    rows = torch.randn(8192 if large else 128, 512)
    made = {"softmax": (Softmax(), (torch.randn(side, side),)), "dynamic": (perceptron, (rows,)),
            "layout": (convolutions, (images,)), "folding": (convolutions, (images,)),
            "memory": (convolutions, (images,)), "graphs": (small, (torch.randn(8, 64),))}
    return {name: (module.eval().to(device), tuple(x.to(device) for x in inputs))
            for name, (module, inputs) in made.items()}


# ---------------------------------------------------------------------- PyTorch
def of_torch(name: str, module: Any, inputs: tuple[Any, ...]) -> tuple[Run, Run] | tuple[int, int]:
    """The two ways of a claim in PyTorch: two runs, or two numbers of bytes."""
    import copy

    import torch
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    def eager(chosen: Any, *given: Any) -> Run:
        return _called(lambda: chosen(*given), given[0].device.type)

    def folded(sequence: Any) -> Any:
        layers = list(copy.deepcopy(sequence))
        return torch.nn.Sequential(*(fuse_conv_bn_eval(a, b) if isinstance(a, torch.nn.Conv2d)
                                     else torch.nn.Identity() if isinstance(
                                         a, torch.nn.BatchNorm2d) else a
                                     for a, b in zip(layers, [*layers[1:], None], strict=True)))

    match name:
        case "softmax":
            return eager(module, *inputs), eager(torch.compile(module), *inputs)
        case "dynamic":
            torch._dynamo.reset()
            static = torch.compile(copy.deepcopy(module), dynamic=False)
            return eager(static, *inputs), eager(torch.compile(module, dynamic=True), *inputs)
        case "layout":
            last = copy.deepcopy(module).to(memory_format=torch.channels_last)
            return eager(module, *inputs), eager(last, *(
                x.to(memory_format=torch.channels_last) for x in inputs))
        case "folding":
            return eager(module, *inputs), eager(folded(module), *inputs)
        case "memory":
            return eager_memory(module, inputs)
        case _:
            return eager(module, *inputs), _replayed(module, inputs)


def _called(call: Run, device: str) -> Run:
    """A call that ends when its result is there."""
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def run() -> Any:
        with torch.inference_mode():
            found = call()
        wait()
        return found

    return run


def _replayed(module: Any, inputs: tuple[Any, ...]) -> Run:
    """A CUDA graph of a module. Raises RuntimeError where there is none."""
    import torch

    if inputs[0].device.type != "cuda":
        raise RuntimeError("there are no CUDA graphs on a CPU")
    with torch.inference_mode():
        module(*inputs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            module(*inputs)
    return _called(graph.replay, "cuda")


def eager_memory(module: Any, inputs: tuple[Any, ...]) -> tuple[int, int]:
    """The bytes of all new results of operators, and the most that are alive at once."""
    import weakref

    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.known = {x.untyped_storage().data_ptr() for x in (
                *inputs, *module.parameters(), *module.buffers())}
            self.all = self.alive = self.most = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None
                               ) -> Any:
            found = func(*args, **(kwargs or {}))
            for x in torch.utils._pytree.tree_leaves(found):
                if isinstance(x, torch.Tensor):
                    self.add(x)
            return found

        def add(self, x: Any) -> None:
            storage = x.untyped_storage()
            if storage.data_ptr() in self.known:
                return
            self.known.add(storage.data_ptr())
            self.all += storage.nbytes()
            self.alive += storage.nbytes()
            self.most = max(self.most, self.alive)
            weakref.finalize(storage, self.free, storage.data_ptr(), storage.nbytes())

        def free(self, place: int, size: int) -> None:
            self.known.discard(place)
            self.alive -= size

    watch = Watch()
    with torch.inference_mode(), watch:
        module(*inputs)
    return watch.all, watch.most


# ---------------------------------------------------------------------- Strata
def of_strata(
    name: str, module: Any, inputs: tuple[Any, ...], device: str, threads: int
) -> tuple[Run, Run] | tuple[int, int]:
    """The two ways of a claim in Strata: two runs, or two numbers of bytes."""
    import torch

    import compiler

    def made(dynamic: bool = False, **options: Any) -> Run:
        shapes = ({0: torch.export.Dim("batch", min=2, max=1 << 16)},) if dynamic else None
        with torch.no_grad():
            program = torch.export.export(module, inputs, dynamic_shapes=shapes)
        executable = compiler.compile(program, target=device, **{
            **({"threads": threads} if device == "cpu" else {}), **options})
        return _called(lambda: executable(*inputs), device)

    match name:
        case "softmax":
            return made(strategy="per-op"), made(strategy="block")
        case "dynamic":
            return made(), made(dynamic=True)
        case "layout":
            return made(without_groups=("layout",)), made()
        case "folding":
            return made(without_groups=("fold", "simplify")), made()
        case "memory":
            return planned(module, inputs, device)
        case _:
            return made(without_groups=("one-launch",)), made()


def planned(module: Any, inputs: tuple[Any, ...], device: str) -> tuple[int, int]:
    """The bytes of all buffers of the compiled program, and those of its arena."""
    import torch

    from compiler.explaining.collect import Explanation
    from compiler.frontend import model_of
    from compiler.options import CompileOptions
    from compiler.pipeline.driver import Compiler

    found = Explanation(target=device)
    with torch.no_grad():
        program = torch.export.export(module, inputs)
    Compiler(model_of(program), CompileOptions(target=device), [found]).lower()
    return found.memory["all_buffers"], found.memory["arena"]


# ---------------------------------------------------------------------- measuring
def measure(name: str, device: str, threads: int) -> Row:
    """The factors of a claim, each [low, median, high], or why there is none."""
    module, inputs = networks(device)[name]
    with one_setting(threads):
        return {"torch": _factor(lambda: of_torch(name, module, inputs), device, threads),
                "strata": _factor(lambda: of_strata(name, module, inputs, device, threads),
                                  device, threads)}


@contextmanager
def one_setting(threads: int) -> Iterator[None]:
    """PyTorch on this number of threads, without what it keeps of earlier claims."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch._dynamo.reset()
    yield
    torch.set_num_threads(before)


def _factor(ways: Callable[[], tuple[Any, Any]], device: str, threads: int) -> Row:
    from compiler.measuring.contest import Waiting, intervals

    try:
        one, other = ways()
        if isinstance(one, int):  # bytes
            return {"bytes": [one, other], "factor": [one / other] * 3}
        times = intervals({"one": one, "other": other}, ROUNDS, threads,
                          waiting=Waiting() if device == "cpu" else None)
    except Exception as error:  # of a compiler that lacks something here, in any way
        return {"problem": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
    slow, fast = times["one"], times["other"]
    return {"ms": [list(slow), list(fast)],
            "factor": [slow.low / fast.high, slow.median / fast.median, slow.high / fast.low]}


def verdict(claim: Claim, row: Row) -> str:
    """Whether what people say is so here: yes, more, less, unclear, or not measured."""
    if "problem" in row:
        return "not measured"
    low, middle, high = row["factor"]
    if claim.low / MARGIN <= middle <= claim.high * MARGIN:
        return "yes"
    if high < claim.low / MARGIN:
        return "less"
    return "more" if low > claim.high * MARGIN else "unclear"


# ---------------------------------------------------------------------- the page
def page(figures: Mapping[str, Any]) -> str:
    lines = ["# What people say, measured", "", "```", "python benchmarks/claims.py", "```", "",
             fill("Each factor says how many times as fast, or as small, the second way is than "
                  "the first, with its 95% interval. `yes`: it is within 10% of what people say; "
                  "`more` and `less`: all of the interval is above or below that; `unclear`: the "
                  "interval is too wide to tell. Where other programs had the processor, times on "
                  "one thread are of the processor. The models are small and made for the claims "
                  "(`networks` in [the script](claims.py)).", 120)]
    for found in figures.values():
        load = f" The machine's load before the run was {found['load']} processes." if (
            "load" in found) else ""
        lines += ["", f"## {found['machine']}", "", fill(
            f"{', '.join(found['versions'])}.{load}", 120),
                  "", *_table(found["rows"])]
        problems = [f"- {name}, {side}: {row[side]['problem']}" for name, row in
                    found["rows"].items() for side in ("torch", "strata") if "problem" in row[side]]
        lines += ["", "Not measured:", "", *problems] if problems else []
    return "\n".join([*lines, ""])


def _table(rows: Mapping[str, Row]) -> list[str]:
    head = ["what people say", "in PyTorch", "factor", "so?", "in Strata", "factor", "so?"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name, claim in CLAIMS.items():
        if name in rows:
            row = rows[name]
            cells = [claim.said, claim.torch, _shown(row["torch"]), verdict(claim, row["torch"]),
                     claim.strata, _shown(row["strata"]), verdict(claim, row["strata"])]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _shown(row: Row) -> str:
    if "problem" in row:
        return "-"
    low, middle, high = row["factor"]
    return f"{middle:.2f}" if "bytes" in row else f"{middle:.2f} ({low:.2f} to {high:.2f})"


def about(device: str, threads: int) -> Row:
    """The machine and the versions."""
    import torch

    from compiler.faults import versions
    from targets.cpu.machine import machine_of

    machine = torch.cuda.get_device_name() if device == "cuda" else (
        f"A CPU with {machine_of().name}, {threads} thread(s)")
    known = [v for v in versions() if v.split()[0] in ("python", "torch", "triton", "llvmlite")]
    return {"machine": machine, "load": round(os.getloadavg()[0], 1), "versions": known}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", default=",".join(CLAIMS))
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    figures = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
    names = [name for name in arguments.only.split(",") if name]
    if names:
        known = figures.get(arguments.device, {}).get("rows", {})
        figures[arguments.device] = {**about(arguments.device, arguments.threads), "rows": known}
    for name in names:
        print(f"{name} ...", flush=True)
        known[name] = measure(name, arguments.device, arguments.threads)
        write(figures)
    write(figures)
    bad = [name for name in names if name in CLAIMS for row in known[name].values()
           if "problem" in row and "no CUDA graphs" not in row["problem"]]
    print(f"not measured: {', '.join(bad)}" if bad else "all measured")
    return int(bool(bad))


def write(figures: Mapping[str, Any]) -> None:
    """Keep the figures, and write the page that shows them."""
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(figures), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
