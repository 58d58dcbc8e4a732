"""A file of the cache that holds a compiled model: facts in JSON, and blobs of bytes.

    magic | length and checksum of the header | header: JSON | blob | blob | ...

The header holds the entry's key, so that an entry under the wrong name counts as damaged, and the
positions and checksums of the blobs. The first blob is the code. Blobs are aligned to cache lines
and read into memory of the process. If they were mapped instead, truncating the file would kill
the process with SIGBUS at a later call.

Checksums protect against damage; ownership of the folder protects against manipulation
(`targets/files.py`). The header and the code are checked on every read. The other blobs may have
gigabytes: they are checked once, and a note next to the file records that it is intact until the
file changes or the machine restarts. Files outside the cache have no notes, and are checked as a
whole whenever they are read (`saved.py`).
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dialects.strata.parallel import in_threads
from targets.files import open_private, read_private, write_whole
from targets.interface import TargetError
from targets.memory import aligned_bytes

if TYPE_CHECKING:
    from dialects.strata.types import Array

_MAGIC = b"strata02"
_HEAD = struct.Struct("<8sQI4x")
_ALIGNMENT = 64
_PIECE = 1 << 24
"""The number of bytes that are read or checked at a time."""
_MOST_HEADER = 256 << 20
"""The bytes of the longest header that is read. That of a model with 10,000 kernels has a few."""
WHOLE = ".whole"
"""The suffix of the note that a file is intact."""


class Damaged(Exception):
    """The file is not what was written."""


DAMAGE = (OSError, Damaged, TargetError, ValueError, TypeError, LookupError, AttributeError,
           ArithmeticError, RecursionError)
"""The exceptions that reading a malformed file may raise."""


class Entry(NamedTuple):
    """The contents of an entry. The blobs are read-only and aligned to cache lines."""

    facts: dict[str, Any]
    blobs: list[Array]


# ---------------------------------------------------------------------- writing
def write_entry(
    path: str, key: str, facts: Mapping[str, Any], blobs: Sequence[Array], *, notes: bool = True
) -> None:
    """Write a file, and a note that it is intact if `notes`. Raises OSError."""
    header = _header(key, facts, blobs)
    write_whole(path, _pieces(header, blobs))
    if notes:
        _note_whole(path)


def entry_size(blobs: Sequence[Array]) -> int:
    """The approximate size in bytes of a file with these blobs."""
    return sum(blob.nbytes + _ALIGNMENT for blob in blobs)


def _header(key: str, facts: Mapping[str, Any], blobs: Sequence[Array]) -> bytes:
    """The header as JSON. Positions are relative to its end, so they do not affect its length."""
    places: list[list[int]] = []
    end = 0
    for blob in blobs:
        places.append([end, blob.nbytes, zlib.crc32(_bytes(blob))])
        end = _aligned(end + blob.nbytes)
    return json.dumps({"key": key, "facts": facts, "blobs": places, "end": end}).encode()


def _pieces(header: bytes, blobs: Sequence[Array]) -> Iterator[bytes | memoryview]:
    yield _HEAD.pack(_MAGIC, len(header), zlib.crc32(header))
    yield header
    yield bytes(_first_blob(len(header)) - _HEAD.size - len(header))
    for blob in blobs:
        yield _bytes(blob)
        yield bytes(_aligned(blob.nbytes) - blob.nbytes)


def _bytes(blob: Array) -> memoryview:
    return np.ascontiguousarray(blob).reshape(-1).view(np.uint8).data


def _aligned(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT


def _first_blob(header_bytes: int) -> int:
    return _aligned(_HEAD.size + header_bytes)


# ---------------------------------------------------------------------- reading
def read_entry(path: str, key: str, *, notes: bool = True) -> Entry:
    """Read and check the file of a key. Blobs that a note vouches for are not checked if `notes`.

    Raises Damaged unless it is intact, owned by this user and has this key.
    """
    descriptor = open_private(path)
    if descriptor is None:
        raise Damaged("there is no such file of this user")
    try:
        return _read(descriptor, path, key, notes)
    except OSError as error:
        raise Damaged(str(error)) from error
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise Damaged(f"its header is not what was written: {error}") from error
    finally:
        os.close(descriptor)


def _read(descriptor: int, path: str, key: str, notes: bool) -> Entry:
    found = os.fstat(descriptor)
    header, first = _read_header(descriptor, found.st_size)
    if header["key"] != key:
        raise Damaged("it belongs to another model")
    if not all(0 <= start <= start + size <= header["end"] for start, size, _ in header["blobs"]):
        raise Damaged("a blob lies outside it")
    memory = aligned_bytes(header["end"])
    _fill(memory[: header["end"]], descriptor, first)
    memory.flags.writeable = False
    blobs = [memory[start: start + size] for start, size, _ in header["blobs"]]
    sums = [checksum for *_, checksum in header["blobs"]]
    if not notes:
        _check(blobs, sums)
        return Entry(header["facts"], blobs)
    _check(blobs[:1], sums)
    if read_private(path + WHOLE) != _identity(found):
        _check(blobs, sums)
        _note_whole(path)
    return Entry(header["facts"], blobs)


def _read_header(descriptor: int, size: int) -> tuple[dict[str, Any], int]:
    """The header, and the offset of the first blob."""
    head = os.pread(descriptor, _HEAD.size, 0)
    if len(head) != _HEAD.size:
        raise Damaged("it is too short")
    magic, length, checksum = _HEAD.unpack(head)
    text = os.pread(descriptor, length, _HEAD.size) if length <= min(size, _MOST_HEADER) else b""
    if magic != _MAGIC or len(text) != length or zlib.crc32(text) != checksum:
        raise Damaged("its header is not what was written")
    header: dict[str, Any] = json.loads(text)
    first = _first_blob(length)
    if first + header["end"] != size:
        raise Damaged("its length is not what was written")
    return header, first


def _fill(memory: Array, descriptor: int, start: int) -> None:
    """Read a part of the file into memory, large ones by several threads."""
    def fill(place: int) -> None:
        piece = memory[place: place + _PIECE].data
        while piece:
            count = os.preadv(descriptor, [piece], start + place)
            if not count:
                raise Damaged("it was cut short while it was read")
            piece, place = piece[count:], place + count

    in_threads(fill, range(0, memory.size, _PIECE))


def _check(blobs: Sequence[Array], sums: Sequence[int]) -> None:
    for blob, expected in zip(blobs, sums, strict=False):
        checksum = 0
        for start in range(0, blob.size, _PIECE):
            checksum = zlib.crc32(blob[start: start + _PIECE].data, checksum)
        if checksum != expected:
            raise Damaged("a blob is not what was written")


def _identity(found: os.stat_result) -> bytes:
    """A value that changes with the file and when the machine restarts."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            started = file.read().strip()
    except OSError:
        started = "never"
    return (f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns} "
            f"{started}").encode()


def _note_whole(path: str) -> None:
    """Note that a file is intact. If the note cannot be written, the file is checked every time."""
    try:
        write_whole(path + WHOLE, [_identity(os.stat(path))])
    except OSError:
        return
