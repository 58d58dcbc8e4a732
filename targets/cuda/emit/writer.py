"""Lines of indented Python text, and names that are unique and legal in it."""

from __future__ import annotations

import keyword
from collections.abc import Generator, Iterable
from contextlib import contextmanager

from dialects.text.syntax import identifier
from targets.naming import Names

_INDENT = "    "
_TAKEN = frozenset((*keyword.kwlist, *keyword.softkwlist, "tl", "triton", "range", "float"))


class Writer:
    """Collects lines; `fresh` returns unused names, none of them `reserved`."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self.names = Names(identifier, (*_TAKEN, *reserved))
        self.fresh = self.names.fresh

    def line(self, text: str = "") -> None:
        self.lines.append(f"{_INDENT * self.depth}{text}" if text else "")

    @contextmanager
    def indented(self) -> Generator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
