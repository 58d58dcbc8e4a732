"""Object files linked to one image: machine code that runs at whatever address it is copied to.

LLVM emits one ELF object per kernel. Their code refers to its own constants, to other kernels and
to a few functions of the C library, always by relative distance. When a model is compiled, the
sections are placed one after another and the distances are filled in once; loading is then a copy.
C library functions are reached through jumps at the end of the image, each to an address in a slot:

    sections of all objects | jumps | slots

This works for x86-64 on systems with ELF. `LinkError` reports anything that is not supported.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import NamedTuple

from dialects.records import dataclass
from targets.cpu.build.native import Image

_X86_64, _RELOCATABLE = 62, 1
_HEADER = struct.Struct("<16xHHI8x8xQ4xHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_PROGRAM, _SYMBOLS, _RELOCATIONS, _ZEROS, _UNWINDING = 1, 2, 4, 8, 0x70000001
_WRITABLE, _ALLOCATED = 1, 2
_PC32, _PLT32 = 2, 4
_UNDEFINED, _SPECIAL = 0, 0xFF00
_JUMP = struct.Struct("<2sixx")
"""`jmp *distance(%rip)`, and two bytes that keep what follows aligned."""


class LinkError(Exception):
    """An object contains something that images do not support."""


class _Section(NamedTuple):
    """A section of an object, and its position in the image."""

    place: int
    data: bytes


class _Reference(NamedTuple):
    """Four bytes of the image at `place` that must be `symbol + addend - place`."""

    place: int
    symbol: str | int
    addend: int


@dataclass
class _Layout:
    """The image while objects are being added."""

    size: int = 0
    sections: list[_Section] = field(default_factory=list[_Section])
    symbols: dict[str, int] = field(default_factory=dict[str, int])
    references: list[_Reference] = field(default_factory=list[_Reference])

    def place(self, size: int, alignment: int) -> int:
        start = -(-self.size // max(alignment, 1)) * max(alignment, 1)
        self.size = start + size
        return start

    def add(self, content: bytes) -> None:
        """Add one object file."""
        read = _Object(content)
        places: dict[int, int] = {}
        for number, section in enumerate(read.sections):
            if section.is_loaded:
                data = section.bytes_of(content)
                places[number] = self.place(len(data), section.alignment)
                self.sections.append(_Section(places[number], data))
        symbols = list(read.symbols(places))
        for name, place, is_global in symbols:
            if is_global and place is not None and self.symbols.setdefault(name, place) != place:
                raise LinkError(f"two objects define {name}")
        for target, offset, kind, symbol, addend in read.relocations():
            if target not in places:
                continue
            if kind not in (_PC32, _PLT32):
                raise LinkError(f"relocation of type {kind}")
            name, place, _ = symbols[symbol]
            self.references.append(_Reference(
                places[target] + offset, name if place is None else place, addend))

    def image(self, entry: str) -> Image:
        """The image with all distances filled in. Raises LinkError if no function is `entry`."""
        if entry not in self.symbols:
            raise LinkError(f"no object defines {entry}")
        wanted = {r.symbol for r in self.references if isinstance(r.symbol, str)}
        outside = sorted(wanted - self.symbols.keys())
        jumps = self.place(_JUMP.size * len(outside), 16)
        first = self.place(8 * len(outside), 8)
        code = bytearray(self.size)
        for section in self.sections:
            code[section.place: section.place + len(section.data)] = section.data
        places, slots = dict(self.symbols), {}
        for k, name in enumerate(outside):
            places[name], slots[name] = jumps + k * _JUMP.size, first + 8 * k
            _JUMP.pack_into(code, places[name], b"\xff\x25", slots[name] - places[name] - 6)
        for reference in self.references:
            symbol = reference.symbol
            target = places[symbol] if isinstance(symbol, str) else symbol
            struct.pack_into("<i", code, reference.place,
                             target + reference.addend - reference.place)
        return Image(bytes(code), self.symbols[entry], slots)


def link_image(objects: Iterable[bytes], entry: str) -> Image:
    """Link objects one after another; `entry` is the function to be called.

    Raises LinkError for objects of other machines, and for references other than distances.
    """
    layout = _Layout()
    try:
        for content in objects:
            layout.add(content)
        return layout.image(entry)
    except (struct.error, IndexError, ValueError) as error:
        raise LinkError(f"malformed object: {error}") from error


# ---------------------------------------------------------------------- object files
class _Header(NamedTuple):
    """The header of a section."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int

    @property
    def is_loaded(self) -> bool:
        """Whether the section is loaded; unwind tables are not. Raises LinkError if it is writable.
        """
        if not self.flags & _ALLOCATED or not self.size or self.kind == _UNWINDING:
            return False
        if self.flags & _WRITABLE or self.kind not in (_PROGRAM, _ZEROS):
            raise LinkError(f"section of type {self.kind} with flags {self.flags:#x}")
        return True

    def bytes_of(self, content: bytes) -> bytes:
        if self.kind == _ZEROS:
            return bytes(self.size)
        return content[self.offset: self.offset + self.size]


class _Object:
    """A parsed ELF object file."""

    def __init__(self, content: bytes):
        kind, machine, _, start, _, _, _, size, count, _ = _HEADER.unpack_from(content)
        if content[:6] != b"\x7fELF\x02\x01" or (kind, machine) != (_RELOCATABLE, _X86_64):
            raise LinkError("not an object file for x86-64")
        self.content = content
        self.sections = [_Header(*_SECTION.unpack_from(content, start + k * size))
                         for k in range(count)]

    def symbols(self, places: dict[int, int]) -> Iterator[tuple[str, int | None, bool]]:
        """Name, position in the image (None: elsewhere), and whether other objects can refer to it.
        """
        for table in self._of_kind(_SYMBOLS):
            names = self.sections[table.link].bytes_of(self.content)
            for name, info, _, section, value, _ in _SYMBOL.iter_unpack(
                    table.bytes_of(self.content)):
                text = names[name: names.index(b"\0", name)].decode("ascii")
                if section >= _SPECIAL and text and info & 15 != 4:  # 4: a source file's name
                    raise LinkError(f"symbol {text} in special section {section:#x}")
                place = places[section] + value if section in places else None
                yield text, place, info >> 4 != 0

    def relocations(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Section, offset in it, type, symbol number and addend of every relocation."""
        for table in self._of_kind(_RELOCATIONS):
            for offset, info, addend in _RELOCATION.iter_unpack(table.bytes_of(self.content)):
                yield table.info, offset, info & 0xFFFFFFFF, info >> 32, addend

    def _of_kind(self, kind: int) -> Sequence[_Header]:
        return [section for section in self.sections if section.kind == kind]
