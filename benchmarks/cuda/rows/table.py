"""The page of what was measured so far, in Markdown. Its records have `goal`: bar, stretch, and
whether the ratio shall be at most that."""

from __future__ import annotations

from collections.abc import Sequence

from suites.results import Record, Results, described, notes_of, one_line, peers_of

from rows import GROUPS, Goal

__all__ = ["Results", "described", "report"]

HEADER = ("| row | ours | peers | ratio | bar | stretch | |", "|---|---|---|---|---|---|---|")
TITLES = {"compile": "seconds from the exported program to the first result, caches empty",
          "memory": "peak of memory on the device during calls, weights included: ours / eager's"}
"""Of groups whose figures other groups' rows tell."""


def report(results: Results, titles: dict[str, str], note: str = "") -> str:
    """The page: where it was measured, a table per group, and notes below each."""
    parts = ["# CUDA speed: what was measured", "",
             "Made by `python benchmarks/cuda/suite.py`; do not edit. What the rows are, and how "
             "they are measured: [README.md](../README.md).", "", *results.machines(), ""]
    parts += [note, ""] if note else []
    for name in GROUPS:
        records = results.of_group(name)
        if records:
            parts += _section(f"{name}: {(titles | TITLES)[name]}", records)
    return "\n".join(parts).rstrip() + "\n"


def _section(title: str, records: Sequence[Record]) -> list[str]:
    notes = [line for record in records for line in notes_of(record)]
    return [f"## {title}", "", *HEADER, *map(_line, records), "", *notes, *[""] * bool(notes)]


def _line(record: Record) -> str:
    start = f"| {record['row']} |"
    if "missing" in record:
        return f"{start} not measured: {one_line(record['missing'])} | | | | | |"
    if "fault" in record:
        return f"{start} **FAIL** | | | | | |"
    goal = Goal(*record["goal"]).cells(record["ratio"])
    return f"{start} {record['ours']} | {peers_of(record)} | {record['ratio']:.2f} | {goal} |"
