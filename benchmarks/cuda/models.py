"""Model classes at published sizes: `torch.compile(backend="strata")` and export, beside PyTorch.

    python benchmarks/cuda/models.py [--only BERT,Swin] [--jobs 8] [--budget 570] [--kernels]

Contestants are eager PyTorch, the same in a CUDA graph, `torch.compile` in its modes "default" and
"reduce-overhead" (`--modes`), and Strata, once through `torch.compile` ("door") and once exported
and compiled ("export"; not for steps that write a cache). Processes and results are those of
`shared/suites/contests.py`. The time is that on the device, from cold caches, contestants in turns.
The page is MODELS.md beside this file. Seconds of first calls are of processes that compile side by
side. Errors are the largest deviation from f32, over the largest magnitude.
"""

from __future__ import annotations

import argparse
import copy
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
from suites.contests import chosen, contest, parser_of
from suites.kernels import slowest_kernels

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
            self.record["kernels"] = {n: slowest_kernels(self.calls[n], SHOWN)
                                      for n in (*OURS, best) if n in self.calls}

    def peers(self) -> list[str]:
        return [n for n in self.record["ms"] if n not in OURS]


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
    parser = parser_of(__doc__, 8, 2.0, HERE / "MODELS.md")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    return parser.parse_args()


def main() -> None:
    options = arguments()
    machine = "" if options.smoke else f"On {torch.cuda.get_device_name()}, {options.dtype}."
    contest(options, chosen(CLASSES, options.only), Contest, lambda records: page(records, machine))


if __name__ == "__main__":
    main()
