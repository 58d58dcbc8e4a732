"""Lines for people: what all commands print goes through `show`.

Names in models are anybody's. Printed as they are, they could move the cursor, recolour or rename a
terminal, or turn the order of what stands beside them. `show` prints such characters as escapes.
Data (texts of levels, JSON) goes through `output.py`, and quotes names by its own rules.
"""

from __future__ import annotations

import sys
from typing import TextIO

from compiler.diagnostics import visible


class Painted(str):
    """A line in a colour, where a terminal shows colours. `code`: that of ECMA-48, such as 31."""

    code: str

    def __new__(cls, text: str, code: str) -> Painted:
        line = super().__new__(cls, text)
        line.code = code
        return line


def show(*lines: str, file: TextIO | None = None) -> None:
    """Print lines, each of which stays one, on standard output or on `file`."""
    stream = sys.stdout if file is None else file
    colour = any(isinstance(line, Painted) for line in lines) and wants_colour(stream)
    for line in lines:
        text = visible(line)
        if colour and isinstance(line, Painted):
            text = f"\x1b[{line.code}m{text}\x1b[0m"
        stream.write(f"{text}\n")


def show_text(text: str, file: TextIO | None = None) -> None:
    """Print a text of several lines."""
    show(*text.expandtabs().split("\n"), file=file)


def wants_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose user does not refuse colours ($NO_COLOR)."""
    import os

    return stream.isatty() and not os.environ.get("NO_COLOR")
