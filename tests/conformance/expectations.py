"""Which tests are expected to fail, and why: `expected_failures.txt`, read and shortened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.cases import Case

FILE = Path(__file__).parent / "expected_failures.txt"


@dataclass(frozen=True)
class Failure:
    """Why a test fails, and on which targets; empty for all."""

    reason: str
    targets: tuple[str, ...] = ()

    def holds(self, target: str) -> bool:
        return not self.targets or target in self.targets


def expected_failures(text: str | None = None) -> Mapping[str, Failure]:
    """A case's key -> why it fails. Raises ValueError for a file that is not in groups."""
    found: dict[str, Failure] = {}
    reason = ""
    for line in (FILE.read_text(encoding="utf-8") if text is None else text).splitlines():
        if line.startswith("["):
            reason = line.strip("[]")
        elif line and not line.startswith("#"):
            key, *targets = line.split()
            if not reason or key in found:
                raise ValueError(f"{FILE.name}: {key} has no reason, or stands there twice")
            found[key] = Failure(reason, tuple(targets))
    return found


def expected_failure(
    failures: Mapping[str, Failure], case: Case, target: str
) -> Failure | None:
    """Why the case must fail on that target; None when it must pass."""
    failure = failures.get(case.key)
    return failure if failure is not None and failure.holds(target) else None


def without(text: str, keys: set[str]) -> str:
    """The file's text without those tests, and without groups that hold none then."""
    heads, *groups = text.split("\n\n")
    kept = ["\n".join(line for line in group.splitlines()
                      if line.startswith("[") or line.split()[0] not in keys)
            for group in groups]
    return "\n\n".join([heads.rstrip("\n"), *(g for g in kept if "\n" in g)]) + "\n"
