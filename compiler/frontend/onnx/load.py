"""Reads an ONNX file: it is checked and memory-mapped, and its weights stay in it.

A file that is not a valid model raises StrataError, with the file's name.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from itertools import chain
from math import prod
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper
from xdsl.ir import Attribute

from compiler.diagnostics import Problem, StrataError
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.element_types import element_type, packed_array, packed_size
from compiler.frontend.onnx.external import ExternalFiles, map_file
from compiler.frontend.onnx.wire import Span, split_weights
from dialects.records import dataclass
from dialects.strata.types import Array, dtype_of

SIZE_LIMIT = 2**31
"""The maximum number of bytes of a protobuf message."""


@dataclass
class OnnxFile:
    """A parsed model and the means to get at its weights."""

    path: Path
    proto: onnx.ModelProto
    data: mmap.mmap | bytes
    spans: list[Span | None]
    external: ExternalFiles

    def initializer(self, index: int) -> Array:
        """The array of an initializer, a read-only view where possible (perhaps not aligned).

        Raises Fault when its bytes are missing or do not fit its shape.
        """
        tensor = self.proto.graph.initializer[index]
        return self.tensor(tensor, self.spans[index])

    def tensor(self, tensor: onnx.TensorProto, span: Span | None = None) -> Array:
        """The array of any tensor of the model. `span`: the position of its bytes in the file."""
        shape = tuple(tensor.dims)
        if min(shape, default=0) < 0:
            raise Fault(f"it has a negative size: {list(shape)}")
        element, count = element_type(tensor.data_type), prod(shape)
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return self.external.read(tensor, element, count).reshape(shape)
        if span is not None:
            return _view(self.data, span, element, count).reshape(shape)
        if tensor.HasField("raw_data"):
            raw = tensor.raw_data
            return _view(raw, Span(0, len(raw)), element, count).reshape(shape)
        return _typed_array(tensor).astype(dtype_of(element), copy=False)


    def dense(self, tensor: onnx.SparseTensorProto) -> Array:
        """A sparse tensor's array: zeros, but for the values at their indices.

        Indices are positions of elements in row-major order, or one row of indices each. Raises
        Fault for what does not fit, and for more elements than a model's file could hold.
        """
        shape, values = tuple(tensor.dims), self.tensor(tensor.values)
        indices = self.tensor(tensor.indices).astype(np.int64)
        if min(shape, default=0) < 0 or prod(shape) * values.itemsize >= SIZE_LIMIT:
            raise Fault(f"its shape {list(shape)} is negative or too large")
        if values.ndim != 1 or indices.shape not in ((len(values),), (len(values), len(shape))):
            raise Fault(f"{list(values.shape)} values and {list(indices.shape)} indices do not fit")
        if indices.ndim == 1:
            indices = indices[:, None]
            limits = (prod(shape),)
        else:
            limits = shape
        if ((indices < 0) | (indices >= np.array(limits))).any():
            raise Fault(f"its indices are not all inside the shape {list(shape)}")
        found = np.zeros(limits, values.dtype)
        found[tuple(indices.T)] = values
        return found.reshape(shape)


def _view(data: mmap.mmap | bytes, span: Span, element: Attribute, count: int) -> Array:
    needed = packed_size(element, count)
    if span.length != needed:
        raise Fault(f"it has {span.length} bytes of data, its shape and type need {needed}")
    return packed_array(data, span.offset, element, count)


def _typed_array(tensor: onnx.TensorProto) -> Array:
    """A tensor whose values are in `float_data`, `int64_data` and similar fields."""
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError):
        raise Fault(f"its data does not fill its shape {list(tensor.dims)}") from None


def load_file(path: Path) -> OnnxFile:
    """Parse a model. Raises StrataError."""
    return parse(path, _map_model(path))


def parse(path: Path, data: mmap.mmap | bytes) -> OnnxFile:
    """Parse a model's bytes; `path` is where they come from. Raises StrataError."""
    try:
        skeleton, spans = split_weights(data)
        proto = onnx.ModelProto.FromString(skeleton)
    except (ValueError, DecodeError) as error:
        hint = "the file is truncated, or not an ONNX model: fetch or export it again"
        raise _unreadable(path, f"its bytes are not an ONNX model ({error})", hint) from None
    if not (proto.HasField("graph") and proto.ir_version and proto.opset_import):
        raise _unreadable(path, "its bytes are not an ONNX model (no graph, or no opset)",
                          "ONNX files come from an exporter, for instance torch.onnx.export")
    if any(isinstance(text, bytes) for text in _texts(proto)):  # so protobuf marks bad UTF-8
        raise _unreadable(path, "names in it are not UTF-8 text", "fetch or export it again")
    return OnnxFile(path, proto, data, spans, ExternalFiles(path.parent))


def _texts(proto: onnx.ModelProto) -> Iterator[object]:
    """All names that the import reads."""
    graph = proto.graph
    for imported in chain(proto.opset_import, *[f.opset_import for f in proto.functions]):
        yield imported.domain
    for function in proto.functions:
        yield from (function.name, function.domain, function.overload, *function.input,
                    *function.output)
    for node in chain(graph.node, *[f.node for f in proto.functions]):
        yield from (node.name, node.op_type, node.domain, node.overload, *node.input, *node.output)
        for attribute in node.attribute:
            yield from (attribute.name, attribute.ref_attr_name)
    for value in chain(graph.input, graph.output):
        yield value.name
        yield from (d.dim_param for d in value.type.tensor_type.shape.dim)
    for tensor in chain(graph.initializer, [s.values for s in graph.sparse_initializer]):
        yield tensor.name
        yield from (text for e in tensor.external_data for text in (e.key, e.value))


def _map_model(path: Path) -> mmap.mmap | bytes:
    if not path.exists():
        raise _unreadable(path, "there is no such file")
    if not path.is_file():
        raise _unreadable(path, "it is not a file", "give the .onnx file itself")
    if path.stat().st_size >= SIZE_LIMIT:
        raise _unreadable(path, "it has more than 2 GB, which protobuf cannot hold",
                          "save the model with its weights as external data")
    try:
        data = map_file(path)
    except OSError as error:
        raise _unreadable(path, f"it cannot be read: {error.strerror}") from None
    if not data:
        raise _unreadable(path, "the file is empty", "fetch or export it again")
    return data


def _unreadable(path: Path, what: str, hint: str = "") -> StrataError:
    return StrataError(f"cannot read {path}", [Problem(what, file=str(path), hint=hint)])
