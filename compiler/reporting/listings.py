"""Texts of levels as listings: lines, and the nodes of the model that each line stands for.

    %y = graph.relu %x : f32[n] loc(#loc3)      ->   ("%y = graph.relu %x : f32[n]", [4, 7])

A listing has a part for each function and kernel. Lines inside an operation with a region, such as
the scalar operations of a nest, belong to its nodes unless they name nodes of their own. Target
code has a part for each kernel that it defines.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from targets.naming import one_line
from targets.origins import line_nodes

_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_PLACE = re.compile(r" loc\((#loc\d*)\)$")
_PARTS = re.compile(r"#loc\d*")
_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2})|\\(.)")
_SYMBOL = re.compile(r"^[\w.]*(?:func|kernel) @([\w.$-]+)")
_CALL = re.compile(r' strata\.call @([\w.$-]+) number \d+ of \[((?:"(?:[^"\\]|\\.)*"(?:, )?)*)\]')
"""A call of a shared function: its nodes, in the order of those of the first call."""
_NAMES = re.compile(r'"((?:[^"\\]|\\.)*)"')
_NOWHERE = " loc(unknown)"
_TELLS = re.compile(r"^\s*\.(?:loc|file)\s|^!\S+ = ")
"""Lines of target code that only say where other lines come from."""
_LEADS = re.compile(r"^(?:[#;@]|//|$)")
"""Lines before a function that belong to it."""
_MARK = re.compile(r"(?:,? !dbg !\d+(?= \{$|$)|  # from .*$)")
COMMAS = 8
"""How many parts of a list of names, which commas divide, one name may have."""
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
    for symbol, alike in _calls(text, index).items():
        for part in (p for p in parts if p.symbol == symbol):
            part.nodes[:] = [list(dict.fromkeys(m for n in nodes for m in alike.get(n, (n,))))
                             for nodes in part.nodes]
    return parts


def _calls(text: str, index: Mapping[str, int]) -> dict[str, dict[int, list[int]]]:
    """For each shared function, the nodes of all calls that each node in it stands for."""
    found: dict[str, list[list[list[int]]]] = {}
    for symbol, names in _CALL.findall(text):
        found.setdefault(symbol, []).append([
            numbers_of(_unescaped(name), index) for name in _NAMES.findall(names)])
    return {symbol: {first[0]: [n for numbers in same for n in numbers]
                     for first, *same in zip(calls[0], *calls, strict=True) if first}
            for symbol, calls in found.items()}


def _close(part: Part, start: int, own: list[int]) -> None:
    """Give the lines of a region the nodes of its operation, whose location ends the region.

    A function or kernel as a whole stands for too many nodes to tell its lines from each other.
    """
    end = len(part.nodes) if start else 1
    part.nodes[start:end] = [nodes or own for nodes in part.nodes[start:end]]


def code_listing(
    text: str, kernels: Sequence[str], index: Mapping[str, int] | None = None
) -> list[Part]:
    """The parts of target code: one for each kernel, and one for what comes before the first.

    What follows a kernel up to the next one belongs to it, except for the functions of the host,
    which have no kernel's name. Lines that only say where code comes from are left out.
    """
    given: Mapping[str, int] = {} if index is None else index
    told = {**{one_line([name]): number for name, number in given.items()}, **given}
    lines = _with_nodes(text, told)
    if not kernels:
        return [Part("", [line for line, _ in lines], [nodes for _, nodes in lines])]
    names = "|".join(sorted(map(re.escape, kernels), key=len, reverse=True))
    start = re.compile(rf'^(?:define\b[^@]*@|def |\s*\.visible \.entry |\s*\.(?:globl|type)\s+)?'
                       rf'"?({names})"?\s*(?:[(:,]|$)')
    other = re.compile(r"^(?:define\b|def |\s*\.type\s|\s*\.visible \.entry )")
    parts = [Part("")]
    for line, nodes in lines:
        head = start.match(line)
        if head and head[1] != parts[-1].symbol:
            parts.append(_taken(parts[-1], head[1]))
        elif not head and other.match(line) and parts[-1].symbol:
            parts.append(Part(""))
        parts[-1].lines.append(line)
        parts[-1].nodes.append(nodes)
    return [p for p in parts if any(map(str.strip, p.lines))]


def lines_of_nodes(parts: Iterable[Part], numbers: Collection[int]) -> list[str]:
    """The lines that stand for some nodes, with the heads of their functions and kernels. Three
    dots take the place of others in between.
    """
    found = list[str]()
    for part in parts:
        own = [k for k, nodes in enumerate(part.nodes) if any(n in numbers for n in nodes)]
        if own:
            found.append(f"  @{part.symbol or 'the module'}, {len(own)} of {len(part.lines)} lines")
        for before, k in zip([None, *own], own, strict=False):
            if before is not None and k > before + 1:
                found.append("    ...")
            found.append(f"    {part.lines[k]}")
    return found


def _taken(before: Part, symbol: str) -> Part:
    """A new part, with the comments, decorators and constants at the end of the part before."""
    count = next((k for k, line in enumerate(reversed(before.lines)) if not _LEADS.match(line)),
                 len(before.lines))
    at = len(before.lines) - count
    part = Part(symbol, before.lines[at:], before.nodes[at:])
    del before.lines[at:], before.nodes[at:]
    return part


def _with_nodes(text: str, index: Mapping[str, int]) -> list[tuple[str, list[int]]]:
    """The lines of target code, each with its nodes."""
    known: dict[str, list[int]] = {}
    found: list[tuple[str, list[int]]] = []
    for line, told in zip(text.splitlines(), line_nodes(text), strict=True):
        if not _TELLS.match(line):
            if told not in known:
                known[told] = _numbers(told, index)
            found.append((_MARK.sub("", line), known[told]))
    return found


def _numbers(told: str, index: Mapping[str, int]) -> list[int]:
    """The nodes in a comment, which commas divide; a name may have commas of its own. Names that
    are no node's, such as those of constants, are left out."""
    parts, found, at = told.split(", ") if told else [], list[int](), 0
    while at < len(parts):
        ends = ((end, numbers_of(", ".join(parts[at:end]), index))
                for end in range(at + 1, min(at + COMMAS, len(parts)) + 1))
        at, numbers = next(
            ((end, numbers) for end, numbers in ends if numbers), (at + 1, list[int]()))
        found += numbers
    return list(dict.fromkeys(found))


# ---------------------------------------------------------------------- locations
def _places(text: str, index: Mapping[str, int]) -> dict[str, list[int]]:
    """The nodes of each alias of a location."""
    found: dict[str, list[int]] = {}
    texts = {m[1]: m[2] for line in text.splitlines() if (m := _ALIAS.match(line))}
    for alias, place in texts.items():
        if not place.startswith("fused"):
            found[alias] = numbers_of(_unescaped(place.strip('"')), index)
    for alias, place in texts.items():
        if place.startswith("fused"):
            found[alias] = list(dict.fromkeys(
                n for part in _PARTS.findall(place) for n in found.get(part, ())))
    return found


def numbers_of(name: str, index: Mapping[str, int]) -> list[int]:
    """The numbers of the node with a name, and of those that it is inside of: `conv/pad` in `conv`.
    """
    found, slash = list[int](), "/"
    while slash:
        if name in index:
            found.append(index[name])
        name, slash, _ = name.rpartition("/")
    return found


def number_of(name: str, index: Mapping[str, int]) -> int | None:
    """The number of a node, or of the innermost node that a name is inside of."""
    return next(iter(numbers_of(name, index)), None)


def _unescaped(text: str) -> str:
    """The text of a string literal of MLIR."""
    def plain(found: re.Match[bytes]) -> bytes:
        return bytes([int(found[1], 16)]) if found[1] else found[2]

    return _ESCAPE.sub(plain, text.encode()).decode(errors="replace")
