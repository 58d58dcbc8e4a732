"""The tables of `compare`: strategies, groups of passes, peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.pipeline.strategies import GROUPS, PER_OP
from targets.profiles import QUIET

Figures = dict[str, Any]
_NONE = "-"
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def lines_of(figures: Figures) -> list[str]:
    """All tables, with what one must know to read them."""
    found = _strategies(figures)
    if figures["peers"]:
        found += ["", *_peers(figures)]
    if figures["ablation"]:
        found += ["", *_ablation(figures)]
    if figures["cannot_run"]:
        found += ["", f"no times: {figures['cannot_run']}"]
    elif figures["rounds"]:
        found += ["", f"ms: the median of {figures['rounds']} rounds in turns, and its 95% "
                      "interval; pays after: calls until compiling has paid"]
        if (others := figures.get("others", 0.0)) > QUIET:
            found.append(f"other programs had the processor for {others:.0%} of the time, so times "
                         "on one thread are of the processor; ratios near 1 mean nothing")
    return found


def _strategies(figures: Figures) -> list[str]:
    strategies = figures["strategies"]
    base = strategies[PER_OP]["ms"]
    rows = [["strategy", "kernels", "launches", "bytes", "flops", "arena", "compile", "ms", "",
             "speed-up", "pays after"]]
    for name, row in strategies.items():
        if "problem" in row:
            rows.append([name, f"failed: {_first_line(row['problem'])}"])
            continue
        paid = "" if name == PER_OP else calls(row["paid_after"], row["ms"])
        rows.append([name, str(row["kernels"]), str(row["launches"]), amount(row["bytes"], "B"),
                     amount(row["flops"]), amount(row["arena"], "B"), f"{row['compile_s']:.2f} s",
                     *_time(row["ms"]), _ratio(base, row["ms"]), paid])
    return aligned(rows)


def _peers(figures: Figures) -> list[str]:
    rows = [["peer", "first result", "ms", "", "our speed-up", "we pay after", "differs by"]]
    ours = figures["strategies"]["whole-graph"]["ms"]
    for name, row in figures["peers"].items():
        rows.append([name, f"{row['first_result_s']:.2f} s", *_time(row["ms"]),
                     _ratio(row["ms"], ours), calls(row["paid_after"], ours),
                     f"{row['difference']:.1e}"])
    return aligned(rows)


def _ablation(figures: Figures) -> list[str]:
    whole, base = (figures["strategies"][name]["ms"] for name in ("whole-graph", PER_OP))
    rows = [["group", "whole-graph without it", "slower", "launches", "per-op with it", "faster",
             "launches", "what it does"]]
    for row in figures["ablation"]:
        without = _changed(row, "without", _ratio(row["without_interval"], whole))
        alone = _changed(row, "alone", _ratio(base, row["alone_interval"]))
        rows.append([row["group"], *without, *alone, GROUPS[row["group"]]])
    return aligned(rows)


def _changed(row: Figures, way: str, ratio: str) -> list[str]:
    """Time, ratio and launches; nothing if the program is the same."""
    if row[f"{way}_launches"] is None:
        return ["failed", "", ""]
    if row[f"{way}_same"]:
        return ["the same", "", ""]
    ms = row[f"{way}_ms"]
    return [_NONE if ms is None else f"{ms:.3f} ms", ratio, str(row[f"{way}_launches"])]


# ---------------------------------------------------------------------- cells
def _time(ms: Sequence[float] | None) -> list[str]:
    if ms is None:
        return [_NONE, ""]
    low, median, high = ms
    return [f"{median:.3f}", f"[{low:.3f}, {high:.3f}]"]


def _ratio(slow: Sequence[float] | None, fast: Sequence[float] | None) -> str:
    return _NONE if slow is None or fast is None else f"{slow[1] / fast[1]:.2f}x"


def calls(count: int | None, ms: Sequence[float] | None) -> str:
    """How many calls it takes until compiling has paid."""
    if ms is None:
        return _NONE
    if count is None:
        return "never"
    return "at once" if count == 0 else f"{count} call{'s' * (count > 1)}"


def amount(number: float, unit: str = "") -> str:
    """`12.3 MB`."""
    for factor, prefix in _UNITS:
        if number >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number:.0f} {unit}".rstrip()


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows in columns; numbers to the right, and the last cell of a row as it is."""
    widths: list[int] = []
    for row in rows:
        for k, cell in enumerate(row[:-1]):
            widths += [0] * (k + 1 - len(widths))
            widths[k] = max(widths[k], len(cell))
    return ["  ".join([*(cell.rjust(widths[k]) if k else cell.ljust(widths[k])
                         for k, cell in enumerate(row[:-1])), row[-1]]).rstrip() for row in rows]
