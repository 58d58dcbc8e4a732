"""What was measured so far, kept in a JSON file, and what tables of it have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]
"""`group`, `row`, `machine`, `versions`, and what was measured (`ours`, `peers`, `ratio`, `notes`),
or what is `missing`, or the `fault`; suites add what else they tell."""


@dataclass(frozen=True)
class Results:
    """Records by group, row, and number of threads where there is one."""

    file: Path
    records: dict[str, dict[str, Any]]

    @staticmethod
    def load(file: Path) -> Results:
        return Results(file, json.loads(file.read_text()) if file.exists() else {})

    def find(self, record: Record) -> dict[str, Any] | None:
        """What there is of the same row."""
        return self.records.get(_key(record))

    def put(self, record: dict[str, Any]) -> None:
        """Keep it, in place of an older one of the same row."""
        self.records[_key(record)] = record
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.records, indent=1) + "\n")

    def of_group(self, name: str) -> list[dict[str, Any]]:
        return [r for r in self.records.values() if r["group"] == name]

    @property
    def faults(self) -> list[dict[str, Any]]:
        return [r for r in self.records.values() if "fault" in r]

    def opening(self, target: str, note: str) -> list[str]:
        """The first lines of a target's page."""
        lines = [f"# {target} speed: what was measured", "",
                 f"Made by `python benchmarks/{target.lower()}/suite.py`; do not edit. What the "
                 "rows are, and how they are measured: [README.md](../README.md).", "",
                 *self.machines(), ""]
        return [*lines, note, ""] if note else lines

    def machines(self) -> list[str]:
        """Every machine with its versions, and what was measured there."""
        found: dict[tuple[str, str], list[str]] = {}
        for record in self.records.values():
            found.setdefault((record["machine"], record["versions"]), []).append(record["group"])
        return [f"- {', '.join(dict.fromkeys(groups))}: on {machine}; {versions}."
                for (machine, versions), groups in found.items()]


def _key(record: Record) -> str:
    parts = (record["group"], record["row"], record.get("threads"))
    return "/".join(str(part) for part in parts if part is not None)


def notes_of(record: Record) -> list[str]:
    """The lines below a table that a row has."""
    texts = (*record.get("notes", ()), record.get("fault", ""))
    return [f"- {record['row']}: {one_line(text)}" for text in texts if text]


def peers_of(record: Record) -> str:
    return ", ".join(f"{name} {text}" for name, text in record["peers"].items())


def described(record: Record) -> str:
    """A record in a line for the screen."""
    if "fault" in record:
        return f"FAIL {one_line(record['fault'])}"
    if "missing" in record:
        return f"missing: {one_line(record['missing'])}"
    return f"{record['ours']}; {peers_of(record)}; {record['ratio']:.2f}"


def one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
