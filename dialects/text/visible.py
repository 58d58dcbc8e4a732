"""Text of others as it may be shown: on a terminal, in an error, in a comment of generated code."""

from __future__ import annotations


def visible(line: str) -> str:
    """A line with escapes for all that terminals and editors obey instead of showing it: control
    characters, ends of lines, and marks that turn the direction of what follows."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def visible_lines(text: str) -> str:
    """The same of a text, whose lines stay."""
    if text.isprintable():
        return text
    return "\n".join(map(visible, text.expandtabs().split("\n")))
