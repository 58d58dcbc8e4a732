"""Edits of ONNX graphs. Each creates a new model; a trial decides whether it is valid.

If a part of a graph is kept, the values that it reads from the rest become inputs, with the
contents that they had in the whole model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx
from onnx import helper

from compiler.reduction.candidate import Candidate

if TYPE_CHECKING:
    from dialects.strata.types import Array


def reads_of(node: onnx.NodeProto) -> set[str]:
    """The values that a node reads, including those that its subgraphs capture."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        if attribute.HasField("g"):
            names |= reads_from_outside(attribute.g)
    return names


def reads_from_outside(graph: onnx.GraphProto) -> set[str]:
    made = {i.name for i in graph.input} | {i.name for i in graph.initializer}
    made |= {name for node in graph.node for name in node.output}
    read = {name for node in graph.node for name in reads_of(node)}
    return (read | {o.name for o in graph.output}) - made


def with_nodes(
    candidate: Candidate, kept: Sequence[int], values: Mapping[str, Array]
) -> Candidate | None:
    """The model restricted to these nodes. None if a value that it needs is unknown."""
    graph = candidate.model.graph
    nodes = [graph.node[k] for k in sorted(kept)]
    made = {name for node in nodes for name in node.output if name}
    read = {name for node in nodes for name in reads_of(node)}
    infos = {info.name: info for info in (*graph.input, *graph.value_info, *graph.output)}
    weights = [t for t in graph.initializer if t.name in read]
    cut = sorted(read - made - {t.name for t in weights})
    given = {name: candidate.inputs.get(name, values.get(name)) for name in cut}
    inputs: list[onnx.ValueInfoProto] = []
    own = {info.name for info in graph.input}
    for name in cut:
        info = infos.get(name) if name in own else _info(name, given[name], infos.get(name))
        if info is None:
            return None
        inputs.append(info)
    wanted = [name for node in nodes for name in node.output if name and name not in read]
    outputs = [infos.get(name) or _result(name, values.get(name)) for name in wanted]
    arrays = {name: array for name, array in given.items() if array is not None}
    return Candidate(_model(candidate.model, nodes, inputs, outputs, weights), arrays)


def _info(
    name: str, array: Array | None, known: onnx.ValueInfoProto | None
) -> onnx.ValueInfoProto | None:
    """The declaration of a value that becomes an input: its type, and its shape in this run."""
    if array is None:
        is_tensor = known is not None and known.type.HasField("tensor_type")
        return known if is_tensor else None
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    if known is not None and known.type.tensor_type.elem_type:
        kind = known.type.tensor_type.elem_type
    return helper.make_tensor_value_info(name, kind, array.shape)


def _result(name: str, array: Array | None) -> onnx.ValueInfoProto:
    """The declaration of a value that becomes an output: its type and rank, if they are known."""
    if array is None:
        return helper.make_empty_tensor_value_info(name)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, [None] * array.ndim)


def _model(
    like: onnx.ModelProto, nodes: Iterable[onnx.NodeProto], inputs: Iterable[onnx.ValueInfoProto],
    outputs: Iterable[onnx.ValueInfoProto], weights: Iterable[onnx.TensorProto],
) -> onnx.ModelProto:
    """A model with another graph."""
    model = onnx.ModelProto()
    model.ir_version = like.ir_version
    model.opset_import.extend(like.opset_import)
    model.functions.extend(like.functions)
    model.graph.name = like.graph.name or "reduced"
    model.graph.node.extend(nodes)
    model.graph.input.extend(inputs)
    model.graph.output.extend(outputs)
    model.graph.initializer.extend(weights)
    return model


def with_outputs(candidate: Candidate, names: Sequence[str]) -> Candidate:
    """The model with these outputs only, without dead nodes."""
    graph, needed = candidate.model.graph, set(names)
    kept: list[onnx.NodeProto] = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.insert(0, node)
            needed |= reads_of(node)
    outputs = [info for info in graph.output if info.name in names]
    return Candidate(_model(
        candidate.model, kept, [i for i in graph.input if i.name in needed], outputs,
        [t for t in graph.initializer if t.name in needed]), candidate.inputs)


# ---------------------------------------------------------------------- one node less
def simpler(candidate: Candidate) -> Iterator[Candidate]:
    """Simpler models: with a node bypassed (its users read one of its operands), a branch instead
    of an If, or an attribute removed, also in subgraphs.
    """
    for path in graphs_of(candidate.model.graph):
        for k in range(len(graph_at(candidate.model.graph, path).node)):
            yield from _without_node(candidate, path, k)
            yield from _branches(candidate, path, k)
            yield from _without_attribute(candidate, path, k)


Path_ = tuple[tuple[int, int], ...]
"""The path of a subgraph: (node, attribute) pairs from the model's graph inwards."""


def graphs_of(graph: onnx.GraphProto, path: Path_ = ()) -> Iterator[Path_]:
    """The paths of a graph and of all subgraphs in it."""
    yield path
    for k, node in enumerate(graph.node):
        for a, attribute in enumerate(node.attribute):
            if attribute.HasField("g"):
                yield from graphs_of(attribute.g, (*path, (k, a)))


def graph_at(graph: onnx.GraphProto, path: Path_) -> onnx.GraphProto:
    for k, a in path:
        graph = graph.node[k].attribute[a].g
    return graph


def _copied(candidate: Candidate) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(candidate.model)
    return model


def _without_node(candidate: Candidate, path: Path_, k: int) -> Iterator[Candidate]:
    node = graph_at(candidate.model.graph, path).node[k]
    for operand in dict.fromkeys(name for name in node.input if name):
        model = _copied(candidate)
        graph = graph_at(model.graph, path)
        _rename(graph, {name: operand for name in node.output if name})
        del graph.node[k]
        if path and any(o.name == operand for o in graph.output) and _is_outer(graph, operand):
            continue
        yield Candidate(model, candidate.inputs)


def _is_outer(graph: onnx.GraphProto, name: str) -> bool:
    """Whether a subgraph does not compute a value itself, so that it cannot return it."""
    made = {i.name for i in graph.input} | {n for node in graph.node for n in node.output}
    return name not in made


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename the values that the graph and its subgraphs read."""
    for node in graph.node:
        for j, name in enumerate(node.input):
            node.input[j] = names.get(name, name)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename(attribute.g, names)
    for output in graph.output:
        output.name = names.get(output.name, output.name)


def _branches(candidate: Candidate, path: Path_, k: int) -> Iterator[Candidate]:
    """Either branch of an If in its place."""
    node = graph_at(candidate.model.graph, path).node[k]
    if node.op_type != "If":
        return
    for attribute in node.attribute:
        if not attribute.HasField("g"):
            continue
        model = _copied(candidate)
        graph = graph_at(model.graph, path)
        results = [o.name for o in attribute.g.output]
        nodes = [*graph.node[:k], *attribute.g.node, *graph.node[k + 1:]]
        weights = [*graph.initializer, *attribute.g.initializer]
        _replace(graph.node, nodes)
        _replace(graph.initializer, weights)
        _rename(graph, dict(zip(node.output, results, strict=False)))
        yield Candidate(model, candidate.inputs)


def _replace(field: object, items: Sequence[object]) -> None:
    """Set a repeated field of a message."""
    copies = [type(item)() for item in items]
    for copy, item in zip(copies, items, strict=True):
        copy.CopyFrom(item)  # type: ignore[attr-defined]
    del field[:]  # type: ignore[attr-defined]
    field.extend(copies)  # type: ignore[attr-defined]


def _without_attribute(candidate: Candidate, path: Path_, k: int) -> Iterator[Candidate]:
    node = graph_at(candidate.model.graph, path).node[k]
    for a, attribute in enumerate(node.attribute):
        if attribute.HasField("g"):
            continue
        model = _copied(candidate)
        del graph_at(model.graph, path).node[k].attribute[a]
        yield Candidate(model, candidate.inputs)
