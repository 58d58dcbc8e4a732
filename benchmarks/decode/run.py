"""One token after another with a static cache: time of a step beside the bytes that it must read.

    python benchmarks/decode/run.py [--device cuda] [--only "llama-1b b8"] [--layers 0]
        [--batch 1,8] [--cached 512,4096] [--kind bf16,f32] [--modes default,reduce-overhead]
        [--jobs 4] [--kernels] [--budget 150] [--results decode.json] [-o GPU.md]

A row is named by model, batch, cached tokens and type, as in "llama-1b b8 c512 bf16". A step writes
keys and values in place at one position of caches of that length, through `torch.compile`; all
contestants take turns. `share`: the bytes of weights and of the live part of the caches, over the
time of the step, over the rate at which this machine copies (GPU) or reads (CPU) memory, measured
in the same process. On a CPU, one thread and its processor time. `--layers N` shortens the model.
`--kernels` keeps the milliseconds of kernels. Processes, turns and results are those of
`shared/suites/contests.py`: `--jobs` rows compile at a time, and are measured one by one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from models import SHAPES, Step, inputs
from turns import in_turns, rate_of

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "shared"))

from suites.contests import chosen, contest, parser_of  # noqa: E402
from suites.kernels import slowest_kernels  # noqa: E402

KINDS = {"bf16": torch.bfloat16, "f32": torch.float32}
EAGER, STRATA = "eager", "strata"
SHOWN = 14
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


class Contest:
    """A row's contestants."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.options, self.device = options, options.device
        if self.device == "cpu":
            torch.set_num_threads(1)
        model, batch, cached, kind = _parts(name)
        shape = SHAPES[model]
        shape = replace(shape, layers=options.layers) if options.layers else shape
        step = Step(shape).to(KINDS[kind]).eval().to(self.device)
        ids, position, *caches = (t.to(self.device) for t in inputs(
            shape, batch, cached, cached - 1, KINDS[kind]))
        weights = sum(p.numel() * p.element_size() for p in step.parameters())
        live = shape.cache_bytes(batch, cached, KINDS[kind].itemsize)
        self.record = Row(name=name, layers=shape.layers, bytes=weights + live, seconds={},
                          errors={}, notes={})
        self.given = ids, position
        self.calls: dict[str, Callable[[], Any]] = {}
        self._enter(step, caches)

    def _enter(self, step: Any, caches: Sequence[Any]) -> None:
        """Compile for all who can; who cannot is told."""
        own = {"threads": 1} if self.device == "cpu" else {}
        entrants = {EAGER: InPlace(step, caches), STRATA: torch.compile(
            _function(step, caches), backend=STRATA, options={"cache": "off", **own})}
        for mode in filter(None, self.options.modes.split(",")):
            entrants[mode] = torch.compile(_function(step, caches), mode=mode)
        for tensor in caches:  # else PyTorch captures no graph that writes them
            torch._dynamo.mark_static_address(tensor)
        want = step(*self.given, *caches)[0].float()
        for name, call in entrants.items():
            started = time.perf_counter()
            try:
                found = call(*self.given).float()
            except Exception as error:
                self.record["notes"][name] = f"{type(error).__name__}: {str(error)[:300]}"
                continue
            self.record["seconds"][name] = time.perf_counter() - started
            self.record["errors"][name] = float((found - want).abs().max() / want.abs().max())
            self.calls[name] = partial(call, *self.given)

    def measure(self) -> None:
        self.record["ms"] = in_turns(self.calls, self.device)
        self.record["rate"] = rate = rate_of(self.device)
        self.record["share"] = {name: self.record["bytes"] / (ms / 1e3) / rate
                                for name, ms in self.record["ms"].items()}
        if self.options.kernels and self.device == "cuda":
            self.record["kernels"] = {name: slowest_kernels(call, SHOWN)
                                      for name, call in self.calls.items() if name != EAGER}


def _parts(name: str) -> tuple[str, int, int, str]:
    """Model, batch, cached tokens and type."""
    model, batch, cached, kind = name.split()
    return model, int(batch[1:]), int(cached[1:]), kind


def _function(step: Any, caches: Sequence[Any]) -> Any:
    """The same as a function that PyTorch traces: the caches are written in place."""
    def decode(ids: Any, position: Any) -> Any:
        scores, *new = step(ids, position, *caches)
        for old, made in zip(caches, new, strict=True):
            old.copy_(made)
        return scores

    return decode


# ---------------------------------------------------------------------- the page
def page(records: Mapping[str, Mapping[str, Any]], machine: str) -> str:
    """The table in Markdown."""
    done = [r for r in records.values() if "ms" in r]
    names = list(dict.fromkeys(n for r in done for n in r["ms"]))
    lines = ["# Decoding with a static cache", "",
             "Made by `python benchmarks/decode/run.py`; do not edit. " + machine, "",
             "`share`: of bandwidth. Best: the fastest of PyTorch's ways.", "",
             "| step | layers | GB | " + " | ".join(f"{n}, ms" for n in names)
             + " | best / strata | share | error |", "|---|" + "---:|" * (len(names) + 5),
             *[_line(r, names) for r in done]]
    notes = [f"- {r['name']}: {who}: {why}" for r in records.values()
             for who, why in [*r.get("notes", {}).items(),
                              *([("all", r["problem"])] if "problem" in r else [])]]
    return "\n".join([*lines, "", *notes, ""])


def _line(record: Mapping[str, Any], names: Sequence[str]) -> str:
    ms, share, error = (record[k] for k in ("ms", "share", "errors"))
    cells = [f"{ms[n]:.3f}" if n in ms else "" for n in names]
    ours = STRATA in ms
    best = min((t for n, t in ms.items() if n != STRATA), default=0.0)
    cells += [f"{best / ms[STRATA]:.2f}", f"{share[STRATA]:.2f}",
              f"{error[STRATA]:.1e}"] if ours else ["", "", ""]
    return (f"| {record['name']} | {record['layers']} | {record['bytes'] / 1e9:.2f} | "
            + " | ".join(cells) + " |")


# ---------------------------------------------------------------------- the command
def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__, 4, 0.0, HERE / "GPU.md")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--cached", default="512,4096")
    parser.add_argument("--kind", default="bf16")
    return parser.parse_args()


def _names(options: argparse.Namespace) -> Iterator[str]:
    for model, kind, batch, cached in product(
            SHAPES, *(getattr(options, k).split(",") for k in ("kind", "batch", "cached"))):
        if (model == "small") == options.smoke:
            yield f"{model} b{batch} c{cached} {kind}"


def main() -> None:
    options = arguments()
    if options.smoke:
        options.device = "cpu"
    machine = f"On {torch.cuda.get_device_name()}." if options.device == "cuda" else ""
    contest(options, chosen(_names(options), options.only), Contest,
            lambda records: page(records, machine))


if __name__ == "__main__":
    main()
