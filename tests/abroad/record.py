"""What has been found right on other machines: a file, so that a run goes on where another ended.

    {"sources": "9f3a...", "right": {"wasm32-simd128": {"0": [], "1": ["80-...: QEMU failed ..."]}}}

It lists batches by machine and number, with lines about samples that were skipped. It holds as long
as no source changes of which the programs are made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("dialects", "passes", "targets", "compiler", "tests/op_samples", "tests/abroad",
           "tests/targets/cpu/artifact")
ENDINGS = (".py", ".c", ".h", ".mjs", ".txt")


def sources_digest() -> str:
    """A hash of the files that decide what the programs are and how they are compared."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in ENDINGS):
            digest.update(f"{path.relative_to(ROOT)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


class Record:
    """The batches that are right. `path`: the file, which need not exist; None keeps none."""

    def __init__(self, path: Path | None, sources: str):
        self._path, self._sources = path, sources
        self._right: dict[str, dict[str, list[str]]] = {}
        if path is not None and path.exists():
            kept = json.loads(path.read_text())
            if kept["sources"] == sources:
                self._right = kept["right"]

    def has(self, machine: str, batch: int) -> bool:
        return str(batch) in self._right.get(machine, {})

    def skipped(self) -> list[str]:
        """The lines of all samples that were skipped."""
        return [f"{machine}: {line}" for machine, batches in self._right.items()
                for lines in batches.values() for line in lines]

    def add(self, machine: str, batch: int, skipped: Sequence[str]) -> None:
        self._right.setdefault(machine, {})[str(batch)] = list(skipped)
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part = self._path.with_suffix(".part")
            part.write_text(json.dumps({"sources": self._sources, "right": self._right}, indent=1))
            part.replace(self._path)
