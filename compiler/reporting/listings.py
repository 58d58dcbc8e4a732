"""Texts of levels as listings: lines, and the nodes of the model that each line stands for.

    %y = graph.relu %x : f32[n] loc(#loc3)      ->   ("%y = graph.relu %x : f32[n]", [4, 7])

A listing has a part for each function and kernel. Lines inside an operation with a region, such as
the scalar operations of a nest, belong to its nodes unless they name nodes of their own. Target
code has a part for each kernel that it defines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_PLACE = re.compile(r" loc\((#loc\d*)\)$")
_PARTS = re.compile(r"#loc\d*")
_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2})|\\(.)")
_SYMBOL = re.compile(r"^[\w.]*(?:func|kernel) @([\w.$-]+)")
_NOWHERE = " loc(unknown)"
_MODULE = ("builtin.module", "// strata:")


@dataclass
class Part:
    """A function or a kernel: its lines, and the indices of the nodes of each line."""

    symbol: str
    lines: list[str] = field(default_factory=list[str])
    nodes: list[list[int]] = field(default_factory=list[list[int]])

    def json(self, before: Iterable[Part] = ()) -> dict[str, Any]:
        """The part; without its lines, and with `same`, if an earlier level has the same ones."""
        if any(p.symbol == self.symbol and p.lines == self.lines for p in before):
            return {"symbol": self.symbol, "same": True}
        return {"symbol": self.symbol, "lines": self.lines, "nodes": self.nodes}


def listing(text: str, index: Mapping[str, int]) -> list[Part]:
    """The parts of a level's text. `index`: the numbers of the model's nodes by name."""
    places = _places(text, index)
    parts, opened = list[Part](), list[int]()
    for line in text.splitlines():
        if not line.strip() or line.startswith((*_MODULE, "#", "}")):
            continue
        found = _PLACE.search(line)
        own = places.get(found[1], []) if found else []
        shown = (line[:found.start()] if found else line).removeprefix("  ").replace(_NOWHERE, "")
        head = _SYMBOL.match(shown)
        if head or not parts:
            parts.append(Part(head[1] if head else ""))
            opened.clear()
        part = parts[-1]
        if shown.lstrip().startswith("}") and opened:
            _close(part, opened.pop(), own)
        if shown.endswith("{"):
            opened.append(len(part.lines))
        part.lines.append(shown)
        part.nodes.append(own)
    return parts


def _close(part: Part, start: int, own: list[int]) -> None:
    """Give the lines of a region the nodes of its operation, whose location ends the region.

    A function or kernel as a whole stands for too many nodes to tell its lines from each other.
    """
    end = len(part.nodes) if start else 1
    part.nodes[start:end] = [nodes or own for nodes in part.nodes[start:end]]


def code_listing(text: str, kernels: Sequence[str]) -> list[Part]:
    """The parts of target code: one for each kernel, and one for what comes before the first.

    What follows a kernel up to the next one belongs to it, except for the functions of the host,
    which have no kernel's name.
    """
    if not kernels:
        return [Part("", text.splitlines())]
    names = "|".join(sorted(map(re.escape, kernels), key=len, reverse=True))
    start = re.compile(rf'^(?:define\b[^@]*@|def |\s*\.visible \.entry |\.globl\s+)?"?({names})"?'
                       r"\s*(?:\(|:|$)")
    other = re.compile(r"^(?:define\b|def |[A-Za-z_][\w.$]*:|\s*\.visible \.entry )")
    parts = [Part("")]
    for line in text.splitlines():
        head = start.match(line)
        if head and head[1] != parts[-1].symbol:
            parts.append(Part(head[1]))
        elif not head and other.match(line) and parts[-1].symbol:
            parts.append(Part(""))
        parts[-1].lines.append(line)
    return [p for p in parts if any(map(str.strip, p.lines))]


# ---------------------------------------------------------------------- locations
def _places(text: str, index: Mapping[str, int]) -> dict[str, list[int]]:
    """The nodes of each alias of a location."""
    found: dict[str, list[int]] = {}
    texts = {m[1]: m[2] for line in text.splitlines() if (m := _ALIAS.match(line))}
    for alias, place in texts.items():
        if not place.startswith("fused"):
            number = number_of(_unescaped(place.strip('"')), index)
            found[alias] = [] if number is None else [number]
    for alias, place in texts.items():
        if place.startswith("fused"):
            found[alias] = list(dict.fromkeys(
                n for part in _PARTS.findall(place) for n in found.get(part, ())))
    return found


def number_of(name: str, index: Mapping[str, int]) -> int | None:
    """The number of a node, or of the node that a name is inside of: `conv/pad` in `conv`."""
    while name not in index:
        name, slash, _ = name.rpartition("/")
        if not slash:
            return None
    return index[name]


def _unescaped(text: str) -> str:
    """The text of a string literal of MLIR."""
    def plain(found: re.Match[bytes]) -> bytes:
        return bytes([int(found[1], 16)]) if found[1] else found[2]

    return _ESCAPE.sub(plain, text.encode()).decode(errors="replace")
