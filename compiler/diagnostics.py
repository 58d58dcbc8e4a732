"""Errors that are the user's to mend: what is wrong, where, and what to do about it.

Everything that a model, an option or a file can cause is raised as `StrataError`, with all
problems that could be found at once. Any other exception is a fault of the compiler.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NamedTuple

_DISK = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG))


class Problem(NamedTuple):
    """One fault: what is wrong; where it stands (node, level, file); a hint on what to do."""

    what: str
    node: str = ""
    level: str = ""
    file: str = ""
    hint: str = ""

    @property
    def where(self) -> str:
        """`node 'conv1', at graph level, in model.onnx`, from the parts that are known."""
        node = f"node '{self.node}'" if self.node else ""
        level = f"at {self.level} level" if self.level else ""
        file = f"in {self.file}" if self.file else ""
        return ", ".join(part for part in (node, level, file) if part)

    def __str__(self) -> str:
        where = f"\n  where: {self.where}" if self.where else ""
        hint = f"\n  hint:  {self.hint}" if self.hint else ""
        return f"{self.what}{where}{hint}"


class StrataError(Exception):
    """The model or the options are at fault. `str()` is the whole message for a terminal.

    `exit_status` is what the command line exits with: 1 for a bad model, 2 for bad usage.
    """

    def __init__(self, message: str, problems: Sequence[Problem] = (), exit_status: int = 1):
        super().__init__(message)
        self.message = message
        self.problems = tuple(problems)
        self.exit_status = exit_status

    def __str__(self) -> str:
        if not self.problems:
            return self.message
        return "\n".join([f"{self.message}:", *(f"- {self._briefly(p)}" for p in self.problems)])

    def _briefly(self, problem: Problem) -> Problem:
        """The problem without its file, where the message names that already."""
        named = problem.file and problem.file in self.message
        return problem._replace(file="") if named else problem


def disk_error(error: Exception) -> StrataError | None:
    """What to tell of a disk that is full or cannot be written, wherever that was met; None for
    any other error."""
    if not isinstance(error, OSError) or error.errno not in _DISK:
        return None
    place = f" {error.filename}" if error.filename else ""
    return StrataError(f"cannot write{place}: {error.strerror}", [Problem(
        "the disk is full, or may not be written",
        hint="$TMPDIR names a folder for temporary files")])


def count_of(items: Sequence[object], noun: str) -> str:
    """`1 problem`, `3 problems`."""
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


def some_of(names: Sequence[str], limit: int = 5) -> str:
    """`'a', 'b' and 7 more`."""
    shown = ", ".join(f"'{n}'" for n in names[:limit])
    more = len(names) - limit
    return f"{shown} and {more} more" if more > 0 else shown
