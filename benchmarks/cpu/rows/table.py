"""What was measured so far, kept in a file, and the table of it in Markdown."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rows import GROUPS, Goal, group

HEADER = ("| row | threads | ours | peers | ratio | bar | stretch | | load |",
          "|---|---|---|---|---|---|---|---|---|")
Record = Mapping[str, Any]
"""`group`, `row`, `threads`; `machine`, `versions`, `load`; and what was measured (`ours`, `peers`,
`ratio`, `notes`), or what is `missing`, or the `fault`."""


@dataclass(frozen=True)
class Results:
    """Records by group, row and number of threads."""

    file: Path
    records: dict[str, dict[str, Any]]

    @staticmethod
    def load(file: Path) -> Results:
        return Results(file, json.loads(file.read_text()) if file.exists() else {})

    def put(self, record: dict[str, Any]) -> None:
        """Keep it, in place of an older one of the same row."""
        self.records[f"{record['group']}/{record['row']}/{record['threads']}"] = record
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.records, indent=1) + "\n")

    def of_group(self, name: str) -> list[dict[str, Any]]:
        return [r for r in self.records.values() if r["group"] == name]

    @property
    def faults(self) -> list[dict[str, Any]]:
        return [r for r in self.records.values() if "fault" in r]


def report(results: Results, note: str = "") -> str:
    """The page: where it was measured, a table per group, and notes below each."""
    parts = ["# CPU speed: what was measured", "",
             "Made by `python benchmarks/cpu/suite.py`; do not edit. What the rows are, and how "
             "they are measured: [README.md](../README.md).", "", *_machines(results), ""]
    parts += [note, ""] if note else []
    for name in GROUPS:
        records = results.of_group(name)
        if records:
            parts += _section(name, records)
    return "\n".join(parts).rstrip() + "\n"


def mean_of(records: Sequence[Record]) -> float:
    """The geometric mean of the ratios."""
    return math.exp(sum(math.log(r["ratio"]) for r in records) / len(records))


# ---------------------------------------------------------------------- parts of the page
def _machines(results: Results) -> list[str]:
    """Every machine with its versions, and what was measured there."""
    found: dict[tuple[str, str], list[str]] = {}
    for record in results.records.values():
        found.setdefault((record["machine"], record["versions"]), []).append(record["group"])
    return [f"- {', '.join(dict.fromkeys(groups))}: on {machine}; {versions}."
            for (machine, versions), groups in found.items()]


def _section(name: str, records: Sequence[Record]) -> list[str]:
    module = group(name)
    goal: Goal = module.GOAL
    lines = [f"## {name}: {module.TITLE}", "", *HEADER]
    if module.MEAN:
        lines += _means(records, goal)
    lines += [_line(record, None if module.MEAN else goal) for record in records]
    notes = [f"- {record['row']}: {_one_line(text)}" for record in records
             for text in (*record.get("notes", ()), record.get("fault", "")) if text]
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
                     f"**{mean:.2f}** | {_goal(goal, mean)} | |")
    return lines


def _line(record: Record, goal: Goal | None) -> str:
    start = f"| {record['row']} | {record['threads']} |"
    if "missing" in record:
        return f"{start} not measured: {_one_line(record['missing'])} | | | | | | |"
    if "fault" in record:
        return f"{start} **FAIL** | | | | | | {record['load']:.1f} |"
    peers = ", ".join(f"{name} {text}" for name, text in record["peers"].items())
    verdict = _goal(goal, record["ratio"]) if goal is not None else " | | "
    return (f"{start} {record['ours']} | {peers} | {record['ratio']:.2f} | {verdict} | "
            f"{record['load']:.1f} |")


def _goal(goal: Goal, ratio: float) -> str:
    sign = "≤ " if goal.at_most else ""
    return f"{sign}{goal.bar:g} | {sign}{goal.stretch:g} | {goal.verdict(ratio)}"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
