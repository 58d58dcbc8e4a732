"""Describes an ONNX file without importing it, so that it works for unsupported models, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import onnx

from compiler.frontend.faults import Fault
from compiler.frontend.onnx.element_types import element_type, packed_size
from compiler.frontend.onnx.load import OnnxFile, load_file, parse
from compiler.frontend.onnx.validate import subgraphs

DEEPEST = 100
"""The maximum nesting depth of subgraphs that are described."""


def describe_file(name: str, data: bytes | None) -> dict[str, Any]:
    """The facts of a file, or of `data`; see `compiler/cli/inspection.py`. Raises StrataError."""
    file = load_file(Path(name)) if data is None else parse(Path(name), data)
    proto = file.proto
    weights = {tensor.name for tensor in proto.graph.initializer}
    nodes = [*_all(proto.graph.node), *(n for f in proto.functions for n in _all(f.node))]
    facts: dict[str, Any] = {
        "format": "ONNX", "ir_version": proto.ir_version,
        "opsets": {o.domain or "ai.onnx": o.version for o in proto.opset_import},
        "producer": f"{proto.producer_name} {proto.producer_version}".strip(),
        "inputs": [_port(i) for i in proto.graph.input if i.name not in weights],
        "outputs": [_port(o) for o in proto.graph.output],
        "operators": dict(Counter(_operator(n) for n in nodes).most_common()),
        "functions": len(proto.functions),
    }
    return facts | {"parameters": _parameters(file)}


def _all(nodes: Iterable[onnx.NodeProto], depth: int = 0) -> Iterator[onnx.NodeProto]:
    """Nodes, and those of their subgraphs."""
    for node in nodes:
        yield node
        for graph in subgraphs(node) if depth < DEEPEST else ():
            yield from _all(graph.node, depth + 1)


def _operator(node: onnx.NodeProto) -> str:
    domain = node.domain if node.domain != "ai.onnx" else ""
    return f"{domain}.{node.op_type}" if domain else node.op_type


def _parameters(file: OnnxFile) -> dict[str, int]:
    """The number of tensors, elements and bytes of initializers and constants, according to their
    shapes.
    """
    sizes: list[tuple[int, int]] = []
    for tensor in _tensors(file.proto.graph):
        count = prod(tensor.dims)
        try:
            sizes.append((count, packed_size(element_type(tensor.data_type), count)))
        except Fault:  # of text, for instance
            sizes.append((count, 0))
    return {"tensors": len(sizes), "elements": sum(count for count, _ in sizes),
            "bytes": sum(size for _, size in sizes)}


def _tensors(graph: onnx.GraphProto, depth: int = 0) -> Iterator[onnx.TensorProto]:
    """The initializers of a graph and its subgraphs, and the tensors of their Constant nodes."""
    yield from graph.initializer
    for node in graph.node:
        yield from (a.t for a in node.attribute if a.name == "value" and a.HasField("t")
                    and node.op_type == "Constant")
        for inner in subgraphs(node) if depth < DEEPEST else ():
            yield from _tensors(inner, depth + 1)


def _port(info: onnx.ValueInfoProto) -> dict[str, str]:
    return {"name": info.name, "type": _type_text(info.type)}


def _type_text(type_: onnx.TypeProto) -> str:
    """`f32[batch, 3, ?]`; `sequence of f32[?]`."""
    kind = type_.WhichOneof("value") or "unknown"
    if kind in ("sequence_type", "optional_type"):
        inner = getattr(type_, kind).elem_type
        return f"{kind.removesuffix('_type')} of {_type_text(inner)}"
    if kind != "tensor_type":
        return kind.removesuffix("_type")
    tensor = type_.tensor_type
    try:
        element = str(element_type(tensor.elem_type))
    except Fault:
        element = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    if not tensor.HasField("shape"):
        return f"{element}[...]"
    dims = (d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "?")
            for d in tensor.shape.dim)
    return f"{element}[{', '.join(dims)}]"
