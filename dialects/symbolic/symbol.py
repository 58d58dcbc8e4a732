"""Symbols: named numbers in expressions. A symbol has a kind and a name.

    batch   "in0"   "batch size"     sizes: names of a model's dims (any text)
    _trips                           a number computed at run time, may be 0
    i0  i1_part                      axes of a nest
    in0                              the value of a nest's first input at the point
    t0                               the position along dim 0 of a tile
    %k  %0                           an SSA value; in an attribute, its position among the operands
    @0                               a number internal to a pass or an emitter

The text determines the kind, so printed symbols parse back as the same symbols. A name is printed
bare where that is unambiguous. Otherwise it is quoted, after the prefix of its kind: a size called
`in0` is `"in0"`, an axis called `row` is `i"row"`. Only this module knows these rules.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cache
from typing import NoReturn

_WORDS = """
    f64 f32 f16 bf16 f8E4M3FN f8E4M3FNUZ f8E5M2 f8E5M2FNUZ f8E8M0FNU f8E3M4 f8E4M3 f8E4M3B11FNUZ
    f6E2M3FN f6E3M2FN f4E2M1FN index
    ui64 ui32 ui16 ui8 ui4 ui2 si64 si32 si16 si8 si4 si2
    true false max min mod floordiv ceildiv nan inf loc literal
"""
RESERVED_WORDS = frozenset(_WORDS.split())
"""Words with another meaning where a size may occur; a size with such a name is quoted."""

_SPECIAL = re.compile(r"in(?P<gathered>\d+)|t(?P<place>\d+)|_(?P<computed>\w+)|(?P<axis>i\d+\w*)",
                      re.ASCII)
_PLAIN = re.compile(r"[A-Za-z][\w.]*", re.ASCII)
_AXIS = re.compile(r"i\d+\w*", re.ASCII)
_COUNTER = re.compile(r"[@$]\w+", re.ASCII)
_NUMBER = re.compile(r"0|[1-9]\d*", re.ASCII)
_VALUE = re.compile(r"\d+|[A-Za-z$._-][\w$.-]*", re.ASCII)
_ESCAPE = re.compile(rb"\\([nt\"\\]|[0-9A-Fa-f]{2})")
_ESCAPED = {b"n": b"\n", b"t": b"\t", b'"': b'"', b"\\": b"\\"}


class Kind(IntEnum):
    """What a symbol denotes."""

    SIZE = 0
    """A size of the model. It is at least 1 at every point of a domain."""
    COMPUTED = 1
    """A number computed at run time, known only to be non-negative."""
    AXIS = 2
    """An axis of a nest: 0 <= axis < extent."""
    GATHERED = 3
    """The value of a nest's input, by its number, used as an index."""
    PLACE = 4
    """The position along a dim of a tile, by the dim's number."""
    OPERAND = 5
    """An SSA value: in attributes by its operand position, in text by its name."""
    COUNTER = 6
    """A number internal to a pass or an emitter, such as a loop counter; not part of IR text."""


_PREFIXES = {Kind.SIZE: "", Kind.COMPUTED: "_", Kind.AXIS: "i", Kind.GATHERED: "in",
             Kind.PLACE: "t", Kind.OPERAND: "%", Kind.COUNTER: "@"}
_KINDS = {prefix: kind for kind, prefix in _PREFIXES.items()}


class Symbol:
    """A named number of some kind.

    Equal symbols are the same object, so they compare and hash by identity. They are ordered by
    kind, then name.
    """

    __slots__ = ("kind", "name", "symbols", "text")
    kind: Kind
    name: str
    text: str
    symbols: frozenset[Symbol]
    """Itself alone, as the symbols of an atom."""

    def __new__(cls, kind: Kind, name: str) -> Symbol:
        found = _SYMBOLS.get((kind, name))
        return found if found is not None else _SYMBOLS.setdefault((kind, name), _made(kind, name))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a symbol does not change: {name} of {self.text}")

    def __reduce__(self) -> tuple[type[Symbol], tuple[Kind, str]]:
        return Symbol, (self.kind, self.name)

    # ------------------------------------------------------------------ construction
    @staticmethod
    @cache
    def size(name: str) -> Symbol:
        """A size of a model, by the model's own name for it: any text."""
        return Symbol(Kind.SIZE, name)

    @staticmethod
    def computed(name: str) -> Symbol:
        """A number computed at run time, which may be 0."""
        return Symbol(Kind.COMPUTED, name)

    @staticmethod
    @cache
    def axis(name: str) -> Symbol:
        return Symbol(Kind.AXIS, name)

    @staticmethod
    @cache
    def gathered(number: int) -> Symbol:
        """The value of a nest's input, by its number."""
        return Symbol(Kind.GATHERED, str(number))

    @staticmethod
    @cache
    def place(dim: int) -> Symbol:
        """The position along a dim of a tile."""
        return Symbol(Kind.PLACE, str(dim))

    @staticmethod
    @cache
    def operand(name: int | str) -> Symbol:
        """An SSA value, by its position among the operands or by its name without the `%`."""
        return Symbol(Kind.OPERAND, str(name))

    @staticmethod
    def counter(name: str) -> Symbol:
        """A number of a pass or an emitter. By convention, its name starts with `@` or `$`."""
        return Symbol(Kind.COUNTER, name)

    def followed_by(self, suffix: str) -> Symbol:
        """A symbol of the same kind with a suffix on its name, such as `i0_part` for `i0`."""
        return Symbol(self.kind, self.name + suffix)

    # ------------------------------------------------------------------ inspection
    @property
    def number(self) -> int:
        """The number of a gathered input, a tile's dim or an operand."""
        return int(self.name)

    def __lt__(self, other: Symbol) -> bool:
        return (self.kind, self.name) < (other.kind, other.name)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Symbol({self.text})"


_SYMBOLS: dict[tuple[Kind, str], Symbol] = {}


def _made(kind: Kind, name: str) -> Symbol:
    symbol = object.__new__(Symbol)
    for slot, value in (("kind", kind), ("name", name), ("text", _text(kind, name))):
        object.__setattr__(symbol, slot, value)
    object.__setattr__(symbol, "symbols", frozenset((symbol,)))
    return symbol


# ---------------------------------------------------------------------- text
def _text(kind: Kind, name: str) -> str:
    match kind:
        case Kind.AXIS if _AXIS.fullmatch(name):
            return name
        case Kind.COUNTER if _COUNTER.fullmatch(name):
            return name
        case Kind.SIZE:
            bare = _is_plain(name)
        case Kind.GATHERED | Kind.PLACE:
            bare = _NUMBER.fullmatch(name) is not None
        case Kind.COMPUTED:
            bare = re.fullmatch(r"\w+", name, re.ASCII) is not None
        case Kind.OPERAND:
            bare = _VALUE.fullmatch(name) is not None
        case _:
            bare = False
    return _PREFIXES[kind] + (name if bare else quoted(name))


def _is_plain(name: str) -> bool:
    """Whether a size of that name is printed bare."""
    return (_PLAIN.fullmatch(name) is not None and name not in RESERVED_WORDS
            and _SPECIAL.fullmatch(name) is None)


def bare_symbol(word: str) -> Symbol:
    """The symbol that a bare word denotes. Raises ValueError if the word is not a symbol."""
    if word.startswith("%") and _VALUE.fullmatch(word, 1):
        return Symbol.operand(word[1:])
    if _COUNTER.fullmatch(word):
        return Symbol.counter(word)
    special = _SPECIAL.fullmatch(word)
    if special is None:
        if not _is_plain(word):
            raise ValueError(f"unexpected {word!r} in a size expression")
        return Symbol.size(word)
    if special["axis"]:
        return Symbol.axis(word)
    if special["computed"]:
        return Symbol.computed(special["computed"])
    gathered = special["gathered"]
    return Symbol.gathered(int(gathered)) if gathered else Symbol.place(int(special["place"]))


def quoted_symbol(prefix: str, token: str) -> Symbol:
    """The symbol of a quoted name after a prefix, such as `i"row"`. Raises ValueError."""
    if prefix not in _KINDS:
        raise ValueError(f"unexpected {token} after {prefix!r} in a size expression")
    return Symbol(_KINDS[prefix], unquoted(token))


def is_prefix(word: str) -> bool:
    """Whether a quoted name may follow this word."""
    return word in _KINDS


def quoted(text: str) -> str:
    """Text in quotes, with unprintable characters, quotes and backslashes escaped as in MLIR."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def unquoted(token: str) -> str:
    """The inverse of `quoted`. Raises ValueError for a malformed token."""
    if len(token) < 2 or token[0] != '"' or token[-1] != '"':
        raise ValueError(f"{token!r} is not a quoted name")
    if "\\" not in token:
        return token[1:-1]
    return _ESCAPE.sub(_unescaped, token[1:-1].encode("utf-8", "surrogatepass")).decode(
        "utf-8", "surrogatepass")


def _unescaped(match: re.Match[bytes]) -> bytes:
    return _ESCAPED.get(match[1]) or bytes.fromhex(match[1].decode())
