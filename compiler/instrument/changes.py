"""What a pass changed, in terms of the IR: operations that it removed, added and moved.

    loop-fuse: 2 removed, 1 added
      @main
        - %3 = loop.nest (i0: n) ins(...) ...                [exp]
        + %2 = loop.nest (i0: n) ins(...) ...                [add, exp]

Operations are compared by the text of their first line, function by function and kernel by kernel,
without the numbers of values that have no names, because these change with every operation before
them. An operation that is in another function or kernel afterwards has moved.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from compiler.instrument import Instrument

if TYPE_CHECKING:
    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step

MOST = 12
"""How many lines of each function or kernel are shown."""
_PLACE = re.compile(r" loc\((.*?)\)$")
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_SYMBOL = re.compile(r"^(?:strata|host|loop|block)?[\w.]*(?:func|kernel) @([\w.$-]+)")
_NUMBER = re.compile(r"%(?:\d+|([A-Za-z]\w*?)_\d+)\b")
_NAME = re.compile(r"^(?:[%\w, ]+= )?\"?([a-z_]+\.[a-z_]+)")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Line:
    """An operation: the symbol of its function or kernel, its text, and its nodes."""

    symbol: str
    text: str
    nodes: tuple[str, ...]

    @property
    def key(self) -> str:
        """The text without numbers of values."""
        return _NUMBER.sub(lambda m: f"%{m[1] or ''}", self.text)

    @property
    def name(self) -> str:
        found = _NAME.match(self.text)
        return found[1] if found else self.text.partition(" ")[0]


@dataclass(frozen=True)
class Changes:
    """The difference of two texts. `moved`: operations with their old symbols."""

    removed: Sequence[Line]
    added: Sequence[Line]
    moved: Sequence[tuple[Line, str]]

    def __bool__(self) -> bool:
        return bool(self.removed or self.added or self.moved)

    @property
    def counts(self) -> str:
        parts = [f"{len(lines)} {what}" for lines, what in (
            (self.removed, "removed"), (self.added, "added"), (self.moved, "moved")) if lines]
        return ", ".join(parts) or "nothing changed"

    def kinds(self) -> str:
        """The kinds of operations: `-3 graph.mul, +1 graph.conv`."""
        less, more = (Counter(line.name for line in lines) for lines in (self.removed, self.added))
        return ", ".join(f"{'+' if n > 0 else ''}{n} {name}" for name in sorted({*less, *more})
                         if (n := more[name] - less[name]))


def lines_of(text: str) -> list[Line]:
    """The operations of a module's text."""
    places, found, symbol = _places(text), list[Line](), ""
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith(("}", "^", "//", "#", "builtin.module")):
            continue
        place = _PLACE.search(line)
        own = line[:place.start()] if place else line
        head = _SYMBOL.match(own)
        symbol = head[1] if head else symbol
        nodes = _nodes(place[1], places) if place else ()
        found.append(Line(symbol, own.removesuffix(" {"), nodes))
    return found


def compare(before: Iterable[Line], after: Iterable[Line]) -> Changes:
    """What is different after a pass."""
    before, after = list(before), list(after)
    left = _unmatched(before, after, lambda line: (line.symbol, line.key))
    right = _unmatched(after, before, lambda line: (line.symbol, line.key))
    moved: list[tuple[Line, str]] = []
    waiting: dict[str, list[Line]] = {}
    for line in left:
        waiting.setdefault(line.key, []).append(line)
    added: list[Line] = []
    for line in right:
        if same := waiting.get(line.key):
            moved.append((line, same.pop(0).symbol))
        else:
            added.append(line)
    kept = {id(line) for lines in waiting.values() for line in lines}
    return Changes([line for line in left if id(line) in kept], added, moved)


def shown(title: str, changes: Changes, colour: bool, most: int | None = MOST) -> Iterator[str]:
    """The changes of a pass as lines of text."""
    kinds = changes.kinds()
    yield _painted(f"{title}: {changes.counts}", "1", colour) + (f" ({kinds})" if kinds else "")
    rows: dict[str, list[str]] = {}
    for sign, paint, lines in (("-", "31", changes.removed), ("+", "32", changes.added)):
        for line in lines:
            rows.setdefault(line.symbol, []).append(_painted(_row(sign, line), paint, colour))
    for line, source in changes.moved:
        text = f"{_row('>', line)}  from @{source}"
        rows.setdefault(line.symbol, []).append(_painted(text, "36", colour))
    for symbol, texts in rows.items():
        yield f"  @{symbol}" if symbol else "  module"
        yield from (f"    {text}" for text in texts[:most])
        if most is not None and len(texts) > most:
            yield f"    ... {len(texts) - most} more"


class PrintChanges(Instrument):
    """Prints what each pass changed, as it runs."""

    def __init__(self, stream: TextIO | None = None):
        self.stream = stream or sys.stderr
        self.colour = wants_colour(self.stream)
        self.lines: list[Line] = []

    def start(self, state: State) -> None:
        self.lines = lines_of(state.text)

    def after(self, step: Step, state: State, seconds: float, changed: bool) -> None:
        before, self.lines = self.lines, lines_of(state.text)
        changes = compare(before, self.lines)
        if changes:
            print("\n".join(shown(step.name, changes, self.colour)), file=self.stream)


def wants_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose user does not refuse colours ($NO_COLOR)."""
    import os

    return stream.isatty() and not os.environ.get("NO_COLOR")


def _unmatched(
    lines: list[Line], others: list[Line], key: Callable[[Line], Hashable]
) -> list[Line]:
    """The lines that the others do not have, counted with repetitions."""
    there = Counter(map(key, others))
    left: list[Line] = []
    for line in lines:
        there[key(line)] -= 1
        if there[key(line)] < 0:
            left.append(line)
    return left


def _row(sign: str, line: Line) -> str:
    text = line.text if len(line.text) <= 100 else f"{line.text[:97]}..."
    more = f" and {len(line.nodes) - 3} more" if len(line.nodes) > 3 else ""
    return f"{sign} {text}" + (f"  [{', '.join(line.nodes[:3])}{more}]" if line.nodes else "")


def _painted(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text


def _places(text: str) -> dict[str, str]:
    return {m[1]: m[2] for line in text.splitlines() if (m := _ALIAS.match(line))}


def _nodes(place: str, places: dict[str, str]) -> tuple[str, ...]:
    """The nodes that a location names, through aliases."""
    if place in places:
        return _nodes(places[place], places)
    if place.startswith("fused"):
        return tuple(name for part in re.findall(r"#loc\d*|\"(?:[^\"\\]|\\.)*\"", place)
                     for name in _nodes(part, places))
    found = _STRING.search(place)
    return (found[1],) if found else ()
