"""Faults of a model, collected while the import goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.diagnostics import Problem, StrataError, count_of


class Fault(Exception):
    """What is wrong with the node or tensor at hand; whoever knows its name completes it."""

    def __init__(self, what: str, hint: str = ""):
        super().__init__(what)
        self.what = what
        self.hint = hint


@dataclass
class Faults:
    """The problems of one file so far."""

    file: str
    problems: list[Problem] = field(default_factory=list[Problem])

    def add(self, what: str, node: str = "", level: str = "", hint: str = "") -> None:
        """Note a problem, once."""
        problem = Problem(what, node, level, self.file, hint)
        if problem not in self.problems:
            self.problems.append(problem)

    def raise_any(self) -> None:
        """Raise StrataError with everything collected, if there is anything."""
        if self.problems:
            raise self.error()

    def error(self) -> StrataError:
        count = count_of(self.problems, "problem")
        return StrataError(f"cannot import {self.file} ({count})", self.problems)
