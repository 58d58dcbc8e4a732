"""Weights in files beside the model: mapped where they are large, never outside its folder.

Source: ONNX, docs/ExternalData.md. `location` is relative to the model's folder; `offset` and
`length` count bytes.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import field
from pathlib import Path

import onnx
from xdsl.ir import Attribute

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.element_types import packed_array, packed_size
from dialects.records import dataclass
from dialects.strata.mapped import READ_WHOLE
from dialects.strata.types import Array

_DIGITS = 100
"""The maximum number of digits of a byte count; Python refuses to parse thousands of digits."""


def map_file(path: Path) -> mmap.mmap | bytes:
    """The bytes of a file: read, or mapped read-only where it is larger than `READ_WHOLE`.

    If a mapped file is truncated, the next access ends the process. Raises
    OSError.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size <= READ_WHOLE:
            return file.read()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@dataclass
class ExternalFiles:
    """The files beside a model, each mapped once."""

    folder: Path
    mapped: dict[Path, mmap.mmap | bytes] = field(
        default_factory=dict[Path, "mmap.mmap | bytes"])
    _paths: dict[str, Path] = field(default_factory=dict[str, Path])
    """Location -> the file there."""

    def read(self, tensor: onnx.TensorProto, element: Attribute, count: int) -> Array:
        """`count` elements, a view if possible. Raises Fault for every kind of invalid reference.
        """
        entries = {e.key: e.value for e in tensor.external_data}
        data = self._map(entries.get("location", ""))
        size = packed_size(element, count)
        offset = _bytes(entries, "offset", 0)
        length = _bytes(entries, "length", size)
        if length != size:
            raise Fault(f"its external data has {length} bytes, its shape and type need {size}")
        if offset + size > len(data):
            raise Fault(f"its external data, bytes {offset} to {offset + size}, lies beyond the end"
                        f" of '{entries['location']}' ({len(data)} bytes)",
                        "the file is truncated, or belongs to another model: fetch it again")
        return packed_array(data, offset, element, count)

    def _map(self, location: str) -> mmap.mmap | bytes:
        path = self._paths.get(location) or self._resolve(location)
        self._paths[location] = path
        if path not in self.mapped:
            try:
                self.mapped[path] = map_file(path)
            except OSError as error:
                raise Fault(f"its external data '{location}' cannot be read: "
                            f"{error.strerror}") from None
        return self.mapped[path]

    def _resolve(self, location: str) -> Path:
        if not location or "\0" in location:
            raise Fault(f"its external data names no file (location {location!r})")
        folder = self.folder.resolve()
        try:
            path = (folder / location).resolve()
            is_file = path.is_file()
        except (OSError, RuntimeError) as error:  # a name too long, links in a circle
            raise Fault(f"its external data '{location[:80]}' cannot be read: {error}") from None
        if not path.is_relative_to(folder):
            raise Fault(f"its external data '{location}' lies outside the model's folder",
                        "for safety only files in the model's own folder are read")
        if not is_file:
            raise Fault(f"its external data file '{location}' does not exist",
                        f"put it beside the model, as {path}")
        return path


def _bytes(entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise Fault(f"its external data has {key} '{text[:80]}', which is not a number of bytes")
    return int(text)
