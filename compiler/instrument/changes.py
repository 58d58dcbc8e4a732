"""What a pass changed, in terms of the IR: operations that it removed, added, changed and moved.

    loop-fuse: 2 removed, 1 added
      @main
        - %3 = loop.nest (i0: n) ins(...) ...                [exp]
        + %2 = loop.nest (i0: n) ins(...) ...                [add, exp]
    host-plan-buffers: 1 changed
      @main
        ~ %y = host.alloc: + offset 64                     [exp]

Operations are compared by the text of their first line, function by function and kernel by kernel,
without the numbers of values that have no names, because these change with every operation before
them. An operation that is in another function or kernel afterwards has moved. One that has the same
kind and name there, and most of its text, has changed: the part that differs is shown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from compiler.instrument import Instrument
from compiler.io.printing import Painted, show

if TYPE_CHECKING:
    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step

MOST = 12
"""How many functions and kernels are shown, and how many lines of each."""
_LONG = 100
"""How many characters of a line are shown."""
_HEAD = 32
"""How many characters tell which operation has changed."""
_ALIKE = 0.5
"""The least share of the shorter text that both texts of a changed operation have at their ends."""
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

    @property
    def identity(self) -> tuple[str, str, str]:
        """What stays if the operation changes: where it is, its kind, and the names of its results.
        """
        results = self.key.partition(" = ")[0] if self.key.startswith("%") else ""
        return self.symbol, self.name, results


@dataclass(frozen=True)
class Changes:
    """The difference of two texts. `changed`: operations before and after. `moved`: operations with
    their old symbols."""

    removed: Sequence[Line]
    added: Sequence[Line]
    changed: Sequence[tuple[Line, Line]]
    moved: Sequence[tuple[Line, str]]

    def __bool__(self) -> bool:
        return any(self.counted.values())

    @property
    def counted(self) -> dict[str, int]:
        """How many operations were removed, added, changed and moved."""
        return {"removed": len(self.removed), "added": len(self.added),
                "changed": len(self.changed), "moved": len(self.moved)}

    @property
    def counts(self) -> str:
        parts = [f"{count} {what}" for what, count in self.counted.items() if count]
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
    return _with_changed([line for line in left if id(line) in kept], added, moved)


def _with_changed(
    removed: Sequence[Line], added: Sequence[Line], moved: Sequence[tuple[Line, str]]
) -> Changes:
    """The changes, where an operation that came in place of a similar one has changed."""
    waiting: dict[tuple[str, str, str], list[Line]] = {}
    for line in removed:
        waiting.setdefault(line.identity, []).append(line)
    changed, new = list[tuple[Line, Line]](), list[Line]()
    for line in added:
        same = waiting.get(line.identity, [])
        old = next((k for k, other in enumerate(same) if _is_alike(other.key, line.key)), None)
        if old is None:
            new.append(line)
        else:
            changed.append((same.pop(old), line))
    gone = {id(old) for old, _ in changed}
    return Changes([line for line in removed if id(line) not in gone], new, changed, moved)


def _is_alike(one: str, other: str) -> bool:
    same = sum(_common(one, other))
    return same >= _ALIKE * min(len(one), len(other))


def _common(one: Sequence[str], other: Sequence[str]) -> tuple[int, int]:
    """How many characters or words are the same at the start, and at the end behind those."""
    most = min(len(one), len(other))
    start = next((k for k in range(most) if one[k] != other[k]), most)
    end = next((k for k in range(most - start) if one[-1 - k] != other[-1 - k]), most - start)
    return start, end


def shown(title: str, changes: Changes, most: int | None = MOST) -> Iterator[str]:
    """The changes of a pass as lines of text, some of them `Painted`."""
    kinds = changes.kinds()
    yield Painted(f"{title}: {changes.counts}" + (f" ({kinds})" if kinds else ""), "1")
    rows: dict[str, list[str]] = {}
    for sign, paint, lines in (("-", "31", changes.removed), ("+", "32", changes.added)):
        for line in lines:
            rows.setdefault(line.symbol, []).append(
                Painted(f"    {_row(sign, line.text, line)}", paint))
    for old, line in changes.changed:
        rows.setdefault(line.symbol, []).append(
            Painted(f"    {_row('~', _difference(old, line), line)}", "33"))
    for line, source in changes.moved:
        text = f"{_row('>', line.text, line)}  from @{source}"
        rows.setdefault(line.symbol, []).append(Painted(f"    {text}", "36"))
    for symbol, texts in [*rows.items()][:most]:
        yield f"  @{symbol}" if symbol else "  module"
        yield from texts[:most]
        if most is not None and len(texts) > most:
            yield f"    ... {len(texts) - most} more"
    if most is not None and len(rows) > most:
        yield f"  ... {len(rows) - most} more functions and kernels"


class PrintChanges(Instrument):
    """Prints what each pass changed, as it runs."""

    def __init__(self, stream: TextIO):
        self.stream = stream
        self.lines: list[Line] = []

    def start(self, state: State) -> None:
        self.lines = lines_of(state.text)

    def after(self, step: Step, state: State, seconds: float, changed: bool) -> None:
        before, self.lines = self.lines, lines_of(state.text)
        changes = compare(before, self.lines)
        if changes:
            show(*shown(step.name, changes), file=self.stream)


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


def _row(sign: str, text: str, line: Line) -> str:
    more = f" and {len(line.nodes) - 3} more" if len(line.nodes) > 3 else ""
    nodes = f"  [{', '.join(line.nodes[:3])}{more}]" if line.nodes else ""
    return f"{sign} {_short(text, _LONG)}{nodes}"


def _difference(old: Line, new: Line) -> str:
    """A changed operation: how it begins, and the words that differ, before and after."""
    start, end = _common(old.key.split(" "), new.key.split(" "))
    words = [line.text.split(" ") for line in (old, new)]
    before, after = (" ".join(all_[start: len(all_) - end]) for all_ in words)
    head = _short(" ".join(words[1][:start]), _HEAD)
    if not before or not after:
        return f"{head}: {'+' if after else '-'} {_short(before or after, _LONG - _HEAD - 4)}"
    room = (_LONG - _HEAD) // 2 - 3
    return f"{head}: {_short(before, room)} -> {_short(after, room)}"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most - 3]}..."


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
