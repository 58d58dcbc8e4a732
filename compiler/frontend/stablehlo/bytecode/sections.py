"""The sections of a bytecode file: strings, names of operations, and where attributes lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.frontend.stablehlo.bytecode import MAGIC
from compiler.frontend.stablehlo.bytecode.cursor import Cursor

LAST_VERSION = 6
# the numbers of sections
STRINGS, DIALECTS, CONTENTS, OFFSETS, PROGRAM, VERSIONS, PROPERTIES = 0, 1, 2, 3, 4, 7, 8
_NEEDED = {STRINGS: "strings", DIALECTS: "dialects", CONTENTS: "attributes",
           OFFSETS: "offsets of attributes", PROGRAM: "operations"}
# the versions of the format since which something is so
VERSIONED, LAZY, ORDERS, COUNTED, REGISTERED = 1, 2, 3, 4, 5


@dataclass(frozen=True)
class Entry:
    """Where an attribute or a type lies. `encoded`: as bytes of its dialect, and not as text."""

    dialect: str
    start: int
    end: int
    encoded: bool


@dataclass(frozen=True)
class Sections:
    """What a file consists of. `operations`: full names, and whether their writer knew them.
    `properties`: the attributes of operations, as bytes."""

    version: int
    producer: str
    strings: list[str]
    operations: list[tuple[str, bool]]
    attributes: list[Entry]
    types: list[Entry]
    properties: list[Cursor]
    program: Cursor


def section(at: Cursor) -> tuple[int, Cursor]:
    """The number and the contents of the next section."""
    number = at.byte()
    length = at.number()
    if number & 0x80:
        at.align(at.number())
    return number & 0x7F, at.part(length)


def sections(data: bytes, name: str) -> Sections:
    """The sections of a file. Raises StrataError for one that is no bytecode, or is cut off."""
    at = Cursor(data, name)
    if at.bytes(min(len(MAGIC), len(data))) != MAGIC:
        raise at.error("it does not begin as MLIR bytecode does")
    version = at.number()
    if version > LAST_VERSION:
        raise at.error(f"version {version} of MLIR's bytecode is newer than {LAST_VERSION}, the "
                       "newest that is known")
    producer = at.text()
    found: dict[int, Cursor] = {}
    while at.left:
        number, contents = section(at)
        if number in found:
            raise at.error(f"section {number} occurs twice")
        found[number] = contents
    for number, what in _NEEDED.items():
        if number not in found:
            raise at.error(f"there are no {what}: section {number} is missing")
    strings = _strings(found[STRINGS])
    dialects, operations = _dialects(found[DIALECTS], strings, version)
    attributes, types = _offsets(found[OFFSETS], dialects, found[CONTENTS])
    properties = _properties(found[PROPERTIES]) if PROPERTIES in found else []
    return Sections(version, producer, strings, operations, attributes, types, properties,
                    found[PROGRAM])


def _properties(at: Cursor) -> list[Cursor]:
    """Attributes that operations have as their own, which several may share."""
    return [at.part(at.number()) for _ in range(at.count("properties"))]


def _strings(at: Cursor) -> list[str]:
    """Their sizes come first, the last string's at the beginning."""
    sizes = [at.number() for _ in range(at.count("strings"))]
    found: list[str] = []
    for size in reversed(sizes):
        text = at.bytes(size)
        if not text.endswith(b"\0"):
            raise at.error("a string has no end")
        found.append(text[:-1].decode("utf-8", "replace"))
    if at.left:
        raise at.error(f"{at.left} bytes follow the strings")
    return found


def _dialects(at: Cursor, strings: list[str], version: int
              ) -> tuple[list[str], list[tuple[str, bool]]]:
    dialects: list[str] = []
    for _ in range(at.count("dialects")):
        text, versioned = at.flagged() if version >= VERSIONED else (at.number(), False)
        dialects.append(strings[at.within(text, len(strings), "string")])
        if versioned and section(at)[0] != VERSIONS:
            raise at.error("a dialect has no version")
    if version >= COUNTED:
        at.count("operations")
    operations: list[tuple[str, bool]] = []

    def one(dialect: str) -> None:
        text, known = at.flagged() if version >= REGISTERED else (at.number(), True)
        own = strings[at.within(text, len(strings), "string")]
        operations.append((f"{dialect}.{own}", known))

    while at.left:
        _group(at, dialects, one)
    return dialects, operations


def _group(at: Cursor, dialects: list[str], one: Callable[[str], None]) -> int:
    """Entries of one dialect. Returns their number."""
    dialect = dialects[at.index(len(dialects), "dialect")]
    count = at.count("entries")
    for _ in range(count):
        one(dialect)
    return count


def _offsets(at: Cursor, dialects: list[str], contents: Cursor
             ) -> tuple[list[Entry], list[Entry]]:
    """Attributes and types lie one after another."""
    counts = at.count("attributes"), at.count("types")
    place = contents.at
    found: list[Entry] = []

    def one(dialect: str) -> None:
        nonlocal place
        size, encoded = at.flagged()
        if size > contents.end - place:
            raise at.error(f"an attribute of {size} bytes is announced, and "
                           f"{contents.end - place} are left")
        found.append(Entry(dialect, place, place + size, encoded))
        place += size

    for wanted in (counts[0], sum(counts)):
        while len(found) < wanted:
            if _group(at, dialects, one) == 0:
                raise at.error("a group of attributes is empty")
    if len(found) != sum(counts):
        raise at.error(f"{len(found)} attributes and types are listed, not {sum(counts)}")
    return found[:counts[0]], found[counts[0]:]
