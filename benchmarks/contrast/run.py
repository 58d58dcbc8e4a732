"""Six models compiled per operator, by blocks and as a whole, on the CPU: `compare`, on a page.

    python benchmarks/contrast/run.py [--only encoder,mobile] [--threads 1] [--peers torch]

Each model is compared in a process of its own. What `compare --json` writes is kept in figures.json
beside this file, from which RESULTS.md and speed.svg are written; `--only` replaces the figures of
some models, and `--only ""` writes the page alone. Exit status: 0 when every comparison succeeded,
1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from compiler.measuring.contrast_table import amount, calls
from compiler.pipeline.strategies import GROUPS, PER_OP, WHOLE_GRAPH
from targets.cpu.machine import machine_of

HERE = Path(__file__).parent
FIGURES = HERE / "figures.json"
MODELS = ("perceptron", "decoder", "chain", "encoder", "residual", "mobile")
Figures = Mapping[str, Any]
CERTAIN = 1.03
"""A group counts in the table of groups if it changes a time by this factor, and intervals do not
overlap."""


def measure(model: str, threads: int, peers: str) -> Figures | None:
    """What `compare` writes about a model; None if there is nothing."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "compiler", "compare",
                   f"benchmarks/contrast/models.py:{model}", "--threads", str(threads),
                   "--rounds", "15", "--against", peers, "--json", str(file)]
        print(f"{model} ...", flush=True)
        subprocess.run(command, cwd=HERE.parents[1], check=False)
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


# ---------------------------------------------------------------------- the page
def page(figures: Mapping[str, Figures]) -> str:
    first = next(iter(figures.values()))
    names = ", ".join(line for line in first["versions"]
                      if line.split()[0] in ("numpy", "llvmlite", "torch"))
    lines = [
        "# Strategies compared", "", "```", "python benchmarks/contrast/run.py", "```", "",
        fill("[The models](models.py) have random weights. Measured on one processor of a machine "
             f"with {machine_of().name}, on {first['threads']} thread(s), with Python "
             f"{platform.python_version()}, {names}, while other programs used the machine as "
             "well. Times are medians of rounds in turns, with 95% intervals, of the processor "
             "where others had it; those of compilation are of the wall. "
             f"{_earlier(figures)}[What the tables teach](../../docs/contrast.md).", 120), "",
        "![Speed relative to per-op](speed.svg)", "", "## Strategies and peers", "",
        *table(HEAD, [row for name, found in figures.items() for row in rows_of(name, found)]),
        "", *bought(figures)]
    return "\n".join(lines)


def _earlier(figures: Mapping[str, Figures]) -> str:
    """The models that were measured before the processor's own time was."""
    names = [name for name, found in figures.items() if "others" not in found]
    return f"Those of {', '.join(names)} are of an earlier run, all of the wall. " if names else ""


def bought(figures: Mapping[str, Figures]) -> list[str]:
    """The table of groups of passes."""
    return ["## What each group of passes buys", "", fill(
        f"How many times as long `{WHOLE_GRAPH}` takes without the group, and how many times as "
        f"fast `{PER_OP}` is with it. A dash: the program is the same, or the difference is within "
        "3% or the intervals.", 120), "",
        *table(["group", *(f"{name}: without, alone" for name in figures)],
               [[f"`{group}`", *(_bought(found, group) for found in figures.values())]
                for group in GROUPS]), ""]


HEAD = ("model", "way", "launches", "bytes", "operations", "arena", "compile", "ms", "95%",
         "speed-up", "pays after")


def rows_of(name: str, found: Figures) -> Iterator[list[str]]:
    base = found["strategies"][PER_OP]["ms"]
    for strategy, row in found["strategies"].items():
        if "problem" in row:
            yield [name, f"`{strategy}`", "failed", *[""] * 8]
            continue
        paid = "" if strategy == PER_OP else calls(row["paid_after"], row["ms"])
        yield [name, f"`{strategy}`", str(row["launches"]), amount(row["bytes"], "B"),
               amount(row["flops"]), amount(row["arena"], "B"), f"{row['compile_s']:.1f} s",
               *_time(row["ms"]), f"{base[1] / row['ms'][1]:.2f}x", paid]
    for peer, row in found["peers"].items():
        yield [name, peer, "", "", "", "", f"{row['first_result_s']:.1f} s", *_time(row["ms"]),
               f"{base[1] / row['ms'][1]:.2f}x", ""]


def _time(ms: Sequence[float]) -> list[str]:
    return [f"{ms[1]:.3g}", f"{ms[0]:.3g} to {ms[2]:.3g}"]


def _bought(found: Figures, group: str) -> str:
    row = next((r for r in found["ablation"] if r["group"] == group), None)
    if row is None:
        return ""
    whole, per_op = (found["strategies"][s]["ms"] for s in (WHOLE_GRAPH, PER_OP))
    return (f"{_factor(row['without_interval'], whole, row['without_same'])}, "
            f"{_factor(per_op, row['alone_interval'], row['alone_same'])}")


def _factor(slow: Sequence[float] | None, fast: Sequence[float] | None, same: bool) -> str:
    """The ratio of medians, if it is certain."""
    if slow is None or fast is None or same:
        return "-"
    ratio = slow[1] / fast[1]
    apart = slow[0] > fast[2] or fast[0] > slow[2]
    return f"{ratio:.2f}x" if apart and not 1 / CERTAIN < ratio < CERTAIN else "-"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}",
            *(f"| {' | '.join(row)} |" for row in rows)]


# ---------------------------------------------------------------------- the plot
_COLOURS = {"per-op": "#888888", "block": "#d98c1f", "whole-graph": "#1f6fd9", "torch": "#c8402f",
            "inductor": "#8a4fbf"}
_BAR, _GAP, _LEFT, _WIDE = 12, 16, 90, 520


def plot(figures: Mapping[str, Figures]) -> str:
    """Bars of the speed relative to `per-op`, as SVG that shows on light and dark pages."""
    speeds = {name: _speeds(found) for name, found in figures.items()}
    most = max(s for found in speeds.values() for s in found.values())
    parts, y = list[str](), 34
    for k, (way, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + 100 * k
        parts.append(f'<rect x="{x}" y="8" width="12" height="12" fill="{colour}"/>'
                     + _text(x + 16, 18, way))
    for name, found in speeds.items():
        parts.append(_text(4, y + 14, name))
        for way, speed in found.items():
            width = max(1, round(_WIDE * speed / most))
            parts.append(f'<rect x="{_LEFT}" y="{y}" width="{width}" height="{_BAR - 2}" '
                         f'fill="{_COLOURS.get(way, "#555555")}"/>'
                         + _text(_LEFT + width + 4, y + 9, f"{speed:.2f}x"))
            y += _BAR
        y += _GAP
    size = f'width="{_LEFT + _WIDE + 60}" height="{y}"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" '
                      'font-size="10">', *parts, "</svg>", ""])


def _text(x: int, y: int, text: str) -> str:
    return f'<text x="{x}" y="{y}" fill="#808080">{text}</text>'


def _speeds(found: Figures) -> dict[str, float]:
    rows = {**found["strategies"], **found["peers"]}
    base = found["strategies"][PER_OP]["ms"]
    return {way: base[1] / row["ms"][1] for way, row in rows.items() if base and row["ms"]}


def write(figures: Mapping[str, Figures]) -> None:
    """Keep the figures, and write the page and the plot that show them."""
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    (HERE / "RESULTS.md").write_text(page(figures), encoding="utf-8")
    (HERE / "speed.svg").write_text(plot(figures), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peers", default="torch")
    arguments = parser.parse_args()
    known = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
    failed = list[str]()
    for name in filter(None, arguments.only.split(",")):
        figures = measure(name, arguments.threads, arguments.peers)
        if figures is None or figures["problems"]:
            failed.append(name)
        if figures is not None:
            known[name] = figures
        write({name: known[name] for name in MODELS if name in known})
    if known and not arguments.only:
        write(known)
    print(f"failed: {', '.join(failed)}" if failed else "all compared")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
