"""The page of what was measured so far, in Markdown. Its records have `goal`: bar, stretch, and
whether the ratio shall be at most that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suites.results import Record, Results, described, notes_of, one_line, peers_of

from rows import GROUPS, Goal

__all__ = ["Results", "described", "joined", "report"]

HEADER = ("| row | ours | auto | peers | ratio | bar | stretch | |",
          "|---|---|---|---|---|---|---|---|")
TITLES = {"compile": "seconds from the exported program to the first result, caches empty",
          "memory": "peak of memory on the device during calls, weights included: ours / eager's"}
"""Of groups whose figures other groups' rows tell."""


def report(results: Results, titles: dict[str, str], note: str = "") -> str:
    """The page: where it was measured, a table per group, and notes below each."""
    parts = results.opening("CUDA", note)
    took = seconds_of(results)
    parts += ["It took " + ", ".join(f"{s:.0f} s for {g}" for g, s in took.items()) + ".", ""
              ] if took else []
    for name in GROUPS:
        records = results.of_group(name)
        if records:
            parts += _section(f"{name}: {(titles | TITLES)[name]}", records)
    return "\n".join(parts).rstrip() + "\n"


def seconds_of(results: Results) -> dict[str, float]:
    """How long the rows of each group took, with all that was compiled for them."""
    found: dict[str, float] = {}
    for record in results.records.values():
        if record.get("seconds"):
            found[record["group"]] = found.get(record["group"], 0.0) + record["seconds"]
    return found


def joined(record: Record, later: Record) -> dict[str, Any]:
    """A record with peers that were measured later beside ours; the best of all of them counts."""
    if "ratio" not in record or "ratio" not in later:
        return dict(record if "ratio" in record else later)
    at_most = record["goal"][2]
    return {**record, "peers": {**later["peers"], **record["peers"]},
            "ratio": record["ratio"] if at_most else min(record["ratio"], later["ratio"]),
            "seconds": record.get("seconds", 0.0) + later.get("seconds", 0.0)}


def _section(title: str, records: Sequence[Record]) -> list[str]:
    notes = [line for record in records for line in notes_of(record)]
    return [f"## {title}", "", *HEADER, *map(_line, records), "", *notes, *[""] * bool(notes)]


def _line(record: Record) -> str:
    start = f"| {record['row']} |"
    if "missing" in record:
        return f"{start} not measured: {one_line(record['missing'])} | | | | | | |"
    if "fault" in record:
        return f"{start} **FAIL** | | | | | | |"
    goal = Goal(*record["goal"]).cells(record["ratio"])
    return (f"{start} {record['ours']} | {record.get('auto', '')} | {peers_of(record)} | "
            f"{record['ratio']:.2f} | {goal} |")
