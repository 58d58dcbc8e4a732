"""A file of the cache that holds a compiled model: facts in JSON, and blobs of bytes.

    magic | length and checksum of the header | header: JSON | blob | blob | ...

The header lists where blobs lie, and their checksums. The first blob is the code. Blobs begin on
cache lines, so that they can be used where the file is mapped: read-only, and shared by all
processes that have the same model.

Checksums are against damage; against malice stands who owns the folder (`targets/files.py`). The
header and the code are checked at every reading. The other blobs may be gigabytes: they are checked
once, and noted as whole beside the file until the file changes or the machine is started again.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from targets.files import open_private, read_private, write_whole

if TYPE_CHECKING:
    from dialects.types import Array

_MAGIC = b"strata01"
_HEAD = struct.Struct("<8sQI4x")
_ALIGNMENT = 64
_PIECE = 1 << 24
"""Bytes of a blob that are checked at a time."""
WHOLE = ".whole"
"""The ending of the note that a file is whole."""


class Damaged(Exception):
    """The file is not what was written."""


class Entry(NamedTuple):
    """What was written. The blobs are read-only views of the mapped file."""

    facts: dict[str, Any]
    blobs: list[Array]


# ---------------------------------------------------------------------- writing
def write_entry(path: str, facts: Mapping[str, Any], blobs: Sequence[Array]) -> None:
    """Write a file. Raises OSError."""
    header = _header(facts, blobs)
    write_whole(path, _pieces(header, blobs))
    _note_whole(path)


def entry_size(blobs: Sequence[Array]) -> int:
    """The bytes that a file with these blobs takes, about."""
    return sum(blob.nbytes + _ALIGNMENT for blob in blobs)


def _header(facts: Mapping[str, Any], blobs: Sequence[Array]) -> bytes:
    """JSON of a length that does not depend on the places that it tells: they count from its end.
    """
    places: list[list[int]] = []
    end = 0
    for blob in blobs:
        places.append([end, blob.nbytes, zlib.crc32(_bytes(blob))])
        end = _aligned(end + blob.nbytes)
    return json.dumps({"facts": facts, "blobs": places, "end": end}).encode()


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
def read_entry(path: str) -> Entry:
    """Read a file, checked. Raises Damaged where there is none that is whole and this user's."""
    descriptor = open_private(path)
    if descriptor is None:
        raise Damaged("there is no such file of this user")
    try:
        found = os.fstat(descriptor)
        if found.st_size < _HEAD.size:
            raise Damaged("it is too short")
        data = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    except OSError as error:
        raise Damaged(str(error)) from error
    finally:
        os.close(descriptor)
    header, first = _read_header(data)
    blobs = [np.frombuffer(data, np.uint8, size, first + start)
             for start, size, _ in header["blobs"]]
    sums = [checksum for *_, checksum in header["blobs"]]
    _check(blobs[:1], sums)
    if read_private(path + WHOLE) != _identity(found):
        _check(blobs, sums)
        _note_whole(path)
    return Entry(header["facts"], blobs)


def _read_header(data: mmap.mmap) -> tuple[dict[str, Any], int]:
    """The header, and where the first blob begins."""
    magic, length, checksum = _HEAD.unpack_from(data)
    text = data[_HEAD.size: _HEAD.size + length] if length <= len(data) else b""
    if magic != _MAGIC or len(text) != length or zlib.crc32(text) != checksum:
        raise Damaged("its header is not what was written")
    header: dict[str, Any] = json.loads(text)
    first = _first_blob(length)
    if first + header["end"] != len(data):
        raise Damaged("its length is not what was written")
    return header, first


def _check(blobs: Sequence[Array], sums: Sequence[int]) -> None:
    for blob, expected in zip(blobs, sums, strict=False):
        checksum = 0
        for start in range(0, blob.size, _PIECE):
            checksum = zlib.crc32(blob[start: start + _PIECE].data, checksum)
        if checksum != expected:
            raise Damaged("a blob is not what was written")


def _identity(found: os.stat_result) -> bytes:
    """What changes when the file does, and when the machine is started again: until then the
    system itself vouches for what it has written."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            started = file.read().strip()
    except OSError:
        started = "never"
    return (f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns} "
            f"{started}").encode()


def _note_whole(path: str) -> None:
    """Note that a file is whole; where that cannot be written, it is checked every time."""
    try:
        write_whole(path + WHOLE, [_identity(os.stat(path))])
    except OSError:
        return
