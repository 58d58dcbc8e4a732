"""The tokens of StableHLO's text, read one after another."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler.diagnostics import StrataError
from compiler.excerpts import Place, problem_at

_TOKEN = re.compile(r"""
    (?P<skip>\s+|//[^\n]*)
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<number>-?0x[0-9A-Fa-f]+|-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
  | (?P<value>%[\w$.]+(?:\#\d+)?)
  | (?P<symbol>@(?:"[^"]*"|[\w$.]+))
  | (?P<block>\^[\w$.]+)
  | (?P<word>[#!]?[A-Za-z_][\w$.]*)
  | (?P<mark>->|[<>=]=|[^\s\w"])
""", re.VERBOSE)
OPENING, CLOSING = "([{<", ")]}>"


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    at: int


class Tokens:
    """The tokens of a text, and the place of the next one. `name`: the text's, for errors."""

    def __init__(self, text: str, name: str):
        self.text, self.name = text, name
        self.tokens = list[Token]()
        self.place: int = 0
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.error(f"cannot read {text[at:at + 20]!r}", at)
            if found.lastgroup != "skip":
                self.tokens.append(Token(str(found.lastgroup), found.group(), at))
            at = found.end()
        self.tokens.append(Token("end", "", at))

    def error(self, what: str, at: int | None = None) -> StrataError:
        """What is wrong, with the line and a caret below the next token, or below a place."""
        token = self.tokens[self.place] if at is None else Token("", "", at)
        place = Place(self.text, token.at, token.at + len(token.text))
        return StrataError(f"{self.name} is no StableHLO that can be read", [
            problem_at(place, what, Path(self.name))])

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    @property
    def next(self) -> Token:
        return self.tokens[self.place]

    def take(self) -> Token:
        token = self.tokens[self.place]
        if token.kind == "end":
            raise self.error("the text ends too early")
        self.place += 1
        return token

    def accept(self, text: str) -> bool:
        if self.next.text == text and self.next.kind != "string":
            self.place += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected {text!r}, not {self.next.text!r}")

    def balanced(self, *ends: str) -> str:
        """The text up to one of these marks, which is not consumed; marks in brackets of any kind
        are none. A closing bracket that closes none ends it, too."""
        start, depth = self.next.at, 0
        while self.next.kind != "end":
            mark = self.next.text if self.next.kind == "mark" else ""
            closes = bool(mark) and mark in CLOSING
            if not depth and (mark in ends or closes):
                break
            depth += bool(mark) and mark in OPENING
            depth -= closes
            self.place += 1
        return self.text[start:self.next.at].rstrip()

    def listed(self, item: Callable[[], Any], end: str) -> list[Any]:
        """Items separated by commas, up to an end, which is consumed."""
        found: list[Any] = []
        while not self.accept(end):
            found.append(item())
            if not self.accept(","):
                self.expect(end)
                break
        return found
