"""Faults of a model, collected while the import goes on, and warnings."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from compiler.diagnostics import Problem, StrataError, count_of, log
from compiler.frontend import UnknownContents
from dialects.records import dataclass

if TYPE_CHECKING:
    from compiler.frontend.values import Value

MOST_WARNINGS = 5
LEVEL = "graph"
"""The level that an import produces, which the problems name."""


class Fault(Exception):
    """A problem of the current node or tensor. A caller that knows its name adds the name."""

    def __init__(self, what: str, hint: str = ""):
        super().__init__(what)
        self.what = what
        self.hint = hint


class UnknownValue(Fault):
    """The import depends on the contents of a value that are only known at run time."""

    def __init__(self, value: Value, what: str, hint: str = ""):
        super().__init__(what, hint)
        self.value = value


class Skip(Exception):
    """A node uses the result of a node with a recorded problem."""


@dataclass
class Faults:
    """The problems of one file so far, and the inputs whose contents the import needs."""

    file: str
    problems: list[Problem] = field(default_factory=list[Problem])
    warnings: list[str] = field(default_factory=list[str])
    """Harmless problems, reported as warnings after the import."""
    unknown: set[str] = field(default_factory=set[str])

    def add(self, what: str, node: str = "", level: str = "", hint: str = "") -> None:
        """Add a problem, unless it has been added before."""
        problem = Problem(what, node, level, self.file, hint)
        if problem not in self.problems:
            self.problems.append(problem)

    def warn(self, what: str) -> None:
        """Add a warning, once, for a mistake in the model that does not change its results."""
        if what not in self.warnings:
            self.warnings.append(what)

    def tell_warnings(self) -> None:
        """Log the first few warnings."""
        for what in self.warnings[:MOST_WARNINGS]:
            log().warning("strata: %s: %s", self.file, what)
        if len(self.warnings) > MOST_WARNINGS:
            log().warning("strata: %s: %d more warnings of this kind", self.file,
                        len(self.warnings) - MOST_WARNINGS)

    def mark(self) -> tuple[int, frozenset[str]]:
        """A mark with which `restore` discards later problems."""
        return len(self.problems), frozenset(self.unknown)

    def restore(self, mark: tuple[int, frozenset[str]]) -> None:
        del self.problems[mark[0]:]
        self.unknown = set(mark[1])

    def raise_any(self) -> None:
        """Raise StrataError with everything collected, if there is anything."""
        if self.problems:
            raise self.error()

    def error(self) -> StrataError:
        message = f"cannot import {self.file} ({count_of(self.problems, 'problem')})"
        if self.unknown:
            return UnknownContents(message, self.problems, frozenset(self.unknown))
        return StrataError(message, self.problems)
