"""The page of what was measured so far, in Markdown.

Its records have `threads` and `load`, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from suites.results import Record, Results, described, notes_of, one_line, peers_of

from rows import GROUPS, Goal, group

__all__ = ["Results", "described", "mean_of", "report"]

HEADER = ("| row | threads | ours | peers | ratio | bar | stretch | | load |",
          "|---|---|---|---|---|---|---|---|---|")


def report(results: Results, note: str = "") -> str:
    """The page: where it was measured, a table per group, and notes below each."""
    parts = results.opening("CPU", note)
    for name in GROUPS:
        records = results.of_group(name)
        if records:
            parts += _section(name, records)
    return "\n".join(parts).rstrip() + "\n"


def mean_of(records: Sequence[Record]) -> float:
    """The geometric mean of the ratios."""
    return math.exp(sum(math.log(r["ratio"]) for r in records) / len(records))


# ---------------------------------------------------------------------- parts of the page
def _section(name: str, records: Sequence[Record]) -> list[str]:
    module = group(name)
    goal: Goal = module.GOAL
    lines = [f"## {name}: {module.TITLE}", "", *HEADER]
    if module.MEAN:
        lines += _means(records, goal)
    lines += [_line(record, None if module.MEAN else goal) for record in records]
    notes = [line for record in records for line in notes_of(record)]
    return [*lines, "", *notes, ""] if notes else [*lines, ""]


def _means(records: Sequence[Record], goal: Goal) -> list[str]:
    """A line per number of threads: the mean of all rows, and which is the lowest."""
    lines: list[str] = []
    for threads in sorted({r["threads"] for r in records}):
        found = [r for r in records if r["threads"] == threads and "ratio" in r]
        if not found:
            continue
        mean, lowest = mean_of(found), min(found, key=lambda r: r["ratio"])
        text = f"lowest: {lowest['row']}, {lowest['ratio']:.2f}"
        lines.append(f"| **geometric mean of {len(found)}** | {threads} | | {text} | "
                     f"**{mean:.2f}** | {goal.cells(mean)} | |")
    return lines


def _line(record: Record, goal: Goal | None) -> str:
    start = f"| {record['row']} | {record['threads']} |"
    if "missing" in record:
        return f"{start} not measured: {one_line(record['missing'])} | | | | | | |"
    if "fault" in record:
        return f"{start} **FAIL** | | | | | | {record['load']:.1f} |"
    verdict = goal.cells(record["ratio"]) if goal is not None else " | | "
    return (f"{start} {record['ours']} | {peers_of(record)} | {record['ratio']:.2f} | {verdict} | "
            f"{record['load']:.1f} |")
