"""Checks a text against the CHECK lines of a file, as LLVM's FileCheck does, in small.

    CHECK: a {{[0-9]+}}     found behind the previous match
    CHECK-NEXT: b           on the line after it
    CHECK-SAME: c           behind it on the same line
    CHECK-NOT: d            not between the previous match and the next one (or the end)
    CHECK-DAG: e            these, one under the other, are found in any order

A pattern is literal text; `{{...}}` is a regular expression and white space matches any amount of
spaces. There are no variables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

_LINE = re.compile(r"//\s*CHECK(?:-(NEXT|SAME|NOT|DAG))?:[ \t]*(.*?)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class Directive:
    """One CHECK line: its kind ("" for the plain one), pattern, and line number in the file."""

    kind: str
    pattern: str
    line: int

    @property
    def regex(self) -> re.Pattern[str]:
        pieces = re.split(r"\{\{(.*?)\}\}", self.pattern)
        return re.compile("".join(p if k % 2 else _literal(p) for k, p in enumerate(pieces)))

    def __str__(self) -> str:
        return f"line {self.line}: CHECK{'-' + self.kind if self.kind else ''}: {self.pattern}"


class CheckError(AssertionError):
    """A directive does not hold; the message shows it and the text."""


def filecheck(checks: str, text: str) -> None:
    """Raises CheckError for the first CHECK line of `checks` that `text` does not fulfil.

    Raises ValueError where there are no CHECK lines: a test that checks nothing is a mistake.
    """
    directives = parse_directives(checks)
    if not directives:
        raise ValueError("no CHECK lines")
    position, forbidden = 0, list[Directive]()
    for kind, group in groupby(directives, lambda d: d.kind):
        if kind == "NOT":
            forbidden += group
            continue
        for part in [list(group)] if kind == "DAG" else [[d] for d in group]:
            start, end = _match_all(part, text, position) if kind == "DAG" else (
                _match(part[0], text, position))
            _refuse(forbidden, text, position, start)
            position, forbidden = end, []
    _refuse(forbidden, text, position, len(text))


def parse_directives(checks: str) -> list[Directive]:
    return [Directive(m[1] or "", m[2], checks.count("\n", 0, m.start()) + 1)
            for m in _LINE.finditer(checks)]


def _match(directive: Directive, text: str, position: int) -> tuple[int, int]:
    """Where the directive's pattern is, behind `position`."""
    low, high = position, len(text)
    end_of_line = text.find("\n", position) % (len(text) + 1)
    if directive.kind == "SAME":
        high = end_of_line
    if directive.kind == "NEXT":
        low = end_of_line + 1
        high = text.find("\n", low) % (len(text) + 1)
    found = directive.regex.search(text, low, max(low, high))
    if found is None:
        raise _error(directive, "not found", text, position)
    return found.span()


def _match_all(group: list[Directive], text: str, position: int) -> tuple[int, int]:
    """The span of the matches of CHECK-DAG lines; no two may share a piece of text."""
    spans: list[tuple[int, int]] = []
    for directive in group:
        candidates = (m.span() for m in directive.regex.finditer(text, position))
        free = next((s for s in candidates if all(s[1] <= a or b <= s[0] for a, b in spans)), None)
        if free is None:
            raise _error(directive, "not found", text, position)
        spans.append(free)
    return min(a for a, _ in spans), max(b for _, b in spans)


def _refuse(directives: list[Directive], text: str, start: int, end: int) -> None:
    for directive in directives:
        if directive.regex.search(text, start, end):
            raise _error(directive, "found", text, start)


def _literal(text: str) -> str:
    return r"[ \t]+".join(map(re.escape, re.split(r"[ \t]+", text)))


def _error(directive: Directive, what: str, text: str, position: int) -> CheckError:
    line = text.count("\n", 0, position) + 1
    return CheckError(f"{directive}\n{what} behind line {line} of:\n{text}")
