"""One program for all sizes beside a program per size, and beside PyTorch's ways.

    python benchmarks/sizes/run.py [--device cuda] [--only bert,llama] [--sizes 6] [--small]
        [--peers eager,default,reduce-overhead] [--profile 2] [--budget 150]
        [--results sizes.json] [-o RESULTS.md]

Each model of `models.py` runs in a process of its own. It is exported once with open sizes, and
compiled once as it is ("open"), once for each set of sizes ("static"), and through
`torch.compile(dynamic=True)` ("door"). The peers are `torch.compile(dynamic=True)` in two modes and
eager mode. At each set of sizes all take turns; reported are medians of milliseconds per call, on a
GPU of calls in a row with one wait at their end, on a CPU of one thread. `new`: milliseconds of the
first call at a set of sizes with the open program, beyond a later call. `share`: static / open.
`--profile N` adds milliseconds by kernel at the first N sets of sizes. `--small` shrinks the models
to check the script. What does not fit `--budget` (seconds, shared by the models) is left out and
named. Results are kept as they come.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MODELS = ("bert", "llama", "vit", "resnet")
PEERS = ("eager", "default", "reduce-overhead")
SIZES: Mapping[str, Sequence[tuple[int, ...]]] = {
    "bert": [(16, 384), (3, 511), (1, 128), (8, 256), (32, 128), (2, 77), (1, 17), (5, 333),
             (64, 64), (1, 512), (4, 300), (12, 200), (24, 96), (7, 45), (2, 500), (9, 131),
             (16, 129), (1, 1), (48, 50), (6, 400)],
    "llama": [(1, 512), (1, 777), (4, 128), (1, 2048), (2, 1000), (8, 64), (1, 33), (1, 1),
              (3, 300), (1, 1500), (2, 256), (16, 32), (1, 100), (5, 211), (1, 1024), (2, 511),
              (1, 640), (4, 90), (1, 1999), (7, 7)],
    "vit": [(n,) for n in (1, 3, 8, 17, 32, 64, 2, 5, 12, 20, 28, 40, 48, 56, 7, 10, 24, 33, 50,
                           4)],
    "resnet": [(1, 224, 224), (8, 224, 224), (3, 256, 320), (32, 224, 224), (1, 480, 640),
               (5, 199, 211), (16, 160, 160), (2, 384, 384), (1, 97, 131), (12, 192, 192),
               (4, 288, 288), (24, 128, 128), (1, 512, 512), (7, 224, 176), (2, 320, 480),
               (9, 211, 223), (20, 96, 96), (1, 64, 64), (6, 300, 200), (3, 224, 224)]}
SMALL: Mapping[str, Mapping[str, int]] = {
    "bert": {"width": 64, "heads": 4, "layers": 1},
    "llama": {"width": 64, "heads": 4, "shared": 2, "inner": 96, "layers": 1, "vocabulary": 1000},
    "vit": {"width": 64, "heads": 4, "layers": 1}, "resnet": {}}
ROUNDS, LEAST = 7, 0.01
"""Rounds, and the least seconds of calls in each."""
Row = dict[str, Any]
Run = Callable[[], Any]


# ---------------------------------------------------------------------- one model
class Contest:
    """The contestants of a model. `device`: where they run."""

    def __init__(self, name: str, device: str, peers: Sequence[str], *, small: bool) -> None:
        import torch
        from models import CASES

        torch.manual_seed(0)
        torch.set_num_threads(1 if device == "cpu" else torch.get_num_threads())
        torch._dynamo.config.recompile_limit = 1000
        self.torch, self.device, self.peers = torch, device, peers
        self.case = CASES[name](**(SMALL[name] if small else {}))
        kind = torch.float32 if device == "cpu" else torch.bfloat16
        self.module = self.case.module.to(kind).eval().to(device)
        self.names, self.kind = [*self.case.limits], kind
        self.compiled: dict[str, Any] = {"eager": self.module}
        self.program: Any = None

    def inputs(self, sizes: Mapping[str, int]) -> list[Any]:
        given = self.case.inputs(sizes)
        return [(x.to(self.kind) if x.is_floating_point() else x).to(self.device) for x in given]

    def begin(self, sizes: Mapping[str, int]) -> Row:
        """Compile what is compiled once. Returns the seconds of each."""
        import compiler

        torch, row = self.torch, Row()
        example = {name: max(size, 2) for name, size in sizes.items()}  # a size of 1 stays 1
        self.program = self._export(tuple(self.inputs(example)))
        with timed(row, "open"):
            self.compiled["open"] = self._load(compiler)
            self.call("open", self.inputs(example))
        for peer in [p for p in self.peers if p != "eager"]:
            self.compiled[peer] = torch.compile(self.module, dynamic=True, mode=peer)
        own = {"threads": 1} if self.device == "cpu" else {}
        self.compiled["door"] = torch.compile(self.module, dynamic=True, backend="strata",
                                              options=own)
        for name in [n for n in ("door", *self.peers) if n in self.compiled]:
            with timed(row, name):
                self.call(name, self.inputs(example))
        return row

    def _export(self, inputs: tuple[Any, ...]) -> Any:
        """With names and limits of sizes; without them where PyTorch cannot prove the limits."""
        export = self.torch.export.export
        try:
            return export(self.module, inputs, strict=False,
                          dynamic_shapes=self.case.dynamic_shapes())
        except Exception as error:
            print(f"exported without limits of sizes: {error}", file=sys.stderr)
        own = self.torch.export.Dim.AUTO
        return export(self.module, inputs, strict=False, dynamic_shapes=tuple(
            dict.fromkeys(dims, own) for dims in self.case.dims))

    def _load(self, compiler: Any, **options: Any) -> Any:
        return compiler.compile(self.program, target=self.device, cache="off",
                                threads=1 if self.device == "cpu" else None, **options)

    def call(self, name: str, inputs: Sequence[Any]) -> Any:
        found = self.compiled[name](*inputs)
        self.wait()
        return found[0] if isinstance(found, list | tuple) else found

    def wait(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def measure(self, sizes: Mapping[str, int], *, profile: bool) -> Row:
        import compiler

        inputs, row = self.inputs(sizes), Row(sizes=dict(sizes))
        want = self.call("eager", inputs).float()
        first: Row = {}
        for name in [n for n in self.compiled if n != "eager"]:
            with timed(first, name):
                got = self.call(name, inputs).float()
            row[f"error {name}"] = float((got - want).abs().max() / want.abs().max())
        with timed(row, "static compile"):
            names = self.compiled["open"].input_names
            self.compiled["static"] = self._load(compiler, shapes={
                n: tuple(x.shape) for n, x in zip(names, inputs, strict=True)})
            self.call("static", inputs)
        row["ms"] = self._in_turns(inputs)
        row["new"] = {n: s * 1e3 - row["ms"][n] for n, s in first.items()}
        if profile:
            row["kernels"] = {n: _kernels(compiler.profile(self.compiled[n], *inputs))
                              for n in ("open", "static")}
        del self.compiled["static"]
        return row

    def _in_turns(self, inputs: Sequence[Any]) -> Row:
        names = [n for n in self.compiled if n != "eager" or "eager" in self.peers]
        runs = {n: (lambda n=n: self.compiled[n](*inputs)) for n in names}
        counts = {n: self._count(run) for n, run in runs.items()}
        times: dict[str, list[float]] = {n: [] for n in names}
        for turn in range(ROUNDS):
            for name in names[turn % len(names):] + names[:turn % len(names)]:
                times[name].append(self._seconds(runs[name], counts[name]))
        return {n: statistics.median(found) * 1e3 for n, found in times.items()}

    def _count(self, run: Run) -> int:
        """How many calls take long enough to be timed."""
        for _ in range(3):
            run()
        return max(1, min(100, int(LEAST / max(self._seconds(run, 1), 1e-6))))

    def _seconds(self, run: Run, count: int) -> float:
        """Seconds of a call: of the clock on a GPU, of the processor on a CPU."""
        clock = time.perf_counter if self.device == "cuda" else time.process_time
        self.wait()
        started = clock()
        for _ in range(count):
            run()
        self.wait()
        return (clock() - started) / count


def _kernels(result: Any) -> Row:
    """Milliseconds and launches by kernel."""
    return {row["name"]: Row(ms=row["ms"], launches=row["launches"])
            for row in result.json["kernels"]}


@contextlib.contextmanager
def timed(row: Row, name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    row[name] = time.perf_counter() - started


def measure_model(name: str, args: argparse.Namespace, deadline: float) -> Iterator[Row]:
    """A line with the seconds of compilation, then one for each set of sizes."""
    import torch

    with torch.no_grad():
        contest = Contest(name, args.device, args.peers, small=args.small)
        sets = [dict(zip(contest.names, s, strict=True)) for s in SIZES[name][: args.sizes]]
        yield {"model": name, "compile": contest.begin(sets[0]), "machine": _machine(args.device)}
        for number, sizes in enumerate(sets):
            if time.time() > deadline:
                yield {"model": name, "left out": sets[number:]}
                return
            yield {"model": name, **contest.measure(sizes, profile=number < args.profile)}


def _machine(device: str) -> str:
    import platform

    import torch

    there = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or "CPU"
    return f"{there}, torch {torch.__version__}"


# ---------------------------------------------------------------------- the page
def page(rows: Sequence[Row], device: str) -> str:
    """The tables of all models, in Markdown."""
    lines = ["# One program for all sizes", "", "```",
             f"python benchmarks/sizes/run.py --device {device}", "```", ""]
    for name in dict.fromkeys(r["model"] for r in rows):
        own = [r for r in rows if r["model"] == name]
        lines += [f"## {name}", "", *_head_of(own), "", *_table(own), ""]
    return "\n".join(lines)


def _head_of(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if "compile" in row:
            each = ", ".join(f"{n} {s:.1f}" for n, s in row["compile"].items())
            yield f"{row['machine']}. Seconds to the first result: {each}."
        if "left out" in row:
            yield f"Not measured within the budget: {len(row['left out'])} sets of sizes."
        if "problem" in row:
            yield f"Failed: {row['problem']}."


def _table(rows: Sequence[Row]) -> Iterator[str]:
    measured = [r for r in rows if "ms" in r]
    if not measured:
        return
    names = [*measured[0]["ms"]]
    yield "| sizes | " + " | ".join(names) + " | share | new, ms | error |"
    yield "|---|" + "---:|" * (len(names) + 3)
    for row in measured:
        ms = row["ms"]
        cells = [f"{ms[n]:.3f}" for n in names]
        sizes = ", ".join(f"{k}={v}" for k, v in row["sizes"].items())
        yield (f"| {sizes} | " + " | ".join(cells) + f" | {ms['static'] / ms['open']:.2f} | "
               f"{row['new']['open']:.1f} | {row['error open']:.1e} |")


# ---------------------------------------------------------------------- the command
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--sizes", type=int, default=20)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--profile", type=int, default=0)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--budget", type=float, default=600)
    parser.add_argument("--results", type=Path, default=HERE / "figures.json")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.peers = [p for p in args.peers.split(",") if p]
    if args.model:
        for row in measure_model(args.model, args, args.deadline):
            print(json.dumps(row), flush=True)
        return 0
    rows = [*_measured(args.only.split(","), args)]
    return int(any("problem" in r for r in rows))


def _measured(models: Sequence[str], args: argparse.Namespace) -> list[Row]:
    """The rows of all models, each in a process of its own with its part of the budget."""
    rows, ends = list[Row](), time.time() + args.budget
    for number, name in enumerate(models):
        part = (ends - time.time()) / (len(models) - number)
        command = [sys.executable, str(Path(__file__)), *sys.argv[1:], "--model", name,
                   "--deadline", str(time.time() + 0.8 * part)]
        for row in _lines(name, command, part):
            rows.append(row)
            args.results.write_text(json.dumps(rows, indent=1), encoding="utf-8")
            if args.output:
                args.output.write_text(page(rows, args.device), encoding="utf-8")
    return rows


def _lines(name: str, command: Sequence[str], seconds: float) -> Iterator[Row]:
    """The rows that a process prints within the time; the last one says what went wrong."""
    errors = Path(f"/tmp/strata-sizes-{name}.txt")
    with errors.open("w", encoding="utf-8") as log, subprocess.Popen(
            ["timeout", str(int(seconds)), *command], stdout=subprocess.PIPE, stderr=log,
            text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                row = json.loads(line)
                print(name, {k: v for k, v in row.items() if k != "kernels"}, flush=True)
                yield row
    if process.returncode:
        last = errors.read_text(encoding="utf-8").strip().splitlines()[-20:] or ["no time left"]
        print(name, "ended with", process.returncode, *last, sep="\n", flush=True)
        yield {"model": name, "problem": f"exit status {process.returncode}: {' / '.join(last)}"}


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
