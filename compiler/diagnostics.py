"""Errors that users can fix: what is wrong, where, and what to do about it.

Every error caused by a model, an option or a file is raised as `StrataError`, with all problems
that could be found at once. Any other exception is a fault of the compiler.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from logging import Logger

MOST = 30
"""The maximum number of distinct problems in a message."""
LONGEST = 2000
"""The maximum number of characters of one sentence of a message, which may quote a model."""
LONGEST_NAME = 200
"""The same for the name of a node, a level or a file, and for a line of an excerpt."""
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, movements of the cursor
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?|\x1b[ -/]*[0-~]?")
"""What terminals obey, as ECMA-48 describes it."""
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_DISK = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG))


class Problem(NamedTuple):
    """One problem: what is wrong, where (node, level, file), and a hint on what to do."""

    what: str
    node: str = ""
    level: str = ""
    file: str = ""
    hint: str = ""
    nodes: tuple[str, ...] = ()
    """Several nodes with the same problem, instead of `node`."""
    excerpt: str = ""
    """Lines of the file that show the place."""

    @property
    def where(self) -> str:
        """`node 'conv1', at graph level, in model.onnx`, from the parts that are known."""
        node = f"node '{cut(self.node, LONGEST_NAME)}'" if self.node else ""
        if self.nodes:
            node = f"nodes {some_of(self.nodes)}"
        level = f"at {self.level} level" if self.level else ""
        file = f"in {self.file}" if self.file else ""
        return ", ".join(part for part in (node, level, file) if part)

    def __str__(self) -> str:
        """The problem as it may be printed, whoever wrote its texts."""
        where = f"\n  where: {visible(self.where)}" if self.where else ""
        hint = f"\n  hint:  {cut(self.hint, LONGEST)}" if self.hint else ""
        shown = "".join(f"\n    {cut(line, LONGEST_NAME)}" for line in self.excerpt.splitlines())
        return visible_lines(f"{cut(self.what, LONGEST)}{where}{shown}{hint}")


class StrataError(Exception):
    """An error in the model or the options. `str()` is the complete message for a terminal, with
    names as `visible` shows them; `message` and `problems` hold them as they are.

    `exit_status` is what the command line exits with: 1 for a bad model, 2 for bad usage.
    """

    def __init__(self, message: str, problems: Sequence[Problem] = (), exit_status: int = 1):
        self.message = message
        super().__init__(message)
        self.problems = tuple(problems)
        self.exit_status = exit_status

    def __str__(self) -> str:
        message = visible_lines(cut(self.message, LONGEST))
        if not self.problems:
            return message
        grouped = _grouped([self._briefly(problem) for problem in self.problems])
        lines = [f"- {problem}" for problem in grouped[:MOST]]
        if len(grouped) > MOST:
            lines.append(f"- and {len(grouped) - MOST} more problems")
        return "\n".join([f"{message}:", *lines])

    def _briefly(self, problem: Problem) -> Problem:
        """The problem without its file, if the message already names it."""
        named = problem.file and problem.file in self.message
        return problem._replace(file="") if named else problem


def disk_error(error: Exception) -> StrataError | None:
    """The error for a full or read-only disk; None for any other exception."""
    if not isinstance(error, OSError) or error.errno not in _DISK:
        return None
    place = f" {error.filename}" if error.filename else ""
    return StrataError(f"cannot write{place}: {error.strerror}", [Problem(
        "the disk is full, or may not be written",
        hint="$TMPDIR names a folder for temporary files")])


def _grouped(problems: Sequence[Problem]) -> list[Problem]:
    """Merge problems that only differ in their nodes into one with a count and the first nodes."""
    nodes: dict[Problem, list[str]] = {}
    for problem in problems:
        nodes.setdefault(problem._replace(node=""), []).append(problem.node)
    return [problem._replace(node=found[0]) if len(found) == 1 else
            problem._replace(what=f"{problem.what} ({len(found)} times)",
                             nodes=tuple(dict.fromkeys(filter(None, found))))
            for problem, found in nodes.items()]


def count_of(items: Sequence[object], noun: str) -> str:
    """`1 problem`, `3 problems`."""
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


def visible(line: str) -> str:
    """A line as it may be printed, with escapes for all that terminals obey instead of showing it:
    control characters, ends of lines, and marks that turn the direction of what follows."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def visible_lines(text: str) -> str:
    """The same of a text, whose lines stay."""
    if text.isprintable():
        return text
    return "\n".join(map(visible, text.expandtabs().split("\n")))


def without_controls(text: str) -> str:
    """A text of others, such as a peer or a tool, without what a terminal would obey: colours,
    movements of the cursor and other control characters. Ends of lines and tabs stay; a return to
    the beginning of a line becomes its end."""
    if text.isprintable():
        return text
    plain = _SEQUENCES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("", plain)


def kind_and_text(error: BaseException) -> str:
    """`ValueError: its text`, of an exception of others."""
    return f"{type(error).__name__}: {without_controls(str(error)).strip()}"


def cut(text: str, limit: int = 60) -> str:
    """A text from outside as a message quotes it: only its beginning, if it is long."""
    return text if len(text) <= limit else f"{text[:limit]}..."


def some_of(names: Sequence[str], limit: int = 5) -> str:
    """`'a', 'b' and 7 more`."""
    shown = ", ".join(f"'{visible(cut(n, LONGEST_NAME))}'" for n in names[:limit])
    more = len(names) - limit
    return f"{shown} and {more} more" if more > 0 else shown


def log() -> Logger:
    """The log "strata", of what concerns no single call. Python's `logging` is imported with the
    first message: most compilations have none."""
    import logging

    return logging.getLogger("strata")
