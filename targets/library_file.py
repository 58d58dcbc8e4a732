"""What a library says of itself, behind its code: facts and checksums, for those who load it.

    shared library | facts: JSON | length and checksum of the facts, length of the library, mark

Loaders of systems ignore what follows a library. Archives and objects have the same facts, as the
text that the function `about` returns. Checksums find damage, not intent.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO, cast

from dialects.strata.parallel import in_threads

MARK = "strata_library"
"""The first key of the facts."""
API = 1
"""The version of the C interface, STRATA_API_VERSION of `api.h`."""
_TAIL = struct.Struct("<QQI4x8s")
_MAGIC = b"strataL1"
WEIGHTS_MARK = b"strataW1"
"""What files of weights start with."""
ELF = b"\x7fELF"
_PIECE, _BLOCK = 1 << 24, 1 << 18
"""The bytes of a checksum, and those that are read at a time: the C library keeps larger ones."""
_MOST_FACTS = 64 << 20


class NoLibrary(Exception):
    """A file is no library of Strata's, or not what was written; says why."""


def trailer(file: BinaryIO, facts: Mapping[str, Any]) -> bytes:
    """The trailer of a library in a file."""
    size = file.seek(0, os.SEEK_END)
    text = json.dumps({**facts, "sums": sums_of(file.fileno(), size)}).encode()
    return text + _TAIL.pack(len(text), size, zlib.crc32(text), _MAGIC)


def read_library(descriptor: int) -> dict[str, Any]:
    """The facts of a shared library, all of whose bytes are checked. Raises NoLibrary."""
    facts, size = _facts(descriptor)
    check_sums(descriptor, size, facts.pop("sums", None))
    return facts


def read_facts(path: str) -> dict[str, Any]:
    """The facts of a library of any form; nothing else is checked. Raises NoLibrary and OSError."""
    with open(path, "rb") as file:
        try:
            facts = _facts(file.fileno())[0]
        except NoLibrary:
            return _inside(file.read())
        facts.pop("sums", None)
        return facts


def read_weights(path: str) -> tuple[int, str] | None:
    """The bytes of a file of weights, and the hash of its constants; None for other files. Raises
    NoLibrary for one that was cut short, and OSError."""
    with open(path, "rb") as file:
        head = file.read(48)
        if not head.startswith(WEIGHTS_MARK):
            return None
        size = int.from_bytes(head[8:16], "little")
        if len(head) < 48 or os.fstat(file.fileno()).st_size != size:
            raise NoLibrary("it is a file of weights that was cut short")
        return size, head[16:48].hex()


def form_of_others(start: bytes) -> str | None:
    """What a file is that `compile` wrote and no system loads, by its first 18 bytes."""
    if start.startswith(WEIGHTS_MARK):
        return "it holds the constants of a library, which finds them itself"
    if start.startswith(b"!<arch>\n"):
        return "it is a static library, for linkers"
    if start.startswith(b"\0asm"):
        return "it is WebAssembly, for JavaScript"
    if start.startswith(ELF) and start[16:18] in (b"\1\0", b"\0\1"):
        return "it is an object, for linkers"
    return None


def _facts(descriptor: int) -> tuple[dict[str, Any], int]:
    whole = os.fstat(descriptor).st_size
    if whole < _TAIL.size:
        raise NoLibrary("it is too short")
    length, size, checksum, magic = _TAIL.unpack(os.pread(descriptor, _TAIL.size,
                                                          whole - _TAIL.size))
    if magic != _MAGIC:
        raise NoLibrary("it does not end as libraries of Strata do: it was cut short, stripped, "
                        "or made by others")
    if length > _MOST_FACTS or size + length + _TAIL.size != whole:
        raise NoLibrary("its length is not what was written")
    text = os.pread(descriptor, length, size)
    if zlib.crc32(text) != checksum:
        raise NoLibrary("its description is not what was written")
    return _read(text), size


def _inside(content: bytes) -> dict[str, Any]:
    start = content.find(f'{{"{MARK}":'.encode())
    if start < 0:
        raise NoLibrary("it is no library of Strata's")
    return _read(content[start: content.index(b"\0", start)])


def _read(text: bytes) -> dict[str, Any]:
    try:
        facts: Any = json.loads(text)
    except ValueError as error:
        raise NoLibrary(f"its description is not what was written: {error}") from None
    if not isinstance(facts, dict) or MARK not in facts:
        raise NoLibrary("it is no library of Strata's")
    return cast("dict[str, Any]", facts)


def check_sums(descriptor: int, size: int, sums: object) -> None:
    """Compare the first `size` bytes of a file with their checksums. Raises NoLibrary."""
    if sums_of(descriptor, size) != sums:
        raise NoLibrary("its code or its constants are not what was written")


def sums_of(descriptor: int, size: int) -> list[int]:
    """The checksums of the pieces of a file."""
    def checksum(start: int) -> int:
        total, end = 0, min(start + _PIECE, size)
        for at in range(start, end, _BLOCK):
            total = zlib.crc32(os.pread(descriptor, min(_BLOCK, end - at), at), total)
        return total

    return in_threads(checksum, range(0, size, _PIECE))
