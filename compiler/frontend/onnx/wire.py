"""Take the weights out of a serialized ONNX model without reading them.

A model of 500 MB is 499 MB of weights. Parsing it with protobuf copies them two or three times;
here the message is walked field by field, and what is left for protobuf is a *skeleton*: the same
message without the `raw_data` of its graph's initializers, with the places where those lie.

    ModelProto{graph: GraphProto{initializer: TensorProto{name, dims, raw_data}, ...}, ...}
    ->  the same without raw_data,  [Span(offset, length) or None, ...] in initializer order

Source: the protobuf encoding, https://protobuf.dev/programming-guides/encoding/, and field numbers
from onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap
from typing import NamedTuple

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # in ModelProto, GraphProto, TensorProto
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Span(NamedTuple):
    """`length` bytes from `offset` in the file."""

    offset: int
    length: int


class _Field(NamedTuple):
    number: int
    start: int  # of the whole field, its tag included
    body: int  # of a bytes field's contents
    end: int


def split_weights(data: mmap | bytes) -> tuple[bytes, list[Span | None]]:
    """The skeleton of a serialized ModelProto, and a span per initializer of its graph.

    None denotes an initializer without raw data. Raises ValueError if the bytes are not a protobuf
    message.
    """
    spans: list[Span | None] = []
    parts: list[bytes] = []
    for field in _fields(data, 0, len(data)):
        if field.number != _GRAPH or field.body == field.start:
            parts.append(data[field.start:field.end])
            continue
        graph = b"".join(_graph_parts(data, field, spans))
        parts.append(_bytes_field(_GRAPH, graph))
    return b"".join(parts), spans


def _graph_parts(data: mmap | bytes, graph: _Field, spans: list[Span | None]) -> Iterator[bytes]:
    copied = graph.body  # everything before this position has been copied
    for field in _fields(data, graph.body, graph.end):
        if field.number != _INITIALIZER:
            continue
        yield data[copied:field.start]
        copied = field.end
        tensor, span = _split_tensor(data, field)
        spans.append(span)
        yield _bytes_field(_INITIALIZER, tensor)
    yield data[copied:graph.end]


def _split_tensor(data: mmap | bytes, tensor: _Field) -> tuple[bytes, Span | None]:
    span: Span | None = None
    parts: list[bytes] = []
    for field in _fields(data, tensor.body, tensor.end):
        if field.number == _RAW_DATA:
            span = Span(field.body, field.end - field.body)
        else:
            parts.append(data[field.start:field.end])
    return b"".join(parts), span


def _fields(data: mmap | bytes, position: int, end: int) -> Iterator[_Field]:
    while position < end:
        start = position
        tag, position = _read_varint(data, position, end)
        kind, body = tag & 7, start
        if kind == _VARINT:
            _, position = _read_varint(data, position, end)
        elif kind == _BYTES:
            length, body = _read_varint(data, position, end)
            position = body + length
        elif kind in (_FIXED32, _FIXED64):
            position += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"unknown field kind {kind} at byte {start}")
        if position > end or tag >> 3 == 0:
            raise ValueError(f"a field at byte {start} reaches beyond its message")
        yield _Field(tag >> 3, start, body, position)


def _read_varint(data: mmap | bytes, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 64:
        byte = data[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
    raise ValueError(f"a number that does not end at byte {position}")


def _bytes_field(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))
