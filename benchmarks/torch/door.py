"""What the door costs: `torch.compile(backend="strata")` beside PyTorch's own backend.

    python benchmarks/torch/door.py [--only host,layers] [--device cpu] [--seconds 500]

Rows, each in a process of its own:

    host    microseconds per call of graphs that compute almost nothing: 1, 32 and 300 inputs, open
            sizes, and 100 weights. Eager, Inductor and Strata in turns of 20 calls, on a GPU also
            Inductor's mode reduce-overhead; medians. On a CPU it is the process's time, which other
            programs of the machine prolong less. On a GPU, each turn begins when the device has
            nothing to do, so that no call waits for it.
    again   compilations after the first: a bias changed, 12 equal blocks, 20 adapters in turn.
    layers  seconds in the backend for 2 and for 32 equal layers, all caches empty, and their ratio;
            on a CPU the process's own.
    first   seconds to the first result, and in the backend, of an encoder of BERT-base's size, all
            caches empty; beside Inductor.
    kept    the same in a second process, which finds what the first has compiled.

Rows that do not fit the time are left out, and named. The page is DOOR.md beside this file, that of
a GPU DOOR_CUDA.md; rows that `--only` does not name stay there as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROWS = ("host", "again", "layers", "first", "kept")
BACKENDS, GRAPHS = (("inductor", None), ("strata", None)), ("inductor", "reduce-overhead")
ROUNDS, CALLS = 201, 20


# ---------------------------------------------------------------------- models
def block(width: int) -> Any:
    """A residual block of a transformer without attention."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.act = nn.LayerNorm(width), nn.GELU()
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            return x + self.down(self.act(self.up(self.norm(x))))

    return Block()


def encoder(layers: int, width: int = 768, heads: int = 12) -> Any:
    """Layers as in BERT, with attention from PyTorch's operators."""
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)

        def forward(self, x: Any) -> Any:
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2)
                       for part in self.qkv(self.norm(x)).chunk(3, -1))
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            return x + self.out(mixed.transpose(1, 2).flatten(2))

    return nn.Sequential(*(nn.Sequential(Attention(), block(width)) for _ in range(layers))).eval()


def total(*values: Any) -> Any:
    result = values[0]
    for value in values[1:]:
        result = result + value
    return result


# ---------------------------------------------------------------------- rows
def host(device: str) -> list[dict[str, Any]]:
    import torch

    torch.set_num_threads(1)
    small = [torch.randn(4, device=device) for _ in range(300)]
    deep = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(50))).eval().to(device)
    cases: dict[str, tuple[Callable[..., Any], Sequence[Any], bool | None]] = {
        "1 input": (lambda x: x + 1, small[:1], None), "32 inputs": (total, small[:32], None),
        "300 inputs": (total, small, None), "open size": (lambda x: x + 1, small[:1], True),
        "100 weights": (deep, [torch.randn(2, 4, device=device)], None)}
    rows: list[dict[str, Any]] = []
    for name, (function, inputs, dynamic) in cases.items():
        calls: dict[str, Callable[..., Any]] = {"eager": function}
        for backend, mode in BACKENDS if device == "cpu" else (*BACKENDS, GRAPHS):
            torch._dynamo.reset()
            calls[mode or backend] = torch.compile(function, backend=backend, mode=mode,
                                                   dynamic=dynamic)
        rows.append({"what": name, **_in_turns(calls, inputs)})
    return rows


def _in_turns(
    calls: dict[str, Callable[..., Any]], inputs: Sequence[Any]
) -> dict[str, float]:
    """The median microseconds per call of each."""
    import torch

    on_gpu = inputs[0].is_cuda
    clock = time.perf_counter if on_gpu else time.process_time
    times: dict[str, list[float]] = {name: [] for name in calls}
    with torch.no_grad():
        for call in calls.values():
            for _ in range(10):
                call(*inputs)
        for _ in range(ROUNDS):
            for name, call in calls.items():
                if on_gpu:
                    torch.cuda.synchronize()
                started = clock()
                for _ in range(CALLS):
                    call(*inputs)
                times[name].append((clock() - started) / CALLS * 1e6)
    return {name: statistics.median(found) for name, found in times.items()}


def again(device: str) -> list[dict[str, Any]]:
    import torch

    x, rows = torch.randn(8, 64, device=device), list[dict[str, Any]]()

    def count(what: str, prepare: Callable[[], list[Callable[[], Any]]]) -> None:
        torch._dynamo.reset()
        steps, made = prepare(), _compilations()
        with torch.no_grad():
            steps[0]()
            first, started = len(made), time.perf_counter()
            for step in steps[1:]:
                step()
        rows.append({"what": what, "compilations": len(made) - first,
                     "steps": len(steps) - 1,
                     "ms per step": (time.perf_counter() - started) * 1e3 / (len(steps) - 1)})

    def bias() -> list[Callable[[], Any]]:
        net = torch.nn.Sequential(*(block(64) for _ in range(4))).eval().to(device)
        fast = torch.compile(net, backend="strata")

        def change() -> Any:
            net[1].up.bias.add_(1)
            return fast(x)
        return [lambda: fast(x), change]

    def blocks() -> list[Callable[[], Any]]:
        nets = [block(64).eval().to(device) for _ in range(12)]
        for net in nets:
            net.compile(backend="strata")
        return [lambda net=net: net(x) for net in nets]

    def adapters() -> list[Callable[[], Any]]:
        net = block(64).eval().to(device)
        each = [torch.nn.Linear(64, 256).to(device) for _ in range(20)]
        fast = torch.compile(net, backend="strata")

        def swap(adapter: Any) -> Any:
            net.up = adapter
            return fast(x)
        return [lambda: fast(x), *[lambda a=a: swap(a) for a in each]]

    count("one bias changed", bias)
    count("12 equal blocks", blocks)
    count("20 adapters in turn", adapters)
    return rows


def _compilations() -> list[Any]:
    """A list to which every compilation of a graph is added from now on."""
    from compiler.torch import backend

    made, original = list[Any](), backend.compile_graph

    def compile_graph(*arguments: Any) -> Any:
        made.append(arguments)
        return original(*arguments)

    backend.compile_graph = compile_graph  # type: ignore[assignment]
    return made


def layers(device: str) -> list[dict[str, Any]]:
    clock = time.process_time if device == "cpu" else time.perf_counter
    rows = [{"what": f"{count} layers", **_first(encoder(count, 256, 4), (1, 64, 256), "strata",
                                                 device, clock)}
            for count in (2, 32)]
    return [*rows, {"what": "ratio", "backend": rows[1]["backend"] / rows[0]["backend"]}]


def first(device: str) -> list[dict[str, Any]]:
    return [{"what": backend, **_first(encoder(12), (1, 128, 768), backend, device)}
            for backend in ("inductor", "strata")]


def kept(device: str) -> list[dict[str, Any]]:
    """Seconds of second processes, in turns, after one that fills the caches."""
    rows: dict[str, list[dict[str, float]]] = {"inductor": [], "strata": []}
    for backend in [*rows, *rows, *rows, *rows]:
        code = ("import json, door; print(json.dumps(door._first(door.encoder(12), (1, 128, 768), "
                f"{backend!r}, {device!r})))")
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True,
                              text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(
                                  [str(HERE), os.environ.get("PYTHONPATH", "")])})
        rows[backend].append(json.loads(done.stdout.splitlines()[-1]))
    return [{"what": backend, **{key: statistics.median(row[key] for row in found[1:])
                                 for key in found[0]}} for backend, found in rows.items()]


def _first(
    model: Any, shape: Sequence[int], backend: str, device: str,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Seconds to the first result, and those within the backend."""
    import torch
    from torch._dynamo.utils import compile_times

    torch._dynamo.reset()
    compile_times(repr="csv")
    model, x, seconds = model.to(device), torch.randn(shape, device=device), [0.0]
    chosen = _timed(seconds, clock) if backend == "strata" else backend
    started = clock()
    with torch.no_grad():
        torch.compile(model, backend=chosen)(x)
        if device != "cpu":
            torch.cuda.synchronize()
    whole = clock() - started
    if backend != "strata":
        names, values = compile_times(repr="csv")
        found = dict(zip(names, values, strict=True))
        seconds[0] = sum(float(v) for k in found if k.endswith("compile_fx_inner")
                         for v in found[k].split(","))
    return {"whole": whole, "backend": seconds[0]}


def _timed(seconds: list[float], clock: Callable[[], float]) -> Any:
    """The backend; the time of its compilations is added to `seconds`."""
    from compiler.torch import backend

    original = backend.compile_graph

    def compile_graph(*arguments: Any) -> Any:
        started = clock()
        try:
            return original(*arguments)
        finally:
            seconds[0] += clock() - started

    backend.compile_graph = compile_graph  # type: ignore[assignment]
    return backend.strata


# ---------------------------------------------------------------------- the page
def page(sections: Mapping[str, str], device: str, left_out: Sequence[str]) -> str:
    rows = str(__doc__).split("of its own:")[1].split("Rows that")[0].strip("\n")
    lines = [f"# What torch.compile costs, on {device}", "", "```",
             f"python benchmarks/torch/door.py --device {device}", "```", "", rows, ""]
    lines += [f"Left out for want of time: {', '.join(left_out)}.", ""] if left_out else []
    for name in ROWS:
        lines += [f"## {name}", "", sections[name], ""] if name in sections else []
    return "\n".join(lines)


def sections_of(text: str) -> dict[str, str]:
    """The tables of a page, by the names of their rows."""
    found = (part.partition("\n") for part in text.split("\n## ")[1:])
    return {name: table.strip("\n") for name, _, table in found}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [" | ".join(_cell(row.get(key, "")) for key in columns) for row in rows]
    return "\n".join([f"| {' | '.join(columns)} |", "|---" * len(columns) + "|",
                      *(f"| {line} |" for line in lines)])


def _load() -> str:
    """What else the machine did: seconds grow with it, ratios hardly."""
    return (f"The machine's load was {os.getloadavg()[1]:.1f} in the last five minutes, on "
            f"{os.cpu_count()} processors.")


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(ROWS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.row:
        print(json.dumps(globals()[arguments.row](arguments.device)))
        return
    path = HERE / ("DOOR.md" if arguments.device == "cpu" else "DOOR_CUDA.md")
    sections = sections_of(path.read_text()) if path.exists() else {}
    left_out = list[str]()
    until = time.monotonic() + arguments.seconds
    for name in arguments.only.split(","):
        rows = _alone(name, arguments.device, until - time.monotonic())
        if rows is None:
            left_out.append(name)
        else:
            sections[name] = f"{table(rows)}\n\n{_load()}"
        path.write_text(page(sections, arguments.device, left_out))


def _alone(name: str, device: str, seconds: float) -> list[dict[str, Any]] | None:
    """A row's figures, from a process whose caches are empty; None if the time is over."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {"STRATA_CACHE": f"{folder}/strata", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/torch"}
        try:
            done = subprocess.run(
                [sys.executable, __file__, "--row", name, "--device", device], check=True,
                capture_output=True, text=True, timeout=max(1.0, seconds),
                env={**os.environ, **caches})
        except subprocess.TimeoutExpired:
            return None
        except subprocess.CalledProcessError as error:
            sys.exit(f"{name}: {error.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
