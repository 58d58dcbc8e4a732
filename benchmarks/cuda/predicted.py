"""Predicted against measured times of the kernels that sampled.py drew.

    python benchmarks/cuda/predicted.py build/cuda_sampled.json [--classes sort,norm] [--budget 600]

compiles each measured row again, which needs no GPU, and compares the predicted time of its
launches with the measured one, cold caches and the launch of a graph included. The page is
PREDICTED.md beside this file, and predicted.svg the plot: how well predictions rank rows
(Spearman), how far they are off (median), and the classes and rows where the model is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import log10
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Any, NamedTuple

import torch

from compiler.api import model_of_argument
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from targets.cuda.machine import MACHINES, Machine
from targets.cuda.prediction import predict
from targets.cuda.prediction.time import total

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "shared"))
BANDWIDTHS = {"H100": 3350, "H200": 4800}
"""GB/s of memory (data sheets); all else is equal."""
SIDE, EDGE, WORST = 480, 50, 20


class Pair(NamedTuple):
    """A row: microseconds that were predicted and measured."""

    kind: str
    name: str
    predicted: float
    measured: float

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured


# ---------------------------------------------------------------------- one row
def predicted(key: str, kind: torch.dtype, machine: Machine) -> float:
    """The predicted microseconds of a drawn row, of which `key` is seed/class/number."""
    from draws import classes

    seed, name, number = key.split("/")
    draw = classes()[name](Random(f"{seed}/{name}/{number}"))

    class Row(torch.nn.Module):
        def forward(self, *given: torch.Tensor) -> Any:
            return draw.call(*given)

    with torch.no_grad():
        program = torch.export.export(Row(), tuple(draw.make(kind)), strict=False)
    options = CompileOptions(target="cuda", features="sm_90", cache="off", tuned="off")
    module = Compiler(model_of_argument(program), options, []).lower("block").module
    return total(predict(module, machine, {}), machine) * 1e6


def pairs(
    records: Mapping[str, Any], parts: Sequence[str], options: argparse.Namespace
) -> Iterator[Pair]:
    """All rows with a measured time, as far as the budget allows, first rows of classes first."""
    machine = replace(MACHINES["sm_90"], name=options.device, bandwidth=BANDWIDTHS[options.device])
    end, kind = time.monotonic() + options.budget, getattr(torch, options.dtype)
    for key, found in sorted(records.items(), key=lambda item: item[0].split("/")[-1]):
        name, measured = key.split("/")[1], found.get("ms", {}).get("strata")
        if not measured or (parts and not any(p in name for p in parts)):
            continue
        if time.monotonic() > end:
            return
        try:
            yield Pair(name, found["name"], predicted(key, kind, machine), measured * 1e3)
        except Exception as error:  # one row must not lose the others
            print(f"{key}: {error}", file=sys.stderr)


# ---------------------------------------------------------------------- figures
def rank_correlation(found: Sequence[Pair]) -> float:
    """Spearman's correlation: that of the ranks."""
    a, b = (_ranks([getattr(p, side) for p in found]) for side in ("predicted", "measured"))
    x, y = fmean(a), fmean(b)
    above = sum((p - x) * (q - y) for p, q in zip(a, b, strict=True))
    below = (sum((p - x) ** 2 for p in a) * sum((q - y) ** 2 for q in b)) ** 0.5
    return above / below if below else 1.0


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    return [order.index(v) + (order.count(v) - 1) / 2 for v in values]


def error(found: Sequence[Pair]) -> float:
    """The median distance from the measured time, as a share of it."""
    return median(abs(p.ratio - 1) for p in found)


def page(found: Sequence[Pair], told: str) -> str:
    by_class: dict[str, list[Pair]] = defaultdict(list)
    for pair in found:
        by_class[pair.kind].append(pair)
    lines = ["# Predicted and measured times", "",
             "Made by `python benchmarks/cuda/predicted.py`; do not edit. " + told, "",
             "![Predicted against measured times](predicted.svg)", "",
             f"{len(found)} rows: rank correlation {rank_correlation(found):.2f}, median error "
             f"{error(found):.0%}. Times are those of whole calls from cold caches.", "",
             "| class | rows | predicted / measured, median | median error |", "|---|---|---|---|"]
    lines += [f"| {name} | {len(rows)} | {median(p.ratio for p in rows):.2f} | {error(rows):.0%} |"
              for name, rows in sorted(by_class.items(), key=lambda item: -error(item[1]))]
    worst = sorted(found, key=lambda p: -abs(log10(p.ratio)))[:WORST]
    lines += ["", "Rows that are furthest off, in microseconds:", ""]
    lines += [f"- {p.kind}: {p.name}: predicted {p.predicted:.1f}, measured {p.measured:.1f}"
              for p in worst]
    return "\n".join([*lines, ""])


# ---------------------------------------------------------------------- the plot
def plot(found: Sequence[Pair]) -> str:
    """Both times on logarithmic axes, with the line where they are equal."""
    least = log10(min(min(p.predicted, p.measured) for p in found))
    most = log10(max(max(p.predicted, p.measured) for p in found))

    def at(value: float) -> float:
        return EDGE + (log10(value) - least) / max(1e-9, most - least) * SIDE

    def dot(p: Pair) -> str:
        told = f"{p.kind}: {p.name}: {p.predicted:.1f} / {p.measured:.1f} µs"
        return (f'<circle cx="{at(p.measured):.1f}" cy="{size - at(p.predicted):.1f}" r="3" '
                f'fill="#1f77b4" fill-opacity="0.6"><title>{_escaped(told)}</title></circle>')

    size = SIDE + 2 * EDGE
    far = EDGE + SIDE
    parts = [f'<line x1="{EDGE}" y1="{far}" x2="{far}" y2="{EDGE}" stroke="#888"/>']
    parts += [f'<text x="{at(10.0 ** k):.1f}" y="{far + 20}" text-anchor="middle">{10 ** k} µs'
              f'</text><text x="{EDGE - 8}" y="{size - at(10.0 ** k):.1f}" text-anchor="end">'
              f'{10 ** k} µs</text>' for k in range(1, 7) if least <= k <= most]
    parts += [f'<text x="{size / 2}" y="{size - 8}" text-anchor="middle">measured</text>',
              f'<text x="14" y="{size / 2}" text-anchor="middle" '
              f'transform="rotate(-90 14 {size / 2})">predicted</text>', *map(dot, found)]
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="{size}" '
                      'font-family="sans-serif" font-size="10">', *parts, "</svg>", ""])


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="what sampled.py wrote")
    parser.add_argument("--classes", default="", help="those whose names hold one of these")
    parser.add_argument("--device", default="H100", choices=[*BANDWIDTHS])
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--budget", type=float, default=1800.0, help="seconds")
    parser.add_argument("-o", dest="output", type=Path, default=HERE / "PREDICTED.md")
    options = parser.parse_args()
    records = {k: v for path in options.results for k, v in json.loads(path.read_text()).items()}
    found = [*pairs(records, [p for p in options.classes.split(",") if p], options)]
    seeds = ", ".join(dict.fromkeys(key.split("/")[0] for key in records))
    told = f"On an {options.device}, {options.dtype}, seeds {seeds}."
    options.output.write_text(page(found, told), encoding="utf-8")
    options.output.with_name("predicted.svg").write_text(plot(found), encoding="utf-8")
    print(page(found, told))


if __name__ == "__main__":
    main()
