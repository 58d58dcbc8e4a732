"""One program for all sizes beside a program per size, and beside PyTorch's ways.

    python benchmarks/sizes/run.py [--device cuda] [--only bert,llama] [--sizes 6] [--smoke]
        [--modes default,reduce-overhead] [--jobs 4] [--kernels] [--budget 150]
        [--results sizes.json] [-o GPU.md]

Each model of `models.py` runs in a process of its own. It is exported once with open sizes, and
compiled once as it is ("open"), once for each set of sizes ("static"), and through
`torch.compile(dynamic=True)` ("door"). The peers are `torch.compile(dynamic=True)` in some modes
and eager mode. At each set of sizes all take turns; reported are medians of milliseconds per call,
on a GPU of calls in a row with one wait at their end, on a CPU of one thread. `new`: milliseconds
of the first call at a set of sizes with the open program, beyond a later call. `share`: static /
open. `--kernels` adds milliseconds by kernel at the first sizes. `--smoke` shrinks the models
to check the script. Processes, turns and results are those of `shared/suites/contests.py`: `--jobs`
models compile at a time, and are measured one by one.
"""

from __future__ import annotations

import argparse
import contextlib
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from models import CASES

import compiler

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "shared"))

from suites.contests import chosen, contest, parser_of  # noqa: E402

MODELS = ("bert", "llama", "vit", "resnet", "whisper", "t5")
EAGER, OPEN, STATIC, DOOR = "eager", "open", "static", "door"
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
               (9, 211, 223), (20, 96, 96), (1, 64, 64), (6, 300, 200), (3, 224, 224)],
    "whisper": [(1, 3000, 1), (1, 3000, 4), (1, 3000, 64), (8, 3000, 1), (2, 1500, 17),
                (1, 501, 9), (4, 2048, 32), (1, 999, 200), (16, 400, 5), (3, 777, 13),
                (1, 100, 448), (2, 3000, 100), (5, 640, 21), (1, 2, 1), (8, 200, 8), (6, 1111, 3),
                (1, 1998, 50), (12, 300, 30), (2, 63, 127), (1, 1250, 2)],
    "t5": [(1, 128, 1), (1, 512, 16), (8, 64, 64), (4, 300, 40), (16, 128, 8), (2, 511, 100),
           (1, 17, 5), (1, 1000, 1), (3, 77, 77), (32, 32, 32), (1, 1, 1), (6, 200, 128),
           (2, 384, 256), (5, 45, 211), (1, 640, 333), (12, 96, 12), (7, 131, 3), (1, 256, 512),
           (24, 50, 20), (9, 190, 90)]}
SMALL: Mapping[str, Mapping[str, int]] = {
    "bert": {"width": 64, "heads": 4, "layers": 1},
    "llama": {"width": 64, "heads": 4, "shared": 2, "inner": 96, "layers": 1, "vocabulary": 1000},
    "vit": {"width": 64, "heads": 4, "layers": 1}, "resnet": {},
    "whisper": {"width": 64, "heads": 4, "layers": 1, "vocabulary": 1000},
    "t5": {"width": 64, "heads": 4, "inner": 96, "layers": 1, "vocabulary": 1000}}
ROUNDS, LEAST = 7, 0.01
"""Rounds, and the least seconds of calls in each."""
Row = dict[str, Any]
Run = Callable[[], Any]


# ---------------------------------------------------------------------- one model
class Contest:
    """The contestants of a model."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        torch.manual_seed(0)
        torch._dynamo.config.recompile_limit = 1000
        self.options, self.device = options, options.device
        if self.device == "cpu":
            torch.set_num_threads(1)
        self.case = CASES[name](**(SMALL[name] if options.smoke else {}))
        self.kind = torch.float32 if self.device == "cpu" else torch.bfloat16
        self.module = self.case.module.to(self.kind).eval().to(self.device)
        self.sets = [dict(zip(self.case.limits, s, strict=True))
                     for s in SIZES[name][: options.sizes]]
        self.compiled: dict[str, Any] = {EAGER: self.module}
        self.static: list[Any] = []
        self.record = Row(name=name, compile={}, static=0.0, rows=[], notes={})
        self._compile()

    def inputs(self, sizes: Mapping[str, int]) -> list[Any]:
        given = self.case.inputs(sizes)
        return [(x.to(self.kind) if x.is_floating_point() else x).to(self.device) for x in given]

    def _compile(self) -> None:
        """Compile what is compiled once, then for each set of sizes."""
        example = self.inputs({n: max(size, 2) for n, size in self.sets[0].items()})
        program = self._export(tuple(example))
        own: dict[str, Any] = {"cache": "off"}
        own |= {"threads": 1} if self.device == "cpu" else {}
        makers: dict[str, Callable[[], Any]] = {
            OPEN: lambda: compiler.compile(program, target=self.device, **own),
            DOOR: lambda: torch.compile(self.module, dynamic=True, backend="strata", options=own)}
        for mode in filter(None, self.options.modes.split(",")):
            makers[mode] = lambda mode=mode: torch.compile(self.module, dynamic=True, mode=mode)
        for name, make in makers.items():
            self._enter(name, make, example)
        started = time.perf_counter()
        names = self.compiled[OPEN].input_names
        for sizes in self.sets:
            shapes = {n: tuple(x.shape) for n, x in zip(names, self.inputs(sizes), strict=True)}
            self.static.append(compiler.compile(program, target=self.device, shapes=shapes, **own))
        self.record[STATIC] = (time.perf_counter() - started) / len(self.sets)

    def _enter(self, name: str, make: Callable[[], Any], example: Sequence[Any]) -> None:
        """Seconds to the first result; who fails is told."""
        started = time.perf_counter()
        try:
            self.compiled[name] = make()
            self.call(name, example)
        except Exception as error:
            if name == OPEN:
                raise
            self.record["notes"][name] = f"{type(error).__name__}: {str(error)[:300]}"
            self.compiled.pop(name, None)
            return
        self.record["compile"][name] = time.perf_counter() - started

    def _export(self, inputs: tuple[Any, ...]) -> Any:
        """With names and limits of sizes; without them where PyTorch cannot prove the limits."""
        export = torch.export.export
        try:
            return export(self.module, inputs, strict=False,
                          dynamic_shapes=self.case.dynamic_shapes())
        except Exception as error:
            print(f"exported without limits of sizes: {error}", file=sys.stderr)
        own = torch.export.Dim.AUTO
        return export(self.module, inputs, strict=False, dynamic_shapes=tuple(
            dict.fromkeys(dims, own) for dims in self.case.dims))

    def call(self, name: str, inputs: Sequence[Any]) -> Any:
        found = self.compiled[name](*inputs)
        self.wait()
        return found[0] if isinstance(found, list | tuple) else found

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def measure(self) -> None:
        for number, (sizes, static) in enumerate(zip(self.sets, self.static, strict=True)):
            self.compiled[STATIC] = static
            self.record["rows"].append(self._measured(sizes, first=number == 0))

    def _measured(self, sizes: Mapping[str, int], *, first: bool) -> Row:
        inputs, row = self.inputs(sizes), Row(sizes=dict(sizes), errors={})
        want = self.call(EAGER, inputs).float()
        seconds: Row = {}
        for name in [n for n in self.compiled if n != EAGER]:
            with timed(seconds, name):
                found = self.call(name, inputs).float()
            row["errors"][name] = float((found - want).abs().max() / want.abs().max())
        row["ms"] = self._in_turns(inputs)
        row["new"] = {n: s * 1e3 - row["ms"][n] for n, s in seconds.items()}
        if first and self.options.kernels:
            row["kernels"] = {n: _kernels(compiler.profile(self.compiled[n], *inputs))
                              for n in (OPEN, STATIC)}
        return row

    def _in_turns(self, inputs: Sequence[Any]) -> Row:
        names = [*self.compiled]
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


# ---------------------------------------------------------------------- the page
def page(records: Mapping[str, Mapping[str, Any]], machine: str) -> str:
    """The tables of all models, in Markdown."""
    lines = ["# One program for all sizes", "",
             "Made by `python benchmarks/sizes/run.py`; do not edit. " + machine]
    for name, record in records.items():
        lines += ["", f"## {name}", "", *_head_of(record), "", *_table(record.get("rows", ()))]
    return "\n".join([*lines, ""])


def _head_of(record: Mapping[str, Any]) -> Iterator[str]:
    if "compile" in record:
        each = ", ".join(f"{n} {s:.1f}" for n, s in record["compile"].items())
        yield f"Seconds to the first result: {each}; one static size {record[STATIC]:.1f}."
    notes = dict(record.get("notes", {}))
    if "problem" in record:
        notes["all"] = record["problem"]
    yield from (f"- {who}: {why}" for who, why in notes.items())


def _table(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    names = list(dict.fromkeys(n for row in rows for n in row["ms"]))
    yield "| sizes | " + " | ".join(names) + " | share | new, ms | error |"
    yield "|---|" + "---:|" * (len(names) + 3)
    for row in rows:
        ms = row["ms"]
        cells = [f"{ms[n]:.3f}" if n in ms else "" for n in names]
        sizes = ", ".join(f"{k}={v}" for k, v in row["sizes"].items())
        yield (f"| {sizes} | " + " | ".join(cells) + f" | {ms[STATIC] / ms[OPEN]:.2f} | "
               f"{row['new'][OPEN]:.1f} | {row['errors'][OPEN]:.1e} |")
    shares = [row["ms"][STATIC] / row["ms"][OPEN] for row in rows]
    yield ""
    yield (f"share: geometric mean {statistics.geometric_mean(shares):.2f} of {len(shares)}, "
           f"least {min(shares):.2f}")


def _machine(device: str) -> str:
    there = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or "a CPU"
    return f"On {there}, torch {torch.__version__}."


# ---------------------------------------------------------------------- the command
def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__, 4, 0.0, HERE / "GPU.md")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--sizes", type=int, default=20)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.smoke:
        options.device = "cpu"
    machine = _machine(options.device)
    contest(options, chosen(MODELS, options.only), Contest, lambda records: page(records, machine))


if __name__ == "__main__":
    main()
