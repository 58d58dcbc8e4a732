"""Model classes at published sizes: `torch.compile(backend="strata")` and export, beside PyTorch.

    python benchmarks/cuda/models.py [--only BERT,Swin] [--jobs 8] [--budget 570] [--kernels]

Contestants are eager PyTorch, the same in a CUDA graph, `torch.compile` in its modes "default" and
"reduce-overhead" (`--modes`), and Strata, once through `torch.compile` ("door") and once exported
and compiled ("export"; not for steps that write a cache). A model has a process of its own. As many
as `--jobs` compile at a time; when all of these are ready they are measured one by one, so nobody
compiles meanwhile. The time is that on the device, from cold caches, contestants in turns.

Results gather in `--results`, so that a run can be made in parts. The page is MODELS.md beside this
file. With `--kernels` the results hold the slowest kernels, too. Seconds of first calls are of
processes that compile side by side. Errors are the largest
deviation from f32, over the largest magnitude.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import torch
from collection import CLASSES
from rows import Setting
from rows.programs import Compiled, inductor, off, ours, told
from rows.timing import device_times, synchronize

from compiler.torch.backend import strata

HERE = Path(__file__).parent
DOOR, EXPORT, EAGER, GRAPH = "door", "export", "eager", "graph"
OURS = (DOOR, EXPORT)
SHOWN = 14
"""So many kernels of a program are told."""


# ---------------------------------------------------------------------- one model
class Contest:
    """A model's programs, and what is measured of them."""

    def __init__(self, name: str, options: argparse.Namespace):
        self.options, self.device = options, "cpu" if options.smoke else "cuda"
        self.setting = Setting(seconds=options.seconds, smoke=options.smoke)
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True
        self.network = CLASSES[name](options.smoke)
        self.network.module.eval()
        self.kind = getattr(torch, options.dtype)
        exact = self._on_device(torch.float32)
        self.exact = exact(*self._inputs(torch.float32)).float().cpu()
        del exact
        torch.cuda.empty_cache()
        self.shared = self._on_device(self.kind)
        self.given = self._inputs(self.kind)
        self.calls: dict[str, Callable[..., Any]] = {}
        self.record: dict[str, Any] = {"name": name, "seconds": {}, "errors": {}, "notes": {},
                                       "parameters": sum(
            p.numel() for p in self.network.module.parameters())}
        self._enter_all()

    def _inputs(self, kind: torch.dtype) -> list[torch.Tensor]:
        return [(v.to(kind) if v.is_floating_point() else v).to(self.device)
                for v in self.network.inputs]

    def _on_device(self, kind: torch.dtype) -> Any:
        module = copy.deepcopy(self.network.module).to(kind).to(self.device)
        if self.network.stateful:
            module.prepare()
        return module

    def _enter_all(self) -> None:
        made: dict[str, Callable[[], Compiled]] = {
            EAGER: lambda: Compiled(self.shared, 0.0), DOOR: self._door}
        if not self.network.stateful:
            made[EXPORT] = self._export
        if not self.options.smoke:
            made[GRAPH] = self._graph
        for mode in self.options.modes.split(","):
            made[mode] = lambda mode=mode: inductor(self.shared, self.given, mode)
        for name, make in made.items():
            self._enter(name, make)

    def _enter(self, name: str, make: Callable[[], Compiled]) -> None:
        """Let someone take part; who cannot is told."""
        try:
            compiled = make()
            result = compiled.call(*self.given)
            result = result[0] if isinstance(result, (list, tuple)) else result
            self.record["errors"][name] = off(result.float().cpu(), self.exact)
        except Exception as error:
            self.record["notes"][name] = told(error)
            return
        self.record["seconds"][name] = compiled.seconds
        self.calls[name] = partial(compiled.call, *self.given)

    def _door(self) -> Compiled:
        started = time.perf_counter()
        options = {"cache": "off"}
        compiled = torch.compile(self.shared, backend=strata, dynamic=False, options=options)
        compiled(*self.given)
        return Compiled(compiled, time.perf_counter() - started)

    def _export(self) -> Compiled:
        module = copy.deepcopy(self.network.module).to(self.kind)
        return ours(module, [v.cpu() for v in self.given], self.setting, self.given)

    def _graph(self) -> Compiled:
        """Eager PyTorch, captured."""
        module = self.shared
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                module(*self.given)
        synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = module(*self.given)

        def call(*_: Any) -> Any:
            graph.replay()
            return result
        call(*self.given)
        return Compiled(call, 0.0)

    def measure(self) -> None:
        self.record["ms"] = device_times(self.calls, self.setting)
        if self.options.kernels and not self.options.smoke:
            best = min(self.peers(), key=lambda n: self.record["ms"][n], default=EAGER)
            self.record["kernels"] = {n: kernels(self.calls[n]) for n in (*OURS, best)
                                      if n in self.calls}

    def peers(self) -> list[str]:
        return [n for n in self.record["ms"] if n not in OURS]


def kernels(call: Callable[[], Any]) -> list[tuple[str, int, float]]:
    """The slowest kernels of a call: name, number, microseconds in all."""
    from torch.profiler import ProfilerActivity, profile

    call()
    synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        call()
        synchronize()
    rows = [(e.key, e.count, float(e.self_device_time_total)) for e in found.key_averages()]
    rows.sort(key=lambda row: -row[2])
    return [("all", sum(r[1] for r in rows), sum(r[2] for r in rows)), *rows[:SHOWN]]


def row(name: str, options: argparse.Namespace) -> None:
    """Compile, say so, wait for the turn, measure, and print the record."""
    with torch.no_grad():
        contest = Contest(name, options)
        print("ready", flush=True)
        sys.stdin.readline()
        contest.measure()
    print(json.dumps(contest.record), flush=True)


# ---------------------------------------------------------------------- all models
def batch(names: Sequence[str], until: float) -> list[dict[str, Any]]:
    """The records of models that compile side by side and are measured one by one."""
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder, str(k)) for k in range(len(names))]
        started = [_start(name, log) for name, log in zip(names, logs, strict=True)]
        _wait(started, until)
        return [_record(name, process, log, until)
                for name, process, log in zip(names, started, logs, strict=True)]


def _start(name: str, log: Path) -> subprocess.Popen[str]:
    with log.open("w") as errors:
        return subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--row", name],
                                text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=errors)


def _wait(processes: Sequence[Any], until: float) -> None:
    """Wait until all have said that they are ready, have ended, or the time is over."""
    from threading import Thread

    waiting = [Thread(target=process.stdout.readline, daemon=True) for process in processes]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join(max(0.0, until - time.monotonic()))
    for thread, process in zip(waiting, processes, strict=True):
        if thread.is_alive():
            process.kill()


def _record(name: str, process: Any, log: Path, until: float) -> dict[str, Any]:
    try:
        text, _ = process.communicate("go\n", timeout=max(5.0, until - time.monotonic()))
        return json.loads(text.splitlines()[-1])
    except (subprocess.TimeoutExpired, BrokenPipeError, IndexError, ValueError):
        process.kill()
        last = [x for x in log.read_text().splitlines() if "Error" in x][-1:]
        return {"name": name, "problem": " ".join(last) or "no time was left"}


# ---------------------------------------------------------------------- the page
def page(records: Mapping[str, Mapping[str, Any]], machine: str) -> str:
    lines = ["# Models on a GPU, through torch.compile and through export", "",
             "Made by `python benchmarks/cuda/models.py`; do not edit. " + machine, "",
             "Device milliseconds. Best: the fastest of PyTorch's ways.", "",
             "| model | door | export | " + " | ".join(_modes(records)) + " | best / door | "
             "export / door | first call, door / default |",
             "|---" * (6 + len(_modes(records))) + "|"]
    lines += [_line(found, _modes(records)) for found in records.values() if "ms" in found]
    for title, key in (("best / door", "gain"), ("export / door", "door")):
        values = [v for found in records.values() if (v := _ratios(found).get(key))]
        if values:
            lines += ["", f"{title}: geometric mean {geometric_mean(values):.2f} of "
                          f"{len(values)}, least {min(values):.2f}"]
    notes = [f"- {name}: {who}: {why}" for name, found in records.items()
             for who, why in [*found.get("notes", {}).items(),
                              *([("", found["problem"])] if "problem" in found else [])]]
    wrong = [f"- {name}: {who} is off by {found['errors'][who]:.1e}, eager by "
             f"{found['errors'][EAGER]:.1e}" for name, found in records.items()
             for who in OURS if who in found.get("errors", {}) and EAGER in found["errors"]
             and not found["errors"][who] <= max(2 * found["errors"][EAGER], 1e-2)]
    return "\n".join([*lines, "", *notes, *wrong, ""])


def _modes(records: Mapping[str, Mapping[str, Any]]) -> list[str]:
    found = dict.fromkeys(n for r in records.values() for n in r.get("ms", {}))
    return [n for n in found if n not in OURS]


def _ratios(found: Mapping[str, Any]) -> dict[str, float]:
    times = found.get("ms", {})
    peers = [t for n, t in times.items() if n not in OURS]
    if DOOR not in times or not peers:
        return {}
    ratios = {"gain": min(peers) / times[DOOR]}
    if EXPORT in times:
        ratios["door"] = times[EXPORT] / times[DOOR]
    seconds = found["seconds"]
    if seconds.get("default"):
        ratios["seconds"] = seconds[DOOR] / seconds["default"]
    return ratios


def _line(found: Mapping[str, Any], modes: Sequence[str]) -> str:
    times, ratios = found["ms"], _ratios(found)
    cells = [f"{times[n]:.3g}" if n in times else "" for n in (*OURS, *modes)]
    cells += [f"{ratios[k]:.2f}" if k in ratios else "" for k in
              ("gain", "door", "seconds")]
    return f"| {found['name']} | " + " | ".join(cells) + " |"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="models whose names hold one of these")
    parser.add_argument("--jobs", type=int, default=8, help="models that compile at a time")
    parser.add_argument("--budget", type=float, default=570.0, help="seconds")
    parser.add_argument("--seconds", type=float, default=2.0, help="of calls, for each model")
    parser.add_argument("--modes", default="default,reduce-overhead", help="of torch.compile")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--kernels", action="store_true", help="keep the slowest kernels of ours")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes on the CPU")
    parser.add_argument("--results", type=Path, default=Path("build/cuda_models.json"))
    parser.add_argument("-o", dest="output", type=Path, default=HERE / "MODELS.md")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.row:
        row(options.row, options)
        return
    until = time.monotonic() + options.budget
    parts = [part for part in options.only.split(",") if part]
    names = [n for n in CLASSES if not parts or any(part in n for part in parts)]
    options.results.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(options.results.read_text()) if options.results.exists() else {}
    for first in range(0, len(names), options.jobs):
        for found in batch(names[first:first + options.jobs], until):
            known[found["name"]] = found
        options.results.write_text(json.dumps(known))
        machine = "" if options.smoke else f"On {torch.cuda.get_device_name()}, {options.dtype}."
        options.output.write_text(page(known, machine))
    print(options.output.read_text())


if __name__ == "__main__":
    main()
